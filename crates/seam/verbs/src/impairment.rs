//! Fault injection: probabilities of faults in sent packets, named as in `tc-netem`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Probability;

/// Probabilities of faults for each sent packet. If all are 0, packets take the same path without faults.
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
    /// Seed of the random choice of packets.
    pub seed: u64,
}

impl Impairment {
    /// Returns the probabilities with their names on the command line.
    pub const fn parts(&self) -> [(&'static str, Probability); 4] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// Whether no faults are injected.
    pub fn is_none(&self) -> bool {
        self.parts().iter().all(|(_, p)| *p == Probability::ZERO)
    }

    /// Returns the part of a cell's id: `/loss=0.01/seed=2`. The default seed, 1, is left out.
    pub fn id(&self) -> String {
        if self.is_none() {
            return "/loss=0".to_owned();
        }
        let parts = self.parts().into_iter();
        let parts = parts.filter(|(_, p)| *p != Probability::ZERO);
        let id: String = parts
            .map(|(name, p)| format!("/{name}={}", p.get()))
            .collect();
        match self.seed {
            1 => id,
            seed => format!("{id}/seed={seed}"),
        }
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
        let json = serde_json::to_string(&some).unwrap();
        assert_eq!(
            json,
            r#"{"loss":0.01,"duplicate":0.0,"reorder":0.0005,"corrupt":0.0,"seed":7}"#
        );
        assert_eq!(serde_json::from_str::<Impairment>(&json).unwrap(), some);
    }
}
