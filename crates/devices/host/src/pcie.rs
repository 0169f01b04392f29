//! Bytes over PCIe, counted by the processor's root ports.
//!
//! Intel's Xeon processors from Skylake on have counters that always run in each stack of root ports (IIO). The kernel
//! names them `uncore_iio_free_running_N` and describes each in sysfs: its event, and the bytes of one count. They
//! count all devices behind a port. `bw_in` are bytes from the devices (what they write, and their answers to reads of
//! the CPU), `bw_out` bytes to the devices (the answers to what they read, and writes of the CPU); some processors have
//! `bw_in` only. The kernel gives them to root and to processes with `CAP_PERFMON`.

use std::fs::{read_dir, read_to_string};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use adverb_units::Time;
use adverb_verbs::NotCounted;

use crate::clock;
use crate::numa::list;
use crate::perf::{Counter, Scope};

/// Counting units of the kernel.
const UNITS: &str = "/sys/bus/event_source/devices";
/// The units' names begin with this, and their events' names with these: from and to the devices.
const STACKS: &str = "uncore_iio_free_running";
const EVENTS: [&str; 2] = ["bw_in_port", "bw_out_port"];
/// Bytes of what an event's `unit` in sysfs names.
const MIB: (&str, f64) = ("MiB", 1024.0 * 1024.0);
/// Time between two readings of a log: short compared with a measured time, and long compared with a reading, which takes a
/// system call for each counter.
const EVERY: Duration = Duration::from_millis(20);

/// Bytes over PCIe of all devices of this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PcieBytes {
    /// From the devices.
    pub from_devices: Option<f64>,
    /// To the devices.
    pub to_devices: Option<f64>,
}

/// A counter, and the bytes of one count.
#[derive(Debug)]
struct Port {
    counter: Counter,
    bytes: f64,
}

/// The counters of all root ports: from the devices, and to them. A direction that the processor does not count has none.
#[derive(Debug)]
pub struct PcieCounters([Vec<Port>; 2]);

impl PcieCounters {
    /// Begins to count.
    ///
    /// # Errors
    /// The processor or its kernel has no such counters, or the kernel refuses them.
    pub fn open() -> Result<Self, NotCounted> {
        Self::of(Path::new(UNITS), STACKS, EVENTS)
    }

    fn of(units: &Path, name: &str, events: [&str; 2]) -> Result<Self, NotCounted> {
        let unreadable = |what: &Path, error: io::Error| {
            NotCounted(format!("cannot read {}: {error}", what.display()))
        };
        let mut directions = [Vec::new(), Vec::new()];
        for unit in read_dir(units).map_err(|error| unreadable(units, error))? {
            let unit = unit.map_err(|error| unreadable(units, error))?.path();
            let is_stack = |unit: &str| unit.starts_with(name);
            if !unit
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_stack)
            {
                continue;
            }
            for (ports, event) in directions.iter_mut().zip(events) {
                ports.extend(ports_of(&unit, event).map_err(|error| {
                    let remedy = match error.kind() {
                        io::ErrorKind::PermissionDenied => "; run as root or with CAP_PERFMON",
                        _ => "",
                    };
                    NotCounted(format!("cannot use {}: {error}{remedy}", unit.display()))
                })?);
            }
        }
        match directions.iter().all(Vec::is_empty) {
            true => Err(NotCounted(format!(
                "the kernel of this host has no counters {name}, which Intel Xeon processors have from Skylake on"
            ))),
            false => Ok(PcieCounters(directions)),
        }
    }

    /// Returns the bytes so far.
    fn bytes(&self) -> io::Result<[Option<f64>; 2]> {
        let mut bytes = [None; 2];
        for (bytes, ports) in bytes.iter_mut().zip(&self.0) {
            for Port {
                counter,
                bytes: each,
            } in ports
            {
                *bytes = Some(bytes.unwrap_or(0.0) + counter.count()? as f64 * each);
            }
        }
        Ok(bytes)
    }

    /// Reads the counters, and again and again on a thread, until the log ends.
    ///
    /// # Errors
    /// A counter could not be read.
    pub fn log(self) -> io::Result<PcieLog> {
        let (stop, stopped) = channel();
        let first = self.read()?;
        Ok(PcieLog {
            thread: std::thread::spawn(move || read_until(&self, first, &stopped)),
            stop,
        })
    }

    fn read(&self) -> io::Result<Reading> {
        Ok((clock::now(), self.bytes()?))
    }
}

/// An event as sysfs describes it.
#[derive(Debug, PartialEq)]
struct Event {
    /// Type of the unit, and the event's number there.
    kind: u32,
    config: u64,
    /// Bytes of one count.
    bytes: f64,
}

/// Opens the events of a unit whose names begin with `event`, on each CPU that the unit names, one for each package.
fn ports_of(unit: &Path, event: &str) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for Event {
        kind,
        config,
        bytes,
    } in events_of(unit, event)?
    {
        for cpu in cpus(unit)? {
            let counter = Counter::open(kind, config, Scope::Cpu(cpu))?;
            ports.push(Port { counter, bytes });
        }
    }
    Ok(ports)
}

fn events_of(unit: &Path, event: &str) -> io::Result<Vec<Event>> {
    let read = |name: &str| read_to_string(unit.join(name));
    let kind = parsed(&read("type")?)?;
    let mut events = Vec::new();
    for file in read_dir(unit.join("events"))? {
        let name = file?.file_name();
        let is_event = |name: &&str| name.starts_with(event) && !name.contains('.');
        let Some(name) = name.to_str().filter(is_event) else {
            continue;
        };
        let mut config = 0;
        for term in read(&format!("events/{name}"))?.trim().split(',') {
            let (field, value) = term.split_once('=').ok_or_else(|| invalid(term))?;
            let place = read(&format!("format/{field}"))?;
            config |= hexadecimal(value)? << first_bit(&place)?;
        }
        let bytes = match read(&format!("events/{name}.scale")) {
            Ok(scale) if read(&format!("events/{name}.unit"))?.trim() == MIB.0 => {
                parsed::<f64>(&scale)? * MIB.1
            }
            Ok(scale) => return Err(invalid(&scale)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 1.0,
            Err(error) => return Err(error),
        };
        events.push(Event {
            kind,
            config,
            bytes,
        });
    }
    Ok(events)
}

/// Returns the CPUs on which a unit counts; the first one for a unit that does not say.
fn cpus(unit: &Path) -> io::Result<Vec<u32>> {
    match read_to_string(unit.join("cpumask")) {
        Ok(mask) => Ok(list(&mask)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![0]),
        Err(error) => Err(error),
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::other(format!("unexpected '{}' in sysfs", text.trim()))
}

fn parsed<T: std::str::FromStr>(text: &str) -> io::Result<T> {
    text.trim().parse().map_err(|_| invalid(text))
}

fn hexadecimal(text: &str) -> io::Result<u64> {
    let digits = text.trim().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| invalid(text))
}

/// Returns where a field of `config` begins: `config:8-15`.
fn first_bit(place: &str) -> io::Result<u32> {
    let bits = place.trim().strip_prefix("config:");
    let bits = bits.ok_or_else(|| invalid(place))?;
    parsed(bits.split(['-', ',']).next().unwrap_or(bits))
}

/// A reading: when, and the bytes in each direction by then.
type Reading = (Time, [Option<f64>; 2]);

/// Readings of the counters while a program runs.
#[derive(Debug)]
pub struct PcieLog {
    thread: JoinHandle<io::Result<Vec<Reading>>>,
    stop: Sender<()>,
}

impl PcieLog {
    /// Ends the log, and returns the bytes between two times of `CLOCK_MONOTONIC`, at the rate between the readings around
    /// each; `None` if the log does not contain both.
    ///
    /// # Errors
    /// A counter could not be read.
    pub fn end(self, [from, until]: [Time; 2]) -> io::Result<Option<PcieBytes>> {
        drop(self.stop);
        let readings = self.thread.join();
        let readings =
            readings.map_err(|_| io::Error::other("the thread that reads counters panicked"))??;
        let at = |time| bytes_at(&readings, time);
        Ok(at(from).zip(at(until)).map(|(first, last)| {
            let between = |way: usize| Some(last[way]? - first[way]?);
            PcieBytes {
                from_devices: between(0),
                to_devices: between(1),
            }
        }))
    }
}

fn read_until(
    counters: &PcieCounters,
    first: Reading,
    stopped: &Receiver<()>,
) -> io::Result<Vec<Reading>> {
    let mut readings = vec![first];
    loop {
        let ended = stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
        readings.push(counters.read()?);
        if ended {
            return Ok(readings);
        }
    }
}

/// Returns the bytes by a time between two readings.
fn bytes_at(readings: &[Reading], time: Time) -> Option<[Option<f64>; 2]> {
    let around = readings.windows(2);
    let mut around = around.filter(|pair| pair[0].0 <= time && time <= pair[1].0);
    let [(before, first), (after, last)] = around.next()? else {
        return None;
    };
    let share = match *after - *before {
        gap if gap > adverb_units::Span::ZERO => (time - *before).as_ns_f64() / gap.as_ns_f64(),
        _ => 0.0,
    };
    let between = |way: usize| Some(first[way]? + (last[way]? - first[way]?) * share);
    Some([between(0), between(1)])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use adverb_units::Span;

    use super::*;

    #[test]
    fn a_host_without_the_counters_says_so() {
        let none = PcieCounters::of(Path::new("/proc/self"), STACKS, EVENTS).unwrap_err();
        assert!(
            none.to_string().contains("no counters uncore_iio"),
            "{none}"
        );
        let missing = PcieCounters::of(Path::new("/nowhere"), STACKS, EVENTS).unwrap_err();
        assert!(
            missing.to_string().starts_with("cannot read /nowhere"),
            "{missing}"
        );
    }

    #[test]
    fn a_time_between_two_readings_has_its_share_of_the_bytes() {
        let at = |us| Time::ZERO + Span::from_us(us);
        let readings = [
            (at(10), [Some(100.0), None]),
            (at(20), [Some(300.0), None]),
            (at(20), [Some(300.0), None]),
            (at(40), [Some(400.0), None]),
        ];
        assert_eq!(bytes_at(&readings, at(15)), Some([Some(200.0), None]));
        assert_eq!(bytes_at(&readings, at(30)), Some([Some(350.0), None]));
        assert_eq!(bytes_at(&readings, at(9)), None);
        assert_eq!(bytes_at(&readings, at(41)), None);
    }

    /// The kernel describes all units in the same way, so the `tsc` of unit `msr`, which virtual machines also have, is counted
    /// instead of a port of a Xeon.
    #[test]
    fn events_that_sysfs_describes_are_counted() {
        let msr = Path::new(UNITS).join("msr");
        let opened = PcieCounters::of(Path::new(UNITS), "msr", ["tsc", "none"]);
        let counters = match opened {
            Ok(counters) => counters,
            Err(why) => {
                #[allow(clippy::print_stderr, reason = "what did not run is listed")]
                {
                    eprintln!(
                        "NOT RUN: counters of a unit in sysfs: {}: {why}",
                        msr.display()
                    );
                }
                return;
            }
        };
        let log = counters.log().unwrap();
        let from = clock::now();
        std::thread::sleep(Duration::from_millis(30));
        let until = clock::now();
        let counted = log.end([from, until]).unwrap().unwrap();
        let cycles = counted.from_devices.unwrap();
        let gigahertz = cycles / (until - from).as_ns_f64();
        assert!((0.1..10.0).contains(&gigahertz), "{gigahertz}");
        assert_eq!(counted.to_devices, None);
    }

    /// Files of a stack of a Xeon with two packages.
    #[test]
    fn an_event_of_a_xeon_counts_words_of_4_bytes() {
        let unit = tempfile::tempdir().unwrap();
        let unit = unit.path();
        for folder in ["format", "events"] {
            fs::create_dir(unit.join(folder)).unwrap();
        }
        for (file, text) in [
            ("type", "26\n"),
            ("cpumask", "0,28\n"),
            ("format/event", "config:0-7\n"),
            ("format/umask", "config:8-15\n"),
            ("events/bw_in_port1", "event=0xff,umask=0x21\n"),
            ("events/bw_in_port1.scale", "3.814697266e-6\n"),
            ("events/bw_in_port1.unit", "MiB\n"),
            ("events/ioclk", "event=0xff,umask=0x10\n"),
        ] {
            fs::write(unit.join(file), text).unwrap();
        }
        let events = events_of(unit, EVENTS[0]).unwrap();
        let [
            Event {
                kind: 26,
                config: 0x21ff,
                bytes,
            },
        ] = events[..]
        else {
            panic!("{events:?}");
        };
        assert!((bytes - 4.0).abs() < 1e-6, "{bytes}");
        assert_eq!(events_of(unit, EVENTS[1]).unwrap(), []);
        assert_eq!(cpus(unit).unwrap(), [0, 28]);
        fs::write(unit.join("events/bw_in_port1.unit"), "Joules\n").unwrap();
        let refused = events_of(unit, EVENTS[0]).unwrap_err().to_string();
        assert_eq!(refused, "unexpected '3.814697266e-6' in sysfs");
    }
}
