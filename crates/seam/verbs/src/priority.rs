//! Priority fields of packets: traffic class and service level.
//!
//! Source: IBTA volume 1, 8.2.1 (service level), 8.3.1 (traffic class); annex A17.9.1 (RoCEv2).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Traffic class of the global routing header. On RoCEv2 it is IPv4's type of service or IPv6's traffic
/// class: a DSCP of 6 bits, followed by 2 bits of ECN.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TrafficClass(pub u8);

/// The text is not a traffic class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid traffic class '{0}': expected 0 to 255")]
pub struct ParseTrafficClassError(String);

impl FromStr for TrafficClass {
    type Err = ParseTrafficClassError;

    fn from_str(text: &str) -> Result<Self, ParseTrafficClassError> {
        let class = text.parse().map(TrafficClass);
        class.map_err(|_| ParseTrafficClassError(text.to_owned()))
    }
}

impl fmt::Display for TrafficClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Service level, 4 bits. Ethernet ports send the low 3 bits as the priority of a VLAN tag.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "u8", try_from = "u8")]
pub struct ServiceLevel(u8);

impl ServiceLevel {
    /// The highest service level of an Ethernet port, whose VLAN tags have 8 priorities.
    pub const MAX_ETHERNET: ServiceLevel = ServiceLevel(7);

    /// Returns service level `n`, 0 to 15.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 16 { Some(ServiceLevel(n)) } else { None }
    }

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The text or number is not a service level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid service level '{0}': expected 0 to 15")]
pub struct ParseServiceLevelError(String);

impl FromStr for ServiceLevel {
    type Err = ParseServiceLevelError;

    fn from_str(text: &str) -> Result<Self, ParseServiceLevelError> {
        let level = text.parse().ok().and_then(ServiceLevel::new);
        level.ok_or_else(|| ParseServiceLevelError(text.to_owned()))
    }
}

impl From<ServiceLevel> for u8 {
    fn from(level: ServiceLevel) -> u8 {
        level.0
    }
}

impl TryFrom<u8> for ServiceLevel {
    type Error = ParseServiceLevelError;

    fn try_from(n: u8) -> Result<Self, ParseServiceLevelError> {
        ServiceLevel::new(n).ok_or_else(|| ParseServiceLevelError(n.to_string()))
    }
}

impl fmt::Display for ServiceLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        assert_eq!("255".parse(), Ok(TrafficClass(255)));
        assert_eq!("15".parse(), Ok(ServiceLevel(15)));
        for text in ["300", "-1", "", "high"] {
            let refused = text.parse::<TrafficClass>().unwrap_err().to_string();
            let expected = format!("invalid traffic class '{text}': expected 0 to 255");
            assert_eq!(refused, expected);
        }
        for text in ["16", "-1", "", "high"] {
            let refused = text.parse::<ServiceLevel>().unwrap_err().to_string();
            let expected = format!("invalid service level '{text}': expected 0 to 15");
            assert_eq!(refused, expected);
        }
        assert!(ServiceLevel::try_from(16).is_err());
    }
}
