//! Speeds of InfiniBand links.
//!
//! Source: IBTA volume 2 (lanes and line codes), and its roadmap for NDR and XDR. All rates are for four lanes
//! in one direction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Speed of an InfiniBand link with four lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkRate {
    /// Single data rate.
    Sdr,
    /// Double.
    Ddr,
    /// Quad.
    Qdr,
    /// Fourteen.
    Fdr,
    /// Enhanced.
    Edr,
    /// High.
    Hdr,
    /// Next.
    Ndr,
    /// Extended.
    Xdr,
}

impl LinkRate {
    /// All speeds, slowest first.
    pub const ALL: [LinkRate; 8] = [
        LinkRate::Sdr,
        LinkRate::Ddr,
        LinkRate::Qdr,
        LinkRate::Fdr,
        LinkRate::Edr,
        LinkRate::Hdr,
        LinkRate::Ndr,
        LinkRate::Xdr,
    ];

    /// Returns the signalled rate in Mb/s, line code and error correction included.
    pub const fn signalled_mbps(self) -> u32 {
        match self {
            LinkRate::Sdr => 10_000,
            LinkRate::Ddr => 20_000,
            LinkRate::Qdr => 40_000,
            LinkRate::Fdr => 56_250,
            LinkRate::Edr => 103_125,
            LinkRate::Hdr => 212_500,
            LinkRate::Ndr => 425_000,
            LinkRate::Xdr => 850_000,
        }
    }

    /// Returns the rate in Mb/s that is left for packets: 8 of 10 signalled bits to QDR, 64 of 66 to EDR, 16 of
    /// 17 from HDR on.
    pub const fn usable_mbps(self) -> u32 {
        let (data, coded) = match self {
            LinkRate::Sdr | LinkRate::Ddr | LinkRate::Qdr => (8, 10),
            LinkRate::Fdr | LinkRate::Edr => (64, 66),
            LinkRate::Hdr | LinkRate::Ndr | LinkRate::Xdr => (16, 17),
        };
        self.signalled_mbps() * data / coded
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LinkRate::Sdr => "sdr",
            LinkRate::Ddr => "ddr",
            LinkRate::Qdr => "qdr",
            LinkRate::Fdr => "fdr",
            LinkRate::Edr => "edr",
            LinkRate::Hdr => "hdr",
            LinkRate::Ndr => "ndr",
            LinkRate::Xdr => "xdr",
        })
    }
}

/// The text is not the name of a speed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid rate '{0}': expected sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr")]
pub struct ParseLinkRateError(String);

impl FromStr for LinkRate {
    type Err = ParseLinkRateError;

    fn from_str(text: &str) -> Result<Self, ParseLinkRateError> {
        let mut all = LinkRate::ALL.into_iter();
        all.find(|rate| rate.to_string() == text)
            .ok_or_else(|| ParseLinkRateError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_four_lanes() {
        let usable = LinkRate::ALL.map(LinkRate::usable_mbps);
        let expected = [
            8_000, 16_000, 32_000, 54_545, 100_000, 200_000, 400_000, 800_000,
        ];
        assert_eq!(usable, expected);
    }

    #[test]
    fn rates_are_read_by_name() {
        for rate in LinkRate::ALL {
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        let refused = "qdr10".parse::<LinkRate>().unwrap_err().to_string();
        assert!(refused.starts_with("invalid rate 'qdr10': expected sdr, "));
    }
}
