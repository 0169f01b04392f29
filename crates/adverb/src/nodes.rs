//! `adverb nodes`: memory between NUMA nodes.

use std::io::Write;

use adverb_host::{Arrays, MemoryTimes, memory_times, nodes};
use adverb_units::{Bytes, Span, Throughput};
use serde_json::json;

use crate::args::{Format, NodesArgs};
use crate::{table, terminal};

/// `adverb nodes`.
pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<()> {
    let arrays = Arrays::of_this_machine();
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
            let times = memory_times((cpus, memory), arrays)?;
            match args.format {
                Format::Text => writeln!(out, "{}", row((cpus, memory), times))?,
                Format::Json => writeln!(
                    out,
                    "{}",
                    json!({
                        "cpu_node": cpus, "memory_node": memory,
                        "cached_bytes": arrays.cached, "large_bytes": arrays.large,
                        "cached_ns": times.cached_ns, "memory_ns": times.large_ns,
                        "read_bytes_per_s": times.read_bytes_per_s, "line_ns": times.line_ns,
                    })
                )?,
            }
        }
    }
    if args.format == Format::Text && nodes().len() == 1 {
        writeln!(out, "This machine has one NUMA node.")?;
    }
    Ok(())
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
        table::ns(times.large_ns)
    )
}
