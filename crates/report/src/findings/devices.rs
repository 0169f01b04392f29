//! Devices side by side: what a message costs on each. Measured ones are compared with each other, and
//! predictions with each other; never one with the other.

use std::collections::{BTreeMap, BTreeSet};

use adverb_results::{DeviceKind, DeviceRef, Opcode, Program};

use super::Finding;
use crate::cells::{Cell, Cells, Quantity, Verdict, compare};
use crate::format;

/// Sizes of the small and of the large messages, where all devices have them.
const SMALL: u64 = 64;
const LARGE: u64 = 1 << 20;

pub(super) fn findings(cells: &Cells<'_>) -> Vec<Finding> {
    let cells = cells.comparable();
    let of = |is_model: bool| cells.filter(|r| (r.device.kind == DeviceKind::Model) == is_model);
    let groups = [("measured", of(false)), ("predicted", of(true))];
    let found = groups.iter().flat_map(|(group, cells)| {
        let small = side_by_side(cells, Program::Ping, Opcode::Send, |sizes| {
            sizes.get(&SMALL).or_else(|| sizes.first()).copied()
        });
        let large = side_by_side(cells, Program::Blast, Opcode::Write, |sizes| {
            sizes.get(&LARGE).or_else(|| sizes.last()).copied()
        });
        [
            small.map(|cells| in_words(group, &cells)),
            large.map(|cells| in_words(group, &cells)),
        ]
    });
    found.flatten().collect()
}

/// The cells of one size on all devices that have any like it, fastest first; none where there are no
/// two of them.
fn side_by_side<'a>(
    cells: &Cells<'a>,
    program: Program,
    op: Opcode,
    choose: impl Fn(&BTreeSet<u64>) -> Option<u64>,
) -> Option<Vec<Cell<'a>>> {
    let cells = cells.filter(|r| r.program == program && r.params.op == op);
    let of_device = |device: &DeviceRef| cells.filter(|r| r.device == *device).by(|c| c.size());
    let each: Vec<BTreeMap<u64, Cell<'a>>> = cells.devices().into_iter().map(of_device).collect();
    let (first, rest) = each.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let is_common = |size: &u64| rest.iter().all(|of| of.contains_key(size));
    let sizes: BTreeSet<u64> = first.keys().copied().filter(is_common).collect();
    let size = choose(&sizes)?;
    let mut timed: Vec<(f64, Cell<'a>)> = each
        .iter()
        .filter_map(|of| of.get(&size))
        .map(|cell| Some((cell.sample(Quantity::OneWay)?.median, *cell)))
        .collect::<Option<_>>()?;
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(timed.into_iter().map(|(_, cell)| cell).collect())
}

fn in_words(group: &str, cells: &[Cell<'_>]) -> Finding {
    // Invariant: there are at least two.
    let fastest = cells[0];
    let (program, size) = (fastest.record.program, format::size(fastest.size()));
    let (what, quantity) = match program {
        Program::Ping => (format!("A SEND of {size} takes one way"), Quantity::OneWay),
        Program::Blast => (
            format!("Four RDMA WRITEs of {size} under way make"),
            Quantity::Throughput,
        ),
    };
    let listed: Vec<String> = cells
        .iter()
        .map(|cell| {
            let value = cell.sample(quantity).map_or(0.0, |s| s.median);
            let record = cell.record;
            let (device, kind) = (&record.device, format::device_kind(record));
            let behind = behind(fastest, *cell);
            format!("{} on {device} ({kind}{behind})", quantity.show(value))
        })
        .collect();
    let sentence = format!("{what} {}.{}", format::and(&listed), caution(cells));
    let mut evidence: Vec<String> = cells.iter().map(|c| c.record.cell.clone()).collect();
    evidence.dedup();
    Finding {
        device: None,
        id: format!("devices-{program}-{group}"),
        topic: "Devices side by side",
        figure: "fig8",
        sentence,
        evidence,
    }
}

/// How much longer than the fastest.
fn behind(fastest: Cell<'_>, cell: Cell<'_>) -> String {
    let time = |c: Cell<'_>| c.sample(Quantity::OneWay).map(|s| s.median);
    if fastest.record.device == cell.record.device {
        return String::new();
    }
    match (compare(fastest, cell), time(fastest), time(cell)) {
        (Some(Verdict::Tie), ..) => "; alike within the noise".to_owned(),
        (_, Some(least), Some(time)) => format!("; {} the time", format::factor(time / least)),
        _ => String::new(),
    }
}

/// What the comparison does not say.
fn caution(cells: &[Cell<'_>]) -> String {
    let is_software = |cell: &Cell<'_>| match cell.record.device.kind {
        DeviceKind::Soft => true,
        DeviceKind::Verbs => {
            let driver = cell.record.provenance.active.device.get("driver");
            driver.is_some_and(|driver| driver.contains("rxe") || driver.contains("siw"))
        }
        DeviceKind::Model => false,
    };
    let machines: BTreeSet<(&str, &str)> = cells
        .iter()
        .map(|cell| &cell.record.provenance.active)
        .map(|site| (site.host.as_str(), site.cpu.as_str()))
        .collect();
    let mut caution = String::new();
    if machines.len() > 1 {
        let names: Vec<String> = machines
            .iter()
            .map(|(host, _)| (*host).to_owned())
            .collect();
        caution += &format!(
            " They were measured on different machines ({}), which differ, too.",
            format::and(&names)
        );
    }
    if cells.iter().all(is_software) {
        caution += " All of it is software: this is what the ways to move a message cost this machine’s CPUs, \
                    and says nothing of InfiniBand against RoCE in hardware.";
    }
    caution
}
