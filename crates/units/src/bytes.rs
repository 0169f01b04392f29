//! Sizes in bytes, with binary multiples.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

    /// The count as an index; saturates where `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Bytes {
    /// `8 B`, `4 KiB`, `1 MiB`; sizes that are no whole multiple are written in bytes.
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

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// Not a number with an optional multiple.
    #[error(
        "'{0}' is not a size: write bytes, or a number with K, M or G (binary), such as 8, 4K, 1M"
    )]
    NotASize(String),
    /// More than 2^64 - 1 bytes.
    #[error("size '{0}' is beyond 2^64 bytes")]
    TooLarge(String),
    /// A range whose end lies before its start, or that starts at 0.
    #[error("size range '{0}' is empty: write FIRST..LAST with 1 <= FIRST <= LAST, such as 1..1M")]
    EmptyRange(String),
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

/// One size, or the powers of two from a first to a last size: `8`, `1K`, `1..1M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    first: Bytes,
    last: Bytes,
}

impl SizeRange {
    /// The one size.
    pub const fn one(size: Bytes) -> Self {
        SizeRange {
            first: size,
            last: size,
        }
    }

    /// The sizes: first, then doubled while at most the last.
    pub fn sizes(self) -> impl Iterator<Item = Bytes> {
        std::iter::successors(Some(self.first), |b| {
            b.0.checked_mul(2).filter(|n| *n > 0).map(Bytes)
        })
        .take_while(move |b| *b <= self.last)
    }

    /// The first size.
    pub const fn first(self) -> Bytes {
        self.first
    }

    /// The bound of the sizes.
    pub const fn last(self) -> Bytes {
        self.last
    }
}

impl FromStr for SizeRange {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((first, last)) = text.split_once("..") else {
            return text.parse().map(SizeRange::one);
        };
        let (first, last): (Bytes, Bytes) = (first.parse()?, last.parse()?);
        if first.0 == 0 || last < first {
            return Err(ParseBytesError::EmptyRange(text.to_owned()));
        }
        Ok(SizeRange { first, last })
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
    fn refuses_what_is_no_size() {
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

    #[test]
    fn a_range_doubles_up_to_its_end() {
        let range: SizeRange = "1..10".parse().unwrap();
        assert_eq!(
            range.sizes().map(Bytes::get).collect::<Vec<_>>(),
            [1, 2, 4, 8]
        );
        let one: SizeRange = "1K".parse().unwrap();
        assert_eq!(one.sizes().count(), 1);
        let top: SizeRange = "9223372036854775808..18446744073709551615".parse().unwrap();
        assert_eq!(top.sizes().count(), 1);
        assert!("0..8".parse::<SizeRange>().is_err());
        assert!("8..4".parse::<SizeRange>().is_err());
    }
}
