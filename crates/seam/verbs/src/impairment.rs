//! Fault injection: a bad or long link, with options named as in `tc-netem`.

use std::fmt;

use adverb_units::{BitRate, Span};
use serde::{Deserialize, Serialize};

use crate::Probability;

/// What happens to each sent packet. By default packets take the same path without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// The packet is dropped.
    pub loss: Probability,
    /// The packet is sent twice.
    pub duplicate: Probability,
    /// The packet is sent after some that follow it.
    pub reorder: Probability,
    /// A bit of the packet is flipped.
    pub corrupt: Probability,
    /// Seed of the random choices.
    pub seed: u64,
    /// The delay of each packet, counted from its own arrival at the link (or the end of its transmission if the link
    /// has a rate), so that the delays of a burst do not add up.
    #[serde(
        rename = "delay_ns",
        with = "ns",
        default,
        skip_serializing_if = "is_zero"
    )]
    pub delay: Span,
    /// The delay varies by up to this much in both directions, uniformly. Packets keep their order.
    #[serde(
        rename = "jitter_ns",
        with = "ns",
        default,
        skip_serializing_if = "is_zero"
    )]
    pub jitter: Span,
    /// The rate at which packets are sent, one after the other.
    #[serde(
        rename = "rate_bits_per_s",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub rate: Option<BitRate>,
    /// Packets that wait for the link or are being sent, at most; further ones are dropped. `None`:
    /// [`Impairment::DEFAULT_QUEUE`].
    #[serde(
        rename = "queue_pkts",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub queue: Option<u32>,
}

impl Impairment {
    /// Length of a link's queue in packets, as of `tc-netem`.
    pub const DEFAULT_QUEUE: u32 = 1000;

    /// Returns the faults of one of several passes, from 1 on: each of them loses other packets.
    #[must_use]
    pub fn in_pass(self, pass: u32) -> Self {
        Impairment {
            seed: self.seed.wrapping_add(u64::from(pass) - 1),
            ..self
        }
    }

    /// Returns the probabilities with their names on the command line.
    const fn shares(&self) -> [(&'static str, Probability); 4] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// Whether packets are late even if no fault is chosen for them.
    pub fn delays(&self) -> bool {
        self.delay != Span::ZERO || self.rate.is_some()
    }

    /// Whether packets are lost: a receiver drops those that are corrupt.
    pub fn loses(&self) -> bool {
        self.loss != Probability::ZERO || self.corrupt != Probability::ZERO
    }

    /// Whether no faults are injected.
    pub fn is_none(&self) -> bool {
        !self.delays() && self.shares().iter().all(|(_, p)| *p == Probability::ZERO)
    }

    /// Returns the part of a cell's id: `/loss=0.01/delay=1000000ns/seed=2`. The default seed, 1, is left out.
    pub fn id(&self) -> String {
        if self.is_none() {
            return "/loss=0".to_owned();
        }
        let shares = self.shares().into_iter();
        let shares = shares.filter(|(_, p)| *p != Probability::ZERO);
        let mut id: String = shares
            .map(|(name, p)| format!("/{name}={}", p.get()))
            .collect();
        for (name, span) in [("delay", self.delay), ("jitter", self.jitter)] {
            if span != Span::ZERO {
                id += &format!("/{name}={}ns", span.as_ns_f64());
            }
        }
        let rate = self
            .rate
            .map(|rate| format!("/link-rate={}bit", rate.get()));
        let queue = self.queue.map(|queue| format!("/queue={queue}"));
        rate.iter().chain(&queue).for_each(|part| id += part);
        match self.seed {
            1 => id,
            seed => format!("{id}/seed={seed}"),
        }
    }
}

/// A span as a JSON number of nanoseconds.
mod ns {
    use adverb_units::Span;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(span.as_ns_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        Ok(Span::from_ns_f64(f64::deserialize(d)?))
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(span: &Span) -> bool {
    *span == Span::ZERO
}

impl fmt::Display for Impairment {
    /// `loss 1 %, reorder 0.1 % (seed 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happening = self.shares().into_iter();
        let happening = happening.filter(|(_, p)| *p != Probability::ZERO);
        let mut parts: Vec<String> = happening.map(|(name, p)| format!("{name} {p}")).collect();
        if self.delay != Span::ZERO {
            parts.push(match self.jitter {
                Span::ZERO => format!("delay {}", self.delay),
                jitter => format!("delay {} ± {jitter}", self.delay),
            });
        }
        parts.extend(self.rate.map(|rate| format!("rate {rate}")));
        parts.extend(self.queue.map(|queue| format!("queue {queue}")));
        match parts.is_empty() {
            true => f.pad("loss 0 %"),
            false => f.pad(&format!("{} (seed {})", parts.join(", "), self.seed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impairments_are_displayed_by_name() {
        let percent = Probability::per_million(10_000);
        let some = Impairment {
            loss: percent,
            reorder: Probability::per_million(500),
            seed: 7,
            ..Impairment::default()
        };
        assert_eq!(some.to_string(), "loss 1 %, reorder 0.05 % (seed 7)");
        assert_eq!(Impairment::default().to_string(), "loss 0 %");
        let long = Impairment {
            delay: Span::from_us(1500),
            jitter: Span::from_us(10),
            rate: "10Gbit/s".parse().ok(),
            queue: Some(50),
            seed: 1,
            ..Impairment::default()
        };
        let text = "delay 1.50 ms ± 10.0 µs, rate 10.0 Gbit/s, queue 50 (seed 1)";
        assert_eq!(long.to_string(), text);
        let id = "/delay=1500000ns/jitter=10000ns/link-rate=10000000000bit/queue=50";
        assert_eq!(long.id(), id);
        let json = serde_json::to_string(&long).unwrap();
        assert_eq!(serde_json::from_str::<Impairment>(&json).unwrap(), long);
        let json = serde_json::to_string(&some).unwrap();
        assert_eq!(
            json,
            r#"{"loss":0.01,"duplicate":0.0,"reorder":0.0005,"corrupt":0.0,"seed":7}"#
        );
        assert_eq!(serde_json::from_str::<Impairment>(&json).unwrap(), some);
    }
}
