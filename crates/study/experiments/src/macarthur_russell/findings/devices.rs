//! Devices side by side: what a message costs on each. Measurements are compared with each other, and
//! predictions with each other; never one with the other, and neither with TCP.

use std::collections::{BTreeMap, BTreeSet};

use adverb_report::cells::{Cell, Cells, Quantity, Verdict, compare};
use adverb_report::findings::{Finding, Scope, one_way};
use adverb_report::format;
use adverb_results::{DeviceKind, DeviceRef, Opcode};

use crate::macarthur_russell::figures::is_comparable;

/// Sizes of the small and of the large messages, if all devices have them.
const SMALL: u64 = 64;
const LARGE: u64 = 64 << 10;
/// Buffers of the large messages.
const BUFFERS: u32 = 4;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.cells.filter(is_comparable);
    let of = |kinds: &[DeviceKind]| cells.filter(|r| kinds.contains(&r.device.kind));
    let groups = [
        ("measured", of(&[DeviceKind::Soft, DeviceKind::Verbs])),
        ("predicted", of(&[DeviceKind::Model])),
        ("tcp", of(&[DeviceKind::Tcp])),
    ];
    let found = groups.iter().flat_map(|(group, cells)| {
        let small = cells.filter(|r| r.params.op == Opcode::Send);
        let small = side_by_side(&small, |sizes| {
            sizes.get(&SMALL).or_else(|| sizes.first()).copied()
        });
        let large = cells.filter(|r| r.params.op == Opcode::Write && r.params.buffers == BUFFERS);
        let large = side_by_side(&large, |sizes| {
            sizes.get(&LARGE).or_else(|| sizes.last()).copied()
        });
        let found = [small, large].into_iter().flatten();
        found.map(|cells| in_words(scope, group, &cells))
    });
    found.collect()
}

/// Returns the cells of one size that all devices have, fastest first; `None` if there are fewer than two
/// devices with such cells.
fn side_by_side<'a>(
    cells: &Cells<'a>,
    choose: impl Fn(&BTreeSet<u64>) -> Option<u64>,
) -> Option<Vec<Cell<'a>>> {
    let of_device = |device: &DeviceRef| cells.filter(|r| r.device == *device).by(|c| c.size());
    let each: Vec<BTreeMap<u64, Cell<'a>>> = cells.devices().into_iter().map(of_device).collect();
    let (first, rest) = each.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let is_common = |size: &u64| rest.iter().all(|of| of.contains_key(size));
    let sizes: BTreeSet<u64> = first.keys().copied().filter(is_common).collect();
    let size = choose(&sizes)?;
    let timed = each.iter().filter_map(|of| of.get(&size));
    let timed = timed.map(|cell| Some((one_way(*cell)?, *cell)));
    let mut timed: Vec<(f64, Cell<'a>)> = timed.collect::<Option<_>>()?;
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(timed.into_iter().map(|(_, cell)| cell).collect())
}

fn in_words<'a>(scope: &Scope<'a>, group: &str, cells: &[Cell<'a>]) -> Finding {
    // Invariant: there are at least two.
    let fastest = cells[0];
    let (op, size) = (fastest.params().op, format::size(fastest.size()));
    let (what, quantity) = match op {
        Opcode::Send => (
            format!("A blast of SENDs of {size} with one buffer takes, per message,"),
            Quantity::OneWay,
        ),
        _ => (
            format!("RDMA WRITEs of {size} with {BUFFERS} buffers in lists reach"),
            Quantity::Throughput,
        ),
    };
    let listed = cells.iter().map(|cell| {
        let value = cell.sample(quantity).map_or(0.0, |s| s.median);
        let (device, kind) = (&cell.record.device, format::device_kind(cell.record));
        let behind = behind(fastest, *cell);
        format!("{} on {device} ({kind}{behind})", quantity.show(value))
    });
    let listed = format::and(&listed.collect::<Vec<_>>());
    let sentence = format!("{what} {listed}.{}", caution(cells));
    let id = format!("devices-{op}-{group}");
    scope.finding(id, "fig8", sentence, cells.iter().copied())
}

/// How much longer than the fastest.
fn behind(fastest: Cell<'_>, cell: Cell<'_>) -> String {
    if fastest.record.device == cell.record.device {
        return String::new();
    }
    match (compare(fastest, cell), one_way(fastest), one_way(cell)) {
        (Some(Verdict::Tie), ..) => "; equal within the noise".to_owned(),
        (_, Some(least), Some(time)) => format!("; {} the time", format::factor(time / least)),
        _ => String::new(),
    }
}

/// What the comparison does not show.
fn caution(cells: &[Cell<'_>]) -> String {
    let is_software = |cell: &Cell<'_>| match cell.record.device.kind {
        DeviceKind::Soft => true,
        DeviceKind::Verbs => cell.record.has_software_driver(),
        DeviceKind::Model | DeviceKind::Tcp => false,
    };
    let sites = cells.iter().map(|cell| &cell.record.provenance.active);
    let machines: BTreeSet<(&str, &str)> = sites
        .map(|site| (site.host.as_str(), site.cpu.as_str()))
        .collect();
    let mut caution = String::new();
    if machines.len() > 1 {
        let names: Vec<String> = machines
            .iter()
            .map(|(host, _)| (*host).to_owned())
            .collect();
        caution += &format!(
            " They were measured on different machines ({}), which also differ.",
            format::and(&names)
        );
    }
    if cells.iter().all(is_software) {
        caution += " All of these devices are software: the times are what this machine’s CPUs need to move a \
                    message, and do not compare InfiniBand with RoCE in hardware.";
    }
    caution
}
