//! `adverb model calibrate`: writes a preset with this host's CPU and memory.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;

use adverb_host::{
    CpuTimes, Machine, Socket, cpu_times, memory_times, nodes, now_rfc3339, usable_cores,
    usual_arrays,
};
use adverb_launch::{Hardware, PresetChoice, Usage};
use adverb_verbs::MemoryTimes;
use anyhow::Context;

use crate::args::CalibrateArgs;
use crate::terminal;

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<()> {
    let nic = Hardware::load(&PresetChoice::BuiltIn(args.nic.clone()))
        .map_err(|error| Usage(format!("--nic: {error}")))?;
    if !nic.is_nic() {
        let name = &args.nic;
        return Err(Usage(format!("--nic: {name} is a bare PCIe device, not a NIC")).into());
    }
    terminal::say("measuring this host: about 10 s; other programs make the figures worse");
    let rounds = (0..ROUNDS)
        .map(|_| round())
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut values = values(&nic, &rounds, Socket::first());
    let mut notes = unsteady(&values);
    notes.extend(leave_out_implausible(&mut values, &nic));
    notes.iter().for_each(|note| terminal::warn(note));
    let text = preset(&nic, &values, &notes);
    match &args.out {
        None => write!(terminal::stdout(), "{text}")?,
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
            terminal::say(&format!("written: {}", file.display()));
        }
    }
    Ok(())
}

/// Number of rounds. The fastest counts, because other work on the machine only adds time; rounds apart from each
/// other are not all disturbed by the same work.
const ROUNDS: usize = 5;
/// A warning names values whose slowest round took more than this many times as long as the fastest.
const STEADY: f64 = 1.5;

/// What a round measures.
type Round = (CpuTimes, MemoryTimes);

fn round() -> anyhow::Result<Round> {
    let node = nodes()[0];
    let cpu = cpu_times().context("cannot measure this host's CPU")?;
    let memory = memory_times((node, node), usual_arrays(), &usable_cores())?;
    Ok((cpu, memory))
}

/// A parameter, and its value in a round, if it has one.
type Time = (&'static str, fn(&Round) -> Option<f64>);

/// The times that are measured.
const MEASURED: [Time; 8] = [
    ("cpu.atomic_ns", |(cpu, _)| Some(cpu.atomic.as_ns_f64())),
    ("cpu.wake_ns", |(cpu, _)| Some(cpu.wake?.as_ns_f64())),
    ("cpu.syscall_ns", |(cpu, _)| Some(cpu.syscall.as_ns_f64())),
    ("cpu.clock_ns", |(cpu, _)| Some(cpu.clock.as_ns_f64())),
    ("memory.llc_ns", |(_, memory)| Some(memory.cached_ns)),
    ("memory.dram_ns", |(_, memory)| Some(memory.memory_ns)),
    ("memory.line_transfer_ns", |(_, memory)| memory.line_ns),
    ("tcp.copy_byte_ns", |(cpu, _)| Some(cpu.copy_byte_ns)),
];

/// A parameter, its value, and where that is from.
type Value = (&'static str, f64, Source);

/// The parameters that were measured or reported, in the order of the preset's groups.
fn values(nic: &Hardware, rounds: &[Round], socket: Socket) -> Vec<Value> {
    use Source::{Measured, Reported, Scaled};
    let mut values = Vec::new();
    let mut add = |path, value: Option<f64>, source| {
        values.extend(value.map(|value| (path, value, source)));
    };
    add("cpu.cores", socket.cores.map(f64::from), Reported);
    let threads = socket.threads_per_core.map(f64::from);
    add("cpu.threads_per_core", threads, Reported);
    // Without hyper-threads nothing is gained by them.
    let gain = (socket.threads_per_core == Some(1)).then_some(1.0);
    add("cpu.smt_gain", gain, Reported);
    let base = &nic.preset.params.cpu;
    for (path, of) in MEASURED {
        let times: Vec<f64> = rounds.iter().filter_map(of).collect();
        let fastest = times.iter().copied().reduce(f64::min);
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let rounds = times.len();
        add(path, fastest, Measured { slowest, rounds });
        if let ("cpu.wake_ns", Some(wake)) = (path, fastest) {
            let share = wake / base.wake_ns.as_ns_f64();
            for (path, part) in [
                ("cpu.wake_cpu_ns", base.wake_cpu_ns),
                ("cpu.wake_user_ns", base.wake_user_ns),
            ] {
                add(path, Some(part.as_ns_f64() * share), Scaled);
            }
        }
    }
    let mib = |cache: adverb_units::Bytes| cache.get() as f64 / f64::from(1 << 20);
    add("memory.llc_mib", socket.cache.map(mib), Reported);
    add(
        "memory.llc_ways",
        socket.cache_ways.map(f64::from),
        Reported,
    );
    // A table of the file has one heading.
    values.sort_by_key(|(path, ..)| GROUPS.iter().position(|group| path.starts_with(group)));
    values
}

/// Tables of the preset, in its order.
const GROUPS: [&str; 3] = ["cpu.", "memory.", "tcp."];

/// Returns a note for each value whose rounds differ much.
fn unsteady(values: &[Value]) -> Vec<String> {
    let differs = |(path, fastest, source): &Value| match source {
        Source::Measured { slowest, rounds } if *slowest > fastest * STEADY => Some(format!(
            "{path}: between {} and {} in {rounds} rounds; the fastest counts: other work disturbs this machine",
            digits(*fastest),
            digits(*slowest)
        )),
        _ => None,
    };
    values.iter().filter_map(differs).collect()
}

/// Pairs of measured values, and why the first cannot exceed the second. The first is left out if it does.
const LIMITS: [(&str, &str, &str); 3] = [
    (
        "memory.line_transfer_ns",
        "memory.dram_ns",
        "a line that another core has is nearer than memory",
    ),
    (
        "memory.llc_ns",
        "memory.dram_ns",
        "a load from memory misses the last-level cache first",
    ),
    (
        "memory.llc_ns",
        "memory.line_transfer_ns",
        "a line that another core has is not nearer than the last-level cache, of which other work or virtual machines \
         use a part",
    ),
];

/// Removes measured values that others contradict: the preset keeps the values that it extends. Returns a note for each.
fn leave_out_implausible(values: &mut Vec<Value>, nic: &Hardware) -> Vec<String> {
    let mut notes = Vec::new();
    for (lesser, greater, because) in LIMITS {
        let value = |path| {
            values
                .iter()
                .find(|(own, ..)| *own == path)
                .map(|own| own.1)
        };
        let (Some(is), Some(limit)) = (value(lesser), value(greater)) else {
            continue;
        };
        if is > limit {
            values.retain(|(path, ..)| *path != lesser);
            let (is, limit) = (digits(is), digits(limit));
            notes.push(format!(
                "{lesser}: measured {is}, more than {greater} = {limit}, but {because}: the preset keeps the value of {}",
                nic.name
            ));
        }
    }
    notes
}

/// Rounds to four digits, which are more than the measurement is worth.
fn digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number")
}

/// Where a value is from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Measured on this host: the fastest of several rounds.
    Measured { slowest: f64, rounds: usize },
    /// Reported by its kernel.
    Reported,
    /// The NIC preset's value, multiplied as `cpu.wake_ns` is.
    Scaled,
}

/// The text of the preset.
fn preset(nic: &Hardware, values: &[Value], notes: &[String]) -> String {
    let Machine { host, cpu, .. } = Machine::this();
    let version = env!("CARGO_PKG_VERSION");
    // The extended preset's summary names its CPU.
    let what = format!(
        "NIC, PCIe and link of {}, CPU and memory of {host} ({cpu})",
        nic.name
    );
    let at = now_rfc3339();
    // Strings of JSON are strings of TOML.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "# Written by adverb model calibrate {version} on {host}, {at}.\nname = {}\nsummary = {}\nextends = {}\n",
        quoted(&format!("{}_{host}", nic.name)),
        quoted(&what),
        quoted(&nic.name),
    );
    for note in notes {
        writeln!(text, "# {note}").expect("a string grows");
    }
    let mut group = "";
    for (path, value, source) in values {
        let (of, name) = path.split_once('.').expect("a group and a name");
        if of != group {
            group = of;
            write!(text, "\n[{group}]\n").expect("a string grows");
        }
        let source = match source {
            Source::Measured { slowest, rounds } => format!(
                "measured on {host}, {at}: the fastest of {rounds} rounds, the slowest {}",
                digits(*slowest)
            ),
            Source::Reported => format!("reported by the kernel of {host}"),
            Source::Scaled => {
                "mechanism estimate: its share of wake_ns in the extended preset".into()
            }
        };
        let value = digits(*value);
        let source = quoted(&source);
        writeln!(text, "{name} = {{ value = {value}, source = {source} }}")
            .expect("a string grows");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_units::{Bytes, Span};

    #[test]
    fn the_preset_has_the_measured_values_and_the_rest_of_the_nic() {
        let nic = Hardware::load(&PresetChoice::BuiltIn("cx5".into())).unwrap();
        let cpu = CpuTimes {
            clock: Span::from_ns(31),
            atomic: Span::from_ns(6),
            syscall: Span::from_ns(210),
            wake: Some(Span::from_ns(1370)),
            copy_byte_ns: 0.123_456,
        };
        let memory = MemoryTimes {
            arrays: usual_arrays(),
            cached_ns: 20.04,
            memory_ns: 101.0,
            read_bytes_per_s: 1e10,
            line_ns: None,
        };
        let socket = Socket {
            cores: Some(32),
            threads_per_core: Some(1),
            cache: Some(Bytes::mib(36)),
            cache_ways: None,
        };
        let text = preset(&nic, &values(&nic, &[(cpu, memory)], socket), &[]);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let made = Hardware::load(&PresetChoice::file(file.path())).unwrap();
        let (made, nic) = (made.preset, nic.preset);
        assert_eq!(made.params.cpu.cores, 32);
        assert_eq!(made.params.cpu.wake_ns, Span::from_ns(1370));
        assert_eq!(made.params.cpu.wake_cpu_ns * 2, nic.params.cpu.wake_cpu_ns);
        assert_eq!(made.params.memory.llc_mib, 36.0);
        assert_eq!(made.params.tcp.copy_byte_ns, 0.1235);
        assert_eq!(
            made.params.memory.line_transfer_ns,
            nic.params.memory.line_transfer_ns
        );
        assert_eq!(made.params.nic, nic.params.nic);
        let source = made.source("memory.dram_ns").unwrap();
        assert!(source.starts_with("measured on "), "{source}");
        assert!(made.source("memory.llc_ways") == nic.source("memory.llc_ways"));
    }

    /// Returns what is written after rounds with these latencies of cache, memory and line, and the notes.
    fn calibrated(rounds: &[[f64; 3]]) -> (String, Vec<String>) {
        let nic = Hardware::load(&PresetChoice::BuiltIn("cx6dx".into())).unwrap();
        let round = |[cached_ns, memory_ns, line]: &[f64; 3]| {
            let cpu = CpuTimes {
                clock: Span::from_ns(31),
                atomic: Span::from_ns(6),
                syscall: Span::from_ns(210),
                wake: None,
                copy_byte_ns: 0.1,
            };
            let memory = MemoryTimes {
                arrays: usual_arrays(),
                cached_ns: *cached_ns,
                memory_ns: *memory_ns,
                read_bytes_per_s: 1e10,
                line_ns: Some(*line),
            };
            (cpu, memory)
        };
        let rounds: Vec<Round> = rounds.iter().map(round).collect();
        let mut values = values(&nic, &rounds, Socket::default());
        let mut notes = unsteady(&values);
        notes.extend(leave_out_implausible(&mut values, &nic));
        (preset(&nic, &values, &notes), notes)
    }

    #[test]
    fn the_fastest_round_counts_and_the_spread_is_named() {
        let (text, notes) = calibrated(&[[30.0, 95.0, 524.0], [31.0, 90.0, 40.0]]);
        assert!(text.contains("line_transfer_ns = { value = 40, source = \"measured on "));
        assert!(
            text.contains("the fastest of 2 rounds, the slowest 524\""),
            "{text}"
        );
        let named = "memory.line_transfer_ns: between 40 and 524 in 2 rounds";
        assert!(notes.len() == 1 && notes[0].starts_with(named), "{notes:?}");
    }

    #[test]
    fn latencies_that_contradict_each_other_are_left_to_the_extended_preset() {
        for (measured, out, limit) in [
            (
                [30.0, 219.0, 524.0],
                "memory.line_transfer_ns",
                "memory.dram_ns",
            ),
            ([224.0, 219.0, 40.0], "memory.llc_ns", "memory.dram_ns"),
            (
                [180.0, 219.0, 40.0],
                "memory.llc_ns",
                "memory.line_transfer_ns",
            ),
        ] {
            let (text, notes) = calibrated(&[measured]);
            let [note] = &notes[..] else {
                panic!("{notes:?}")
            };
            assert!(note.starts_with(&format!("{out}: measured ")), "{note}");
            assert!(note.contains(&format!("more than {limit} = ")), "{note}");
            assert!(
                note.ends_with("the preset keeps the value of cx6dx"),
                "{note}"
            );
            let (_, name) = out.split_once('.').unwrap();
            assert!(!text.contains(&format!("\n{name} = ")), "{text}");
        }
    }

    #[test]
    fn the_summary_does_not_name_the_cpu_of_the_extended_preset() {
        let (text, _) = calibrated(&[[30.0, 95.0, 40.0]]);
        assert!(!text.contains("Xeon Platinum 8380"), "{text}");
        assert!(text.contains("summary = \"NIC, PCIe and link of cx6dx, CPU and memory of "));
    }
}
