//! Sizes in bytes, with binary multiples.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::rate::three_digits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Bytes(n)
    }

    /// `n` KiB (1024 B).
    pub const fn kib(n: u64) -> Self {
        Bytes(n * KIB)
    }

    /// `n` MiB (1024 KiB).
    pub const fn mib(n: u64) -> Self {
        Bytes(n * MIB)
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `8 B`, `34.2 MiB`: with three digits, for sizes that were measured.
    pub fn rounded(self) -> String {
        let (unit, name) = match self.0 {
            n if n >= GIB => (GIB, "GiB"),
            n if n >= MIB => (MIB, "MiB"),
            n if n >= KIB => (KIB, "KiB"),
            n => return format!("{n} B"),
        };
        format!("{} {name}", three_digits(self.0 as f64 / unit as f64))
    }

    /// The count as an index; saturates where `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Bytes {
    /// `8 B`, `4 KiB`, `1 MiB`; other sizes than whole multiples are written in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= GIB && n % GIB == 0 => (GIB, "GiB"),
            n if n >= MIB && n % MIB == 0 => (MIB, "MiB"),
            n if n >= KIB && n % KIB == 0 => (KIB, "KiB"),
            _ => (1, "B"),
        };
        f.pad(&format!("{} {name}", self.0 / unit))
    }
}

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// Not a number with an optional multiple.
    #[error(
        "invalid size '{0}': expected bytes, or a number with K, M or G (binary), such as 8, 4K, 1M"
    )]
    NotASize(String),
    /// More than 2^64 - 1 bytes.
    #[error("size '{0}' is beyond 2^64 bytes")]
    TooLarge(String),
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Reads `8`, `8B`, `4K`, `4KiB`, `1M`, `1MiB`, `1G`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseBytesError::NotASize(text.to_owned());
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let unit = match unit.trim_start() {
            "" | "B" => 1,
            "K" | "k" | "KiB" => KIB,
            "M" | "MiB" => MIB,
            "G" | "GiB" => GIB,
            _ => return Err(refuse()),
        };
        if digits.is_empty() {
            return Err(refuse());
        }
        let too_large = || ParseBytesError::TooLarge(text.to_owned());
        let n: u64 = digits.parse().map_err(|_| too_large())?;
        n.checked_mul(unit).map(Bytes).ok_or_else(too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_binary_multiples() {
        for (text, n, printed) in [
            ("8", 8, "8 B"),
            ("4K", 4096, "4 KiB"),
            ("1M", 1 << 20, "1 MiB"),
            ("1000", 1000, "1000 B"),
        ] {
            let bytes: Bytes = text.parse().unwrap();
            assert_eq!(bytes.get(), n);
            assert_eq!(bytes.to_string(), printed);
            assert_eq!(printed.parse(), Ok(bytes));
        }
    }

    #[test]
    fn refuses_invalid_sizes() {
        for bad in ["", "K", "-1", "1.5K", "12 apples", "1KB"] {
            assert!(
                matches!(bad.parse::<Bytes>(), Err(ParseBytesError::NotASize(_))),
                "{bad}"
            );
        }
        assert!(matches!(
            "99999999999G".parse::<Bytes>(),
            Err(ParseBytesError::TooLarge(_))
        ));
    }
}
