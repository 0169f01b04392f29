//! `adverb place`: on which NUMA node the memory should be that peers access.

mod advice;
mod report;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use adverb_host::{Mapping, Resident, Topology};
use adverb_ibverbs::VerbsContext;
use adverb_launch::{DeviceChoice, DeviceInfo, Interrupt, Usage};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Context as _, Counters, Device as _, NodeChoice};
use anyhow::{Context as _, anyhow};
use serde_json::json;

use crate::args::{Format, PlacementArgs};
use crate::terminal;
use advice::{Advice, Model, Steady, Threads};
use report::{Found, report_moved, report_waiting};

/// Duration of counting the requests of peers without `--watch`.
const COUNTED: Span = Span::from_secs(1);

/// `adverb place`.
pub(crate) fn run(args: &PlacementArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let is_here = args.root == Path::new("/");
    if args.moves && !is_here {
        let reason =
            "--move: the processes below --root are not running here; leave one of them out";
        return Err(Usage(reason.to_owned()).into());
    }
    let size = args.size.get();
    if !(1..=1 << 20).contains(&size) {
        let reason = format!("--size {}: expected 1 B to 1 MiB", args.size);
        return Err(Usage(reason).into());
    }
    let topology = Topology::below(&args.root);
    let pid = args.pid;
    let Some(process) = Resident::below(&args.root, pid) else {
        anyhow::bail!("there is no process {pid}");
    };
    if topology.0.len() == 1 {
        say_nothing_to_choose(args, &process, &topology)?;
        return Ok(());
    }
    let nic = nic_node(args, &topology)?;
    let mut model = Model::new(args)?;
    let mut requests = Requests::of(args.device.as_ref())?;
    let mut steady = Steady::default();
    let mut last = String::new();
    if requests.device.is_some() && interrupt.within(COUNTED.into()) {
        return Ok(());
    }
    loop {
        let counted = requests.reads();
        let reads = args.reads.or(counted).unwrap_or(0.5);
        let sample = match sample(args, &process, &topology) {
            Err(_) if !process.is_running() => return say_ended(args),
            sample => sample?,
        };
        let mut predict = |node| model.predict(node, (reads, &sample), nic, &interrupt);
        let advice = Advice {
            nic,
            other: topology.0.keys().copied().find(|node| *node != nic),
            near: predict(NodeChoice::Nic)?,
            far: predict(NodeChoice::Other)?,
            outstanding: args.clients * args.outstanding,
            accesses: args.accesses,
            least_gain: f64::from(args.gain) / 100.0,
        };
        let found = Found {
            args,
            sample: &sample,
            advice: &advice,
            reads: (reads, args.reads.is_none() && counted.is_some()),
        };
        found.print(&process, &mut last)?;
        let wanted = advice.wanted(&sample);
        let due = steady.after(wanted, args.watch.is_some());
        if args.moves && wanted.is_some() && due.is_none() {
            report_waiting(args, steady.missing())?;
        }
        if let Some(node) = due.filter(|_| args.moves) {
            let moved = process.move_to(&sample.mappings, node).with_context(|| {
                format!("cannot move pages of process {pid} to node {node}; run as its user or with CAP_SYS_NICE, and allow the node in its cpuset")
            })?;
            report_moved(args, moved, node)?;
        }
        let Some(watch) = args.watch else {
            return Ok(());
        };
        if interrupt.within(watch.into()) {
            return Ok(());
        }
        if !process.is_running() {
            return say_ended(args);
        }
    }
}

/// Says that the program has ended, which is the regular end of `--watch`.
fn say_ended(args: &PlacementArgs) -> anyhow::Result<()> {
    let text = format!("process {} has ended", args.pid);
    if args.watch.is_none() {
        anyhow::bail!(text);
    }
    terminal::say(&text);
    Ok(())
}

/// Says that a machine with one node has nothing to choose.
fn say_nothing_to_choose(
    args: &PlacementArgs,
    process: &Resident,
    topology: &Topology,
) -> io::Result<()> {
    let node = topology.0.keys().next().copied().unwrap_or_default();
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        return writeln!(
            out,
            "{}",
            json!({ "pid": args.pid, "nodes": [node], "node": null })
        );
    }
    let text = format!(
        "This machine has one NUMA node ({node}): all memory of process {} ({}) is there, and there is nothing to choose.",
        args.pid,
        process.name()
    );
    writeln!(out, "{}", terminal::wrapped(&text))
}

/// Returns the node of the NIC: as typed, or of the device.
fn nic_node(args: &PlacementArgs, topology: &Topology) -> anyhow::Result<u32> {
    let of_device = match &args.device {
        Some(device) => DeviceInfo::query(device)?.numa_node,
        None => None,
    };
    let names: Vec<String> = topology.0.keys().map(u32::to_string).collect();
    match args.nic_node.or(of_device) {
        Some(node) if topology.0.contains_key(&node) => Ok(node),
        Some(node) => Err(Usage(format!(
            "--nic-node {node}: the machine has nodes {}",
            names.join(", ")
        ))
        .into()),
        None => Err(Usage(format!(
            "the NIC's node is not known: name it with --nic-node ({}), or the NIC with --device verbs:NAME",
            names.join(", ")
        ))
        .into()),
    }
}

/// The requests of peers that a device counts.
struct Requests {
    device: Option<VerbsContext>,
    last: Counters,
}

impl Requests {
    /// Starts counting, if there is a device that counts.
    fn of(device: Option<&DeviceChoice>) -> anyhow::Result<Self> {
        let device = match device {
            Some(DeviceChoice::Verbs(device)) => Some(device.open()?),
            _ => None,
        };
        let last = device.as_ref().map(VerbsContext::counters);
        let last = last.unwrap_or_default();
        Ok(Requests {
            device: device.filter(|_| last.contains_key(READS) && last.contains_key(WRITES)),
            last,
        })
    }

    /// Returns the share of READs since the last call; `None` if there were no requests, or they are not counted.
    fn reads(&mut self) -> Option<f64> {
        let now = self.device.as_ref()?.counters();
        let before = std::mem::replace(&mut self.last, now);
        reads_among(&before, &self.last)
    }
}

/// Counters of the requests that a device has executed for its peers.
const READS: &str = "rx_read_requests";
const WRITES: &str = "rx_write_requests";

/// Returns the share of READs between two readings of the counters; `None` without requests.
fn reads_among(before: &Counters, after: &Counters) -> Option<f64> {
    let grown = |name| Some(after.get(name)?.saturating_sub(*before.get(name)?) as f64);
    let (reads, writes) = (grown(READS)?, grown(WRITES)?);
    (reads + writes > 0.0).then(|| reads / (reads + writes))
}

/// Where the memory and the threads of a process are.
struct Sample {
    mappings: Vec<Mapping>,
    /// Bytes on each node.
    memory: BTreeMap<u32, u64>,
    threads: BTreeMap<u32, u32>,
}

fn sample(args: &PlacementArgs, process: &Resident, topology: &Topology) -> anyhow::Result<Sample> {
    let mut mappings = process.mappings().map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::PermissionDenied => "; run as its user or with CAP_SYS_PTRACE",
            _ => "",
        };
        let pid = args.pid;
        anyhow!("cannot read where the memory of process {pid} is (numa_maps): {error}{remedy}")
    })?;
    mappings.retain(|mapping| match &args.mapping {
        Some(text) => mapping.name.contains(text.as_str()),
        None => mapping.is_written && mapping.name != "stack",
    });
    let mut memory: BTreeMap<u32, u64> = topology.0.keys().map(|node| (*node, 0)).collect();
    for mapping in &mappings {
        for (node, pages) in &mapping.pages {
            *memory.entry(*node).or_default() += pages * mapping.page;
        }
    }
    if memory.values().all(|bytes| *bytes == 0) {
        let what = match &args.mapping {
            Some(text) => format!("no memory in mappings whose name contains '{text}'"),
            None => "no memory that it has written".to_owned(),
        };
        anyhow::bail!("process {} has {what}", args.pid);
    }
    Ok(Sample {
        mappings,
        memory,
        threads: process.threads(topology),
    })
}

impl Sample {
    fn bytes(&self) -> Bytes {
        Bytes::new(self.memory.values().sum())
    }

    fn threads_by_nic(&self, nic: u32) -> Threads {
        let on = |is_nic| {
            let nodes = self.threads.iter();
            let found = nodes.filter(|(node, _)| (**node == nic) == is_nic);
            found.map(|(_, n)| n).sum()
        };
        [(NodeChoice::Nic, on(true)), (NodeChoice::Other, on(false))]
    }

    /// Returns the node with the largest part of the memory, and its share.
    fn home(&self) -> (u32, f64) {
        let all = self.bytes().get().max(1) as f64;
        let most = self.memory.iter().max_by_key(|(_, bytes)| **bytes);
        most.map_or((0, 0.0), |(node, bytes)| (*node, *bytes as f64 / all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_reads_is_counted_between_two_readings() {
        let counters = |reads, writes| {
            Counters::from([(READS.to_owned(), reads), (WRITES.to_owned(), writes)])
        };
        assert_eq!(reads_among(&counters(5, 5), &counters(35, 15)), Some(0.75));
        assert_eq!(reads_among(&counters(5, 5), &counters(5, 5)), None);
        assert_eq!(reads_among(&Counters::new(), &counters(5, 5)), None);
    }
}
