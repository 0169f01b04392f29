//! Turns optimizations of the UDP port off, to measure what each buys (`make bench`).

use std::env::{VarError, var};

/// Names the optimizations to turn off, separated by commas.
const VARIABLE: &str = "ADVERB_UDP_WITHOUT";

/// The optimizations that are turned off, each named after its module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Without {
    /// Packet boundaries from ICRCs.
    pub(super) gro: bool,
    /// ACKs that wait for the program's reply.
    pub(super) delayed_ack: bool,
}

impl Without {
    /// Reads the environment.
    ///
    /// # Errors
    /// A name that is none of these.
    pub(super) fn from_env() -> Result<Self, String> {
        match var(VARIABLE) {
            Ok(names) => Self::parse(&names),
            Err(VarError::NotPresent) => Ok(Without::default()),
            Err(VarError::NotUnicode(names)) => Err(invalid(&names.to_string_lossy())),
        }
    }

    fn parse(names: &str) -> Result<Self, String> {
        let mut without = Without::default();
        for name in names.split(',').filter(|name| !name.is_empty()) {
            match name {
                "gro" => without.gro = true,
                "delayed_ack" => without.delayed_ack = true,
                _ => return Err(invalid(name)),
            }
        }
        Ok(without)
    }
}

fn invalid(name: &str) -> String {
    format!("invalid {VARIABLE} '{name}': expected gro or delayed_ack")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn optimizations_are_turned_off_by_name() {
        assert_eq!(Without::parse(""), Ok(Without::default()));
        let two = Without {
            gro: true,
            delayed_ack: true,
        };
        assert_eq!(Without::parse("gro,delayed_ack"), Ok(two));
        let wrong = "invalid ADVERB_UDP_WITHOUT 'gso': expected gro or delayed_ack";
        assert_eq!(Without::parse("gso"), Err(wrong.to_owned()));
    }
}
