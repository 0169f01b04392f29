//! `adverb sync`: CPU's and NIC's atomics on one word.

use std::io::Write;

use adverb_launch::{DeviceChoice, DeviceInfo, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{Job, LocalUpdates, SharedWord};
use adverb_results::{DeviceKind, Record, Word};
use adverb_verbs::AtomicCap;

use super::check::check_duration;
use super::result::{Column, Rows, plain, rate};
use super::start::{Setting, measure_as, schedule_on};
use super::words::counted;
use crate::args::{Format, SyncArgs};
use crate::table::ns;
use crate::terminal;

/// `adverb sync`.
pub(crate) fn sync(points: &[SyncArgs]) -> anyhow::Result<()> {
    let args = &points[0];
    let device = args.on.device.choice();
    if let DeviceChoice::Tcp(_) = device {
        let reason = format!("{device}: TCP has no atomic operations; name an RDMA device");
        return Err(Usage(reason).into());
    }
    let atomics = DeviceInfo::query(&device)?.caps.atomics;
    if atomics == AtomicCap::None {
        return Err(Usage(format!(
            "{device} has no atomic operations (IBV_ATOMIC_NONE): update shared words by RPC (adverb sequencer)"
        ))
        .into());
    }
    points
        .iter()
        .try_for_each(|args| check_duration(&args.runs))?;
    let setting = Setting {
        keeps_duration: args.runs.duration.is_some(),
        ..Setting::new(&args.on, args.runs.repetitions)
    };
    let cells = points
        .iter()
        .flat_map(|args| ways(args).iter().map(|local| cell(args, *local)));
    let records = measure_as(cells, &setting, rows)?.records;
    if args.on.format == Format::Text && args.on.place.peer.is_empty() {
        let mut out = terminal::stdout();
        writeln!(out, "{}", terminal::wrapped(&promise(&device, atomics)))?;
        let mut rest = &records[..];
        for args in points {
            let (own, others) = rest.split_at(ways(args).len());
            rest = others;
            let point = match points {
                [_] => String::new(),
                _ => format!("With {}: ", described(args)),
            };
            if let Some(found) = advice(own, atomics) {
                writeln!(out, "{}", terminal::wrapped(&(point + &found)))?;
            }
        }
    }
    Ok(())
}

/// Returns the kinds of local updates that a point measures.
fn ways(args: &SyncArgs) -> &[LocalUpdates] {
    match &args.local {
        Some(one) => std::slice::from_ref(one),
        None => &LocalUpdates::ALL,
    }
}

fn described(args: &SyncArgs) -> String {
    format!(
        "{} with {} outstanding, {} of the word's machine",
        counted(args.clients, "client"),
        args.outstanding,
        counted(args.threads, "thread"),
    )
}

fn cell(args: &SyncArgs, local: LocalUpdates) -> Result<JobCell, Usage> {
    let program = SharedWord {
        local,
        threads: args.threads,
        clients: args.clients,
        outstanding: args.outstanding,
        path: args.on.path.options()?,
    };
    let title = format!("{} ({})", described(args), local.word());
    let schedule = schedule_on(&args.runs, &args.on.device);
    let job = Job::Pattern(program.pattern(), schedule);
    Ok(JobCell::new("sync", &program.parameters(), title, job))
}

/// Returns what the device promises.
fn promise(device: &DeviceChoice, atomics: AtomicCap) -> String {
    if let DeviceChoice::Model(_) = device {
        return format!(
            "{device} executes atomics within the NIC (IBV_ATOMIC_HCA); no published value says what this adapter reports (ibv_devinfo -v). If it is that, the CPU should update a shared word by loopback, too."
        );
    }
    match atomics {
        AtomicCap::System => format!(
            "{device} reports IBV_ATOMIC_GLOB: its atomics and the CPU's may update the same word."
        ),
        AtomicCap::Device | AtomicCap::None => format!(
            "{device} reports IBV_ATOMIC_HCA: its atomics are atomic among each other only, so the CPU should update a shared word by loopback, too."
        ),
    }
}

/// Returns what was measured, and what to do.
fn advice(records: &[Record], atomics: AtomicCap) -> Option<String> {
    let of = |local: LocalUpdates| {
        let is_it = |record: &&Record| {
            record.params.get("local").and_then(|word| word.as_str()) == Some(local.word())
        };
        records.iter().find(is_it)
    };
    let each = |local| of(local)?.metric("word.local.each_ns");
    let price = || {
        let (cpu, loopback) = (each(LocalUpdates::Cpu), each(LocalUpdates::Loopback)?);
        let shown = ns(loopback);
        Some(match cpu {
            Some(cpu) => format!("{shown} by loopback instead of {} by the CPU", ns(cpu)),
            None => format!("{shown} by loopback"),
        })
    };
    let price = price().map_or_else(String::new, |price| format!(" An update costs {price}."));
    let mixed = of(LocalUpdates::Cpu)?;
    if mixed.device.kind == DeviceKind::Model {
        return Some(format!(
            "This model cannot tell how many updates mixing loses: it counts only the NIC's.{price}"
        ));
    }
    let (lost, updates) = (mixed.metric("word.lost")?, mixed.metric("word.updates")?);
    let found = match lost {
        0.0 => format!("No update of {updates} by CPU and NIC was lost"),
        lost => format!("{lost} of {updates} updates by CPU and NIC were lost"),
    };
    let then = match (lost > 0.0, atomics) {
        (true, _) => ": update the word by loopback.",
        (false, AtomicCap::System) => ": the CPU may update the word itself.",
        (false, _) => " here, which this device does not promise.",
    };
    Some(format!("{found}{then}{price}"))
}

/// A row for each kind of local updates.
fn rows(title: String) -> Rows {
    Rows {
        title,
        columns: &COLUMNS,
        width: 10,
        remark: |_| None,
    }
}

const COLUMNS: [Column; 6] = [
    Column("updates", "word.updates", plain),
    Column("remote", "word.remote.updates_per_s", rate),
    Column("each", "word.remote.each_ns", ns),
    Column("local", "word.local.updates_per_s", rate),
    Column("each", "word.local.each_ns", ns),
    Column("lost", "word.lost", plain),
];
