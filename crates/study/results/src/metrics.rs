//! Computes the figures of a record from repetitions, as MacArthur & Russell define them.

use adverb_units::{Bytes, CpuTime, MessageRate, Span, Throughput};
use serde::{Deserialize, Serialize};

use crate::stats;
use crate::{Cpu, CpuShare, Latency, LatencyRecorder, Metrics, Program, Repetition};

/// CPU time of the passive side in a repetition, and the elapsed time on its own clock: it starts before the
/// active side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time.
    pub cpu: CpuTime,
    /// Elapsed time.
    pub elapsed: Span,
}

/// Raw results of one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepetitionSample {
    /// Messages (`blast`) or rounds (`ping`); over an unreliable transport, messages that arrived.
    pub iters: u64,
    /// Messages that were sent and did not arrive.
    pub lost: u64,
    /// From just before the first post to just after the last completion, or arrival if that was later.
    pub elapsed: Span,
    /// CPU time of the active side in `elapsed`.
    pub active: CpuTime,
    /// Usage of the passive side, if it was measured.
    pub passive: Option<Usage>,
}

impl RepetitionSample {
    /// Returns the messages or rounds that were begun.
    pub fn sent(&self) -> u64 {
        self.iters + self.lost
    }

    /// Combines this run with another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |one: Usage, other: Usage| Usage {
            cpu: total([one.cpu, other.cpu].into_iter()),
            elapsed: one.elapsed + other.elapsed,
        };
        RepetitionSample {
            iters: self.iters + other.iters,
            lost: self.lost + other.lost,
            elapsed: self.elapsed + other.elapsed,
            active: total([self.active, other.active].into_iter()),
            passive: (self.passive.zip(other.passive)).map(|(one, other)| both(one, other)),
        }
    }
}

impl CpuShare {
    /// Returns CPU time over elapsed time; `None` if no time passed.
    pub fn of(cpu: CpuTime, elapsed: Span) -> Self {
        let percent = |part: Span| {
            (elapsed > Span::ZERO).then(|| 100.0 * part.as_secs_f64() / elapsed.as_secs_f64())
        };
        CpuShare {
            user: percent(cpu.user),
            system: percent(cpu.system),
            percent: percent(cpu.user + cpu.system),
        }
    }

    fn of_usage(usage: Option<Usage>) -> Self {
        usage.map_or_else(CpuShare::default, |usage| {
            CpuShare::of(usage.cpu, usage.elapsed)
        })
    }
}

impl Program {
    /// Returns the messages in one iteration: a round of `ping` has two (for `write-read`: one WRITE
    /// and one READ).
    pub const fn messages_per_iter(self) -> u64 {
        match self {
            Program::Ping => 2,
            Program::Blast => 1,
        }
    }
}

impl Metrics {
    /// The figures of these repetitions of `program` with messages of `size`.
    ///
    /// `latencies` are single one-way latencies, with the distance at which messages were timed.
    /// A repetition in which nothing was sent or no time passed does not count; none is left
    /// without any other. The passive side's CPU is a figure only if each repetition measured it.
    pub fn from_samples(
        program: Program,
        size: Bytes,
        samples: &[RepetitionSample],
        latencies: Option<(&LatencyRecorder, u64)>,
    ) -> Option<Metrics> {
        let samples: Vec<&RepetitionSample> = samples
            .iter()
            .filter(|s| s.iters > 0 && s.elapsed > Span::ZERO)
            .collect();
        if samples.is_empty() {
            return None;
        }
        let elapsed: Span = samples.iter().map(|s| s.elapsed).sum();
        let messages = program.messages_per_iter() * samples.iter().map(|s| s.iters).sum::<u64>();
        let repetitions: Vec<Repetition> = samples.iter().map(|s| repetition(program, s)).collect();
        let one_way: Vec<f64> = repetitions.iter().map(|r| r.one_way_ns).collect();
        let latencies = latencies.filter(|(recorder, _)| !recorder.is_empty());
        Some(Metrics {
            one_way_ns: Latency {
                mean: Some(elapsed.as_ns_f64() / messages as f64),
                ci95: stats::ci95_half_width(&one_way),
                ..latencies.map_or_else(Latency::default, |(recorder, _)| recorder.percentiles())
            },
            messages_per_s: MessageRate::over(messages, elapsed),
            bytes_per_s: Throughput::over(Bytes::new(size.get().saturating_mul(messages)), elapsed),
            elapsed,
            cpu: Cpu {
                active: CpuShare::of(total(samples.iter().map(|s| s.active)), elapsed),
                passive: CpuShare::of_usage(total_passive(&samples)),
            },
            repetitions,
            histogram: latencies.map(|(recorder, every)| recorder.to_histogram(every)),
            delivery: None,
            few_messages: false,
        })
    }
}

fn repetition(program: Program, sample: &RepetitionSample) -> Repetition {
    let messages = program.messages_per_iter() * sample.iters;
    Repetition {
        iters: sample.iters,
        elapsed: sample.elapsed,
        one_way_ns: sample.elapsed.as_ns_f64() / messages as f64,
        cpu_active: CpuShare::of(sample.active, sample.elapsed),
        cpu_passive: CpuShare::of_usage(sample.passive),
    }
}

fn total(parts: impl Iterator<Item = CpuTime>) -> CpuTime {
    parts.fold(CpuTime::default(), |sum, part| CpuTime {
        user: sum.user + part.user,
        system: sum.system + part.system,
    })
}

fn total_passive(samples: &[&RepetitionSample]) -> Option<Usage> {
    let parts: Vec<Usage> = samples.iter().map(|s| s.passive).collect::<Option<_>>()?;
    Some(Usage {
        cpu: total(parts.iter().map(|part| part.cpu)),
        elapsed: parts.iter().map(|part| part.elapsed).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(iters: u64, elapsed: Span) -> RepetitionSample {
        let active = CpuTime {
            user: elapsed / 2,
            system: elapsed / 4,
        };
        RepetitionSample {
            iters,
            lost: 0,
            elapsed,
            active,
            passive: None,
        }
    }

    #[test]
    fn ping_halves_the_round_and_counts_both_directions() {
        let samples = [sample(1000, Span::from_us(200)); 2];
        let m = Metrics::from_samples(Program::Ping, Bytes::new(64), &samples, None).unwrap();
        assert_eq!(m.one_way_ns.mean, Some(100.0));
        assert_eq!(m.one_way_ns.ci95, Some(0.0));
        assert_eq!(m.messages_per_s.unwrap().per_second().round(), 1e7);
        assert_eq!(m.bytes_per_s.unwrap().bytes_per_second().round(), 64e7);
        assert_eq!(m.elapsed, Span::from_us(400));
        let CpuShare {
            user,
            system,
            percent,
        } = m.cpu.active;
        assert_eq!([user, system, percent], [50.0, 25.0, 75.0].map(Some));
        assert_eq!(m.cpu.passive, CpuShare::default());
        assert_eq!(m.histogram, None);
    }

    #[test]
    fn blast_divides_by_messages() {
        let samples = [sample(1000, Span::from_us(100))];
        let m = Metrics::from_samples(Program::Blast, Bytes::kib(1), &samples, None).unwrap();
        assert_eq!(m.one_way_ns.mean, Some(100.0));
        assert_eq!(m.one_way_ns.ci95, None);
        assert_eq!(m.bytes_per_s.unwrap().bytes_per_second().round(), 1024e7);
    }

    #[test]
    fn passive_cpu_counts_only_if_always_measured() {
        let measured = RepetitionSample {
            passive: Some(Usage {
                elapsed: Span::from_us(1),
                ..Usage::default()
            }),
            ..sample(1, Span::from_us(1))
        };
        let size = Bytes::new(1);
        let all = Metrics::from_samples(Program::Blast, size, &[measured; 2], None).unwrap();
        assert_eq!(all.cpu.passive.percent, Some(0.0));
        let some = [measured, sample(1, Span::from_us(1))];
        let some = Metrics::from_samples(Program::Blast, size, &some, None).unwrap();
        assert_eq!(some.cpu.passive.percent, None);
    }

    #[test]
    fn latencies_give_percentiles_and_the_histogram() {
        let mut recorder = LatencyRecorder::new();
        (1..=1000).for_each(|ns| recorder.record(Span::from_ns(ns)));
        let samples = [sample(1000, Span::from_us(100))];
        let latencies = Some((&recorder, 1));
        let m = Metrics::from_samples(Program::Blast, Bytes::new(1), &samples, latencies).unwrap();
        assert!((m.one_way_ns.p99.unwrap() / 990.0 - 1.0).abs() < 2e-3);
        assert_eq!(m.histogram.unwrap().samples, 1000);
    }

    #[test]
    fn metrics_without_measurements_are_none() {
        let size = Bytes::new(1);
        assert_eq!(Metrics::from_samples(Program::Ping, size, &[], None), None);
        let empty = [sample(0, Span::from_us(1)), sample(5, Span::ZERO)];
        let m = Metrics::from_samples(Program::Ping, size, &empty, None);
        assert_eq!(m, None);
    }

    proptest! {
        #[test]
        fn the_mean_lies_within_the_repetitions(
            parts in prop::collection::vec((1..1_000_000_u64, 1..1_000_000_000_000_u64), 1..20),
        ) {
            let samples: Vec<_> = parts.iter().map(|(n, ps)| sample(*n, Span::from_ps(*ps))).collect();
            let m = Metrics::from_samples(Program::Blast, Bytes::new(8), &samples, None).unwrap();
            let each: Vec<f64> = m.repetitions.iter().map(|r| r.one_way_ns).collect();
            let spread = stats::Spread::of(&each).unwrap();
            let mean = m.one_way_ns.mean.unwrap();
            prop_assert!(mean >= spread.min * (1.0 - 1e-9) && mean <= spread.max * (1.0 + 1e-9));
            prop_assert_eq!(m.one_way_ns.ci95.is_some(), samples.len() >= 2);
        }
    }
}
