//! `adverb nodes`: memory between NUMA nodes.

use std::io::Write;

use adverb_host::{memory_times, nodes, usable_cores, usual_arrays};
use adverb_patterns::Nodes;
use adverb_units::{Bytes, Span, Throughput};
use adverb_verbs::MemoryTimes;
use serde_json::Value;

use crate::args::{Format, NodesArgs};
use crate::{table, terminal};

/// `adverb nodes`.
pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<()> {
    let (arrays, usable) = (usual_arrays(), usable_cores());
    let mut out = terminal::stdout();
    if args.format == Format::Text {
        writeln!(
            out,
            "L3: an array of {}; memory: of {}",
            arrays.cached, arrays.large
        )?;
        writeln!(
            out,
            "{:>7} {:>9} {:>9} {:>9} {:>10} {:>9}",
            "CPU of", "memory of", "L3", "memory", "read", "line"
        )?;
    }
    for cpus in nodes() {
        for memory in nodes() {
            let times = memory_times((cpus, memory), arrays, &usable)?;
            match args.format {
                Format::Text => writeln!(out, "{}", row((cpus, memory), times))?,
                Format::Json => writeln!(out, "{}", object((cpus, memory), times)?)?,
            }
        }
    }
    if args.format == Format::Text && nodes().len() == 1 {
        writeln!(out, "This machine has one NUMA node.")?;
    }
    Ok(())
}

/// Returns the object of `--json`: parameters and metrics of the program.
fn object(nodes: (u32, u32), times: MemoryTimes) -> anyhow::Result<Value> {
    let parts = [
        Nodes::new(nodes.0, nodes.1).parameters(),
        serde_json::to_value(times)?,
    ];
    let parts = parts.iter().filter_map(Value::as_object).flatten();
    Ok(parts
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect())
}

fn row((cpus, memory): (u32, u32), times: MemoryTimes) -> String {
    let read = Throughput::over(
        Bytes::new(times.read_bytes_per_s as u64),
        Span::from_secs(1),
    );
    let read = read.map_or_else(String::new, |rate| rate.to_string());
    let line = times.line_ns.map_or_else(|| "-".to_owned(), table::ns);
    format!(
        "{cpus:>7} {memory:>9} {:>9} {:>9} {read:>10} {line:>9}",
        table::ns(times.cached_ns),
        table::ns(times.memory_ns)
    )
}
