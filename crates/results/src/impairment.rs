//! What a UDP port did on purpose to the packets that it sent, in the words of `tc-netem`.

use std::fmt;

use adverb_units::Probability;
use serde::{Deserialize, Serialize};

/// How often packets suffered what, on both sides. All zero: never, on a way that is the same else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impairment {
    /// Packets that were not sent.
    pub loss: Probability,
    /// Packets that were sent twice.
    pub duplicate: Probability,
    /// Packets that were sent behind some of those that followed them.
    pub reorder: Probability,
    /// Packets of which a bit was changed.
    pub corrupt: Probability,
    /// Of the random numbers that decide which packets these are.
    pub seed: u64,
}

impl Impairment {
    /// Its probabilities with their names on the command line.
    pub const fn parts(&self) -> [(&'static str, Probability); 4] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// Whether the packets are let alone.
    pub fn is_none(&self) -> bool {
        self.parts().iter().all(|(_, p)| *p == Probability::ZERO)
    }
}

impl fmt::Display for Impairment {
    /// `loss 1 %, reorder 0.1 % (seed 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happening = self.parts().into_iter();
        let happening = happening.filter(|(_, p)| *p != Probability::ZERO);
        let parts: Vec<String> = happening.map(|(name, p)| format!("{name} {p}")).collect();
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
    fn what_happens_is_named() {
        let percent = Probability::per_million(10_000);
        let some = Impairment {
            loss: percent,
            reorder: Probability::per_million(500),
            seed: 7,
            ..Impairment::default()
        };
        assert_eq!(some.to_string(), "loss 1 %, reorder 0.05 % (seed 7)");
        assert_eq!(Impairment::default().to_string(), "loss 0 %");
        let json = serde_json::to_string(&some).unwrap();
        assert_eq!(
            json,
            r#"{"loss":0.01,"duplicate":0.0,"reorder":0.0005,"corrupt":0.0,"seed":7}"#
        );
        assert_eq!(serde_json::from_str::<Impairment>(&json).unwrap(), some);
    }
}
