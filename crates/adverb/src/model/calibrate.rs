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
    let node = nodes()[0];
    let cpu = cpu_times().context("cannot measure this host's CPU")?;
    let memory = memory_times((node, node), usual_arrays(), &usable_cores())?;
    let text = preset(&nic, &values(&nic, (cpu, memory), Socket::first()));
    match &args.out {
        None => write!(terminal::stdout(), "{text}")?,
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
            terminal::say(&format!("written: {}", file.display()));
        }
    }
    Ok(())
}

/// The parameters that were measured or reported, in the order of the preset's groups.
fn values(
    nic: &Hardware,
    (cpu, memory): (CpuTimes, MemoryTimes),
    socket: Socket,
) -> Vec<(&'static str, f64, Source)> {
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
    add("cpu.atomic_ns", Some(cpu.atomic.as_ns_f64()), Measured);
    if let Some(wake) = cpu.wake {
        let base = &nic.preset.params.cpu;
        let share = wake.as_ns_f64() / base.wake_ns.as_ns_f64();
        add("cpu.wake_ns", Some(wake.as_ns_f64()), Measured);
        for (path, part) in [
            ("cpu.wake_cpu_ns", base.wake_cpu_ns),
            ("cpu.wake_user_ns", base.wake_user_ns),
        ] {
            add(path, Some(part.as_ns_f64() * share), Scaled);
        }
    }
    add("cpu.syscall_ns", Some(cpu.syscall.as_ns_f64()), Measured);
    add("cpu.clock_ns", Some(cpu.clock.as_ns_f64()), Measured);
    add("memory.llc_ns", Some(memory.cached_ns), Measured);
    add("memory.dram_ns", Some(memory.memory_ns), Measured);
    add("memory.line_transfer_ns", memory.line_ns, Measured);
    let mib = |cache: adverb_units::Bytes| cache.get() as f64 / f64::from(1 << 20);
    add("memory.llc_mib", socket.cache.map(mib), Reported);
    add(
        "memory.llc_ways",
        socket.cache_ways.map(f64::from),
        Reported,
    );
    add("tcp.copy_byte_ns", Some(cpu.copy_byte_ns), Measured);
    values
}

/// Where a value is from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Measured on this host.
    Measured,
    /// Reported by its kernel.
    Reported,
    /// The NIC preset's value, multiplied as `cpu.wake_ns` is.
    Scaled,
}

/// The text of the preset.
fn preset(nic: &Hardware, values: &[(&str, f64, Source)]) -> String {
    let Machine { host, cpu, .. } = Machine::this();
    let version = env!("CARGO_PKG_VERSION");
    let what = format!("{}, on a host as {host} ({cpu})", nic.preset.summary);
    let at = now_rfc3339();
    // Strings of JSON are strings of TOML.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "# Written by adverb model calibrate {version} on {host}, {at}.\nname = {}\nsummary = {}\nextends = {}\n",
        quoted(&format!("{}_{host}", nic.name)),
        quoted(&what),
        quoted(&nic.name),
    );
    let mut group = "";
    for (path, value, source) in values {
        let (of, name) = path.split_once('.').expect("a group and a name");
        if of != group {
            group = of;
            write!(text, "\n[{group}]\n").expect("a string grows");
        }
        let source = match source {
            Source::Measured => format!("measured on {host}, {at}"),
            Source::Reported => format!("reported by the kernel of {host}"),
            Source::Scaled => {
                "mechanism estimate: its share of wake_ns in the extended preset".into()
            }
        };
        // Four digits are more than the measurement is worth.
        let value: f64 = format!("{value:.3e}").parse().expect("a number");
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
        let text = preset(&nic, &values(&nic, (cpu, memory), socket));
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
}
