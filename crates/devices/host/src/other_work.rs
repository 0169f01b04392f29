//! CPU use of other programs during a measurement: a program that polls while other work runs measures the
//! other work.

use std::{fmt, fs};

use serde::{Deserialize, Serialize};

use crate::process::usable_cores;

/// Start of a comparison of CPU times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherWork {
    begun: Ticks,
}

/// CPU time, in the clock ticks of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// Total of all cores, idle or not.
    all: u64,
    /// User, nice and system time of all programs. Without interrupts, which may be our packets.
    programs: u64,
    /// Time of this program and its children that have ended.
    own: u64,
}

/// Minimum ticks: with fewer, rounding dominates the times of processes.
const LEAST: u64 = 50;

impl OtherWork {
    /// Starts now; `None` if `/proc` does not have the times.
    pub fn from_now() -> Option<Self> {
        let begun = Ticks::now()?;
        Some(OtherWork { begun })
    }

    /// Returns the share of this machine's CPU time, 0 to 1, that other programs than this one and its children
    /// have used since; `None` if that was too short. Children count once they have ended.
    pub fn share(&self) -> Option<f64> {
        Ticks::now()?.others_since(self.begun)
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        let process = fs::read_to_string("/proc/self/stat").ok()?;
        Ticks::read(&machine, &process)
    }

    /// Parses `/proc/stat` and `/proc/self/stat` (proc(5)).
    fn read(machine: &str, process: &str) -> Option<Self> {
        let cores = machine.lines().next()?.strip_prefix("cpu ")?;
        let cores: Vec<u64> = numbers(cores.split_whitespace())?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
        let all = cores.get(..8)?.iter().sum();
        // The name may contain anything and ends at the last bracket; the state follows.
        let (_, fields) = process.rsplit_once(')')?;
        let own: Vec<u64> = numbers(fields.split_whitespace().skip(11).take(4))?;
        Some(Ticks {
            all,
            programs: cores[..3].iter().sum(),
            own: own.iter().sum(),
        })
    }

    fn others_since(self, begun: Self) -> Option<f64> {
        let all = self.all.saturating_sub(begun.all);
        let programs = self.programs.saturating_sub(begun.programs);
        let others = programs.saturating_sub(self.own.saturating_sub(begun.own));
        (all >= LEAST).then(|| others as f64 / all as f64)
    }
}

/// Work of other programs on a machine that measures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Load average of the last minute before the measurement; `None` if small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    load: Option<f64>,
    /// Number of cores.
    cores: usize,
    /// Share of the CPU time that other programs used during the measurement; `None` if small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    others: Option<f64>,
}

impl Busy {
    /// Returns this machine's load if it is busy: a measurement next to other work measures the other work.
    pub fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/loadavg").ok()?;
        let load: f64 = text.split_whitespace().next()?.parse().ok()?;
        let cores = usable_cores().len();
        (load > 0.5 * cores as f64).then_some(Busy {
            load: Some(load),
            cores,
            others: None,
        })
    }

    /// Returns the work of programs that used this share of this machine's CPU time.
    pub fn during(others: f64) -> Self {
        Busy {
            load: None,
            cores: usable_cores().len(),
            others: Some(others),
        }
    }

    /// Returns the larger values of both.
    #[must_use]
    pub fn busier(self, other: Self) -> Self {
        let larger = |a: Option<f64>, b: Option<f64>| [a, b].into_iter().flatten().reduce(f64::max);
        Busy {
            load: larger(self.load, other.load),
            cores: other.cores,
            others: larger(self.others, other.others),
        }
    }
}

impl fmt::Display for Busy {
    /// `load 2.3 on 2 cores, other programs used 40 % of the CPU time`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = self
            .load
            .map(|load| format!("load {load:.1} on {} cores", self.cores));
        let others = self.others.map(|share| {
            let percent = 100.0 * share;
            format!("other programs used {percent:.0} % of the CPU time")
        });
        let parts: Vec<String> = load.into_iter().chain(others).collect();
        f.write_str(&parts.join(", "))
    }
}

fn numbers<'t>(words: impl Iterator<Item = &'t str>) -> Option<Vec<u64>> {
    words.map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str =
        "cpu  100 20 30 800 5 6 7 8 9 10\ncpu0 50 10 15 400 2 3 3 4 4 5\nintr 1\n";
    const PROCESS: &str = "7 (a) b) S 1 7 7 0 -1 4194560 99 0 0 0 11 12 13 14 20 0 1 0 5";

    #[test]
    fn times_are_read_from_proc() {
        let expected = Ticks {
            all: 976,
            programs: 150,
            own: 50,
        };
        assert_eq!(Ticks::read(MACHINE, PROCESS), Some(expected));
        assert_eq!(Ticks::read("", PROCESS), None);
        assert_eq!(Ticks::read(MACHINE, "7 (a"), None);
        assert!(Ticks::now().is_some(), "this machine's /proc is understood");
    }

    #[test]
    fn cpu_time_of_this_program_is_not_other_work() {
        let begun = Ticks::read(MACHINE, PROCESS).unwrap();
        let later = |all, programs, own| Ticks {
            all: begun.all + all,
            programs: begun.programs + programs,
            own: begun.own + own,
        };
        assert_eq!(later(400, 200, 200).others_since(begun), Some(0.0));
        assert_eq!(later(400, 300, 200).others_since(begun), Some(0.25));
        // A child's time is rounded up.
        assert_eq!(later(400, 200, 203).others_since(begun), Some(0.0));
        assert_eq!(later(10, 10, 0).others_since(begun), None, "too short");
    }
}
