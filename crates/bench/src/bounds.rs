//! The comparisons: what is measured, against what, and the bound.

use std::path::PathBuf;

use adverb_units::{MessageRate, Span};
use anyhow::Result;
use serde_json::json;

use crate::{adverb, iperf, machine, model, seam, ucx, udp};

/// What all comparisons share.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Both sides' cores: active, passive.
    pub(crate) cores: [u32; 2],
    /// The `adverb` binary.
    pub(crate) adverb: PathBuf,
    /// Measurements of each pair.
    pub(crate) rounds: u32,
}

/// Which way is good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The ratio is to be at most this.
    AtMost(f64),
    /// The ratio is to be at least this.
    AtLeast(f64),
    /// Ours is to be at most this, whatever the reference.
    Itself(f64),
    /// Ours is to be at least this, whatever the reference.
    ItselfAtLeast(f64),
    /// Ours is to be at most this above the reference.
    Above(f64),
    /// Shown for its own sake.
    None,
}

/// One pair: (ours, reference), in the row's unit; none where the reference is not installed.
type Measure = fn(&Setting) -> Result<Option<(f64, f64)>>;

/// How often a row is measured.
#[derive(Clone, Copy, Debug)]
enum Rounds {
    /// As was asked for.
    AsAsked,
    /// Once: it takes long, and nothing of it is short enough for a passing disturbance to matter.
    Once,
}

/// One comparison.
pub(crate) struct Bound {
    pub(crate) name: &'static str,
    what: &'static str,
    unit: Unit,
    limit: Limit,
    measure: Measure,
    rounds: Rounds,
    /// What is missing where `measure` gives none.
    needs: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Nanoseconds,
    PerSecond,
    GigabytesPerSecond,
    Percent,
    Seconds,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds => Span::from_ps((value * 1e3) as u64).to_string(),
            Unit::PerSecond => MessageRate::over((value * 1e3) as u64, Span::from_secs(1000))
                .map_or_else(String::new, |rate| rate.to_string()),
            Unit::GigabytesPerSecond => format!("{value:.1} GB/s"),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Seconds => format!("{value:.1} s"),
        }
    }
}

/// A measured comparison.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    limit: Limit,
    pub(crate) verdict: Verdict,
}

/// What became of it.
pub(crate) enum Verdict {
    Measured(Measured),
    NotRun(&'static str),
}

/// Medians over the rounds.
pub(crate) struct Measured {
    pub(crate) ours: String,
    pub(crate) reference: String,
    pub(crate) ratio: f64,
    pub(crate) spread: (f64, f64),
    medians: (f64, f64),
}

const EVENT_PING: [&str; 8] = [
    "ping",
    "--op",
    "send",
    "--size",
    "8",
    "--inline",
    "--completion",
    "event",
];

pub(crate) const BOUNDS: &[Bound] = &[
    Bound {
        name: "write ping, 8 B",
        what: "one-way time of `adverb ping --op write --size 8 --inline` over that of a bare flag in \
               a shared cache line, two threads",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.5),
        measure: |s| {
            let reference = machine::flag_ping_pong(s.cores)?;
            let ours = adverb::one_way(s, &["ping", "--op", "write", "--size", "8", "--inline"])?;
            Ok(Some((ours, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "send ping, 8 B",
        what: "one-way time of `adverb ping --op send --size 8 --inline` over that of \
               `ucx_perftest -t tag_lat -s 8`, UCX_TLS=posix,self",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.0),
        measure: |s| {
            let Some(reference) = ucx::latency(s.cores, 8)? else {
                return Ok(None);
            };
            let ours = adverb::one_way(s, &["ping", "--op", "send", "--size", "8", "--inline"])?;
            Ok(Some((ours, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: ucx::NEEDS,
    },
    Bound {
        name: "write rate, 16 B",
        what: "messages per second of `adverb blast --op write --size 16 --inline --buffers 16` over \
               those of `ucx_perftest -t tag_bw -s 16`, UCX_TLS=posix,self",
        unit: Unit::PerSecond,
        limit: Limit::AtLeast(1.5),
        measure: |s| {
            let Some(reference) = ucx::message_rate(s.cores, 16)? else {
                return Ok(None);
            };
            let args = [
                "blast",
                "--op",
                "write",
                "--size",
                "16",
                "--inline",
                "--buffers",
                "16",
            ];
            Ok(Some((adverb::messages_per_second(s, &args)?, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: ucx::NEEDS,
    },
    Bound {
        name: "write throughput, 64 KiB",
        what: "bytes per second of `adverb blast --op write --size 64K --buffers 4` over those of \
               memcpy between four 64 KiB buffers of two shared mappings",
        unit: Unit::GigabytesPerSecond,
        limit: Limit::AtLeast(0.9),
        measure: |s| {
            let reference = machine::memcpy_between_mappings(s.cores[0], 64 << 10, 4)? / 1e9;
            let args = ["blast", "--op", "write", "--size", "64K", "--buffers", "4"];
            Ok(Some((adverb::bytes_per_second(s, &args)? / 1e9, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "event ping CPU, active",
        what: "CPU of the active side of `adverb ping --op send --size 8 --inline --completion event` \
               beside that of two threads that wake each other through pipes",
        unit: Unit::Percent,
        limit: Limit::Itself(25.0),
        measure: |s| {
            let reference = machine::pipe_ping_pong(s.cores)?.active_cpu_percent;
            Ok(Some((
                adverb::cpu_percent(s, &EVENT_PING, "active")?,
                reference,
            )))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "event ping CPU, passive",
        what: "the same of the passive sides",
        unit: Unit::Percent,
        limit: Limit::Itself(25.0),
        measure: |s| {
            let reference = machine::pipe_ping_pong(s.cores)?.passive_cpu_percent;
            Ok(Some((
                adverb::cpu_percent(s, &EVENT_PING, "passive")?,
                reference,
            )))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "event ping latency",
        what: "one-way time of the same pings",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: |s| {
            let reference = machine::pipe_ping_pong(s.cores)?.one_way_ns;
            Ok(Some((adverb::one_way(s, &EVENT_PING)?, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "price of events",
        what: "one-way time of the same ping, with events over polling",
        unit: Unit::Nanoseconds,
        limit: Limit::None,
        measure: |s| {
            let poll = adverb::one_way(s, &["ping", "--op", "send", "--size", "8", "--inline"])?;
            Ok(Some((adverb::one_way(s, &EVENT_PING)?, poll)))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "UDP port, send ping, 64 B",
        what: "one-way time of `adverb ping --op send --size 64` between soft@127.0.0.2 and soft@127.0.0.1 \
               over that of a bare UDP ping with as many bytes, two processes that poll busily",
        unit: Unit::Nanoseconds,
        limit: Limit::AtMost(1.3),
        measure: |s| {
            let reference = udp::ping(s.cores)?;
            let ping = ["ping", "--op", "send", "--size", "64"];
            Ok(Some((adverb::one_way_over_udp(s, &ping)?, reference)))
        },
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "UDP port, write stream, 1 MiB",
        what: "bytes per second of `adverb blast --op write --size 1M` between the same addresses over those \
               of one TCP stream of iperf3 on the loopback device",
        unit: Unit::GigabytesPerSecond,
        limit: Limit::AtLeast(0.8),
        measure: |s| {
            let Some(reference) = iperf::stream(s.cores)? else {
                return Ok(None);
            };
            let blast = ["blast", "--op", "write", "--size", "1M"];
            let ours = adverb::bytes_per_second_over_udp(s, &blast)?;
            Ok(Some((ours / 1e9, reference / 1e9)))
        },
        rounds: Rounds::AsAsked,
        needs: iperf::NEEDS,
    },
    Bound {
        name: "seam, ns per call",
        what: "post_send and poll of one inline 16 B WRITE through the seam (a function generic over \
               the device), beside the same calls on the device's own types",
        unit: Unit::Nanoseconds,
        limit: Limit::Above(5.0),
        measure: |s| seam::pair(s.cores[0]).map(Some),
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "model, operations per second",
        what: "inline 32 B WRITEs that the model of Connect-IB carries out per second on one core, beside \
               what it says that the hardware does",
        unit: Unit::PerSecond,
        limit: Limit::ItselfAtLeast(2e6),
        measure: |s| model::operations(s.cores[0]).map(Some),
        rounds: Rounds::AsAsked,
        needs: "",
    },
    Bound {
        name: "model, published values",
        what: "time of `adverb model validate --only file=visible.csv` on two cores, beside its CPU time",
        unit: Unit::Seconds,
        limit: Limit::Itself(60.0),
        measure: |s| {
            let args = ["model", "validate", "--only", "file=visible.csv"];
            model::seconds(s, &args).map(Some)
        },
        rounds: Rounds::Once,
        needs: "",
    },
    Bound {
        name: "model, quick study",
        what: "time of `adverb study --device model:connect_ib --profile quick` on two cores, beside its \
               CPU time",
        unit: Unit::Seconds,
        limit: Limit::Itself(30.0),
        measure: |s| {
            let args = [
                "study",
                "--device",
                "model:connect_ib",
                "--profile",
                "quick",
            ];
            model::study(s, &args).map(Some)
        },
        rounds: Rounds::Once,
        needs: "",
    },
];

impl Bound {
    pub(crate) fn measure(&self, setting: &Setting) -> Result<Row> {
        let mut pairs = Vec::new();
        let rounds = match self.rounds {
            Rounds::AsAsked => setting.rounds,
            Rounds::Once => 1,
        };
        for _ in 0..rounds {
            match (self.measure)(setting)? {
                Some(pair) => pairs.push(pair),
                None => return Ok(self.row(Verdict::NotRun(self.needs))),
            }
        }
        let ratios = sorted(pairs.iter().map(|(ours, reference)| ours / reference));
        let ours = median(&sorted(pairs.iter().map(|pair| pair.0)));
        let reference = median(&sorted(pairs.iter().map(|pair| pair.1)));
        Ok(self.row(Verdict::Measured(Measured {
            ours: self.unit.show(ours),
            reference: self.unit.show(reference),
            ratio: median(&ratios),
            spread: (ratios[0], ratios[ratios.len() - 1]),
            medians: (ours, reference),
        })))
    }

    fn row(&self, verdict: Verdict) -> Row {
        Row {
            name: self.name,
            what: self.what,
            limit: self.limit,
            verdict,
        }
    }
}

impl Row {
    pub(crate) fn bound_words(&self, measured: &Measured) -> String {
        let (ours, reference) = measured.medians;
        let ratio = measured.ratio;
        let (words, met) = match self.limit {
            Limit::AtMost(most) => (format!("ratio <= {most:.2}"), ratio <= most),
            Limit::AtLeast(least) => (format!("ratio >= {least:.2}"), ratio >= least),
            Limit::Itself(most) => (format!("adverb <= {most:.0}"), ours <= most),
            Limit::ItselfAtLeast(least) => (format!("adverb >= {least:.0}"), ours >= least),
            Limit::Above(most) => (format!("difference <= {most:.0}"), ours - reference <= most),
            Limit::None => return "-".into(),
        };
        format!("{words}: {}", if met { "met" } else { "MISSED" })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        match &self.verdict {
            Verdict::Measured(m) => json!({
                "name": self.name,
                "what": self.what,
                "adverb": m.ours,
                "reference": m.reference,
                "ratio": m.ratio,
                "ratio_min": m.spread.0,
                "ratio_max": m.spread.1,
                "bound": self.bound_words(m),
            }),
            Verdict::NotRun(reason) => json!({ "name": self.name, "not_run": reason }),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}
