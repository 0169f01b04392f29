//! Addresses of peers: `HOST[:PORT]` as typed, or a rank.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Default port of a server. It differs from perftest's 18515, so that both can run at the same time, and is
/// outside the range that Linux uses for outgoing connections.
const DEFAULT_PORT: u16 = 18600;

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// The loopback address with the default port.
    pub fn loopback() -> Self {
        HostPort {
            host: "127.0.0.1".to_owned(),
            port: DEFAULT_PORT,
        }
    }

    /// Resolves the host to at least one address.
    ///
    /// # Errors
    /// The host is unknown, or the resolver failed.
    pub fn resolve(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> = found
            .with_context(|| format!("cannot find the host {}", self.host))?
            .collect();
        anyhow::ensure!(!found.is_empty(), "the host {} has no address", self.host);
        Ok(found)
    }
}

/// A peer: a server at an address, or a rank of this process's job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum PeerAddress {
    /// `adverb serve` listens at this address.
    Server(HostPort),
    /// A rank that was started by the same `mpirun` or `srun`.
    Rank(u32),
}

impl PeerAddress {
    const RANK: &str = "rank ";
}

/// Parses a server's address, as typed after `--peer`.
impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(PeerAddress::Server)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Server(address) => address.fmt(f),
            PeerAddress::Rank(rank) => write!(f, "{}{rank}", Self::RANK),
        }
    }
}

impl From<PeerAddress> for String {
    fn from(address: PeerAddress) -> String {
        address.to_string()
    }
}

/// Parses an address as a study's folder has it: also a rank.
impl TryFrom<String> for PeerAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let rank = text.strip_prefix(Self::RANK).and_then(|n| n.parse().ok());
        rank.map_or_else(|| text.parse(), |rank| Ok(PeerAddress::Rank(rank)))
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split(text).ok_or_else(|| {
            format!(
                "invalid host '{text}': expected HOST, HOST:PORT or [IPV6]:PORT, such as 10.0.0.2:{DEFAULT_PORT}"
            )
        })?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().map_err(|_| {
                format!("invalid port '{port}' in '{text}': expected a number from 1 to 65535")
            })?,
        };
        let host = host.to_owned();
        Ok(HostPort { host, port })
    }
}

/// Splits the text into host and port. An IPv6 address without a port needs no brackets.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            match after {
                "" => (host, None),
                _ => (host, Some(after.strip_prefix(':')?)),
            }
        }
        None if is_ipv6(text) => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    (!host.is_empty() && !host.contains(odd)).then_some((host, port))
}

/// Whether the text is an IPv6 address, possibly with a zone (`fe80::1%eth0`).
fn is_ipv6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<HostPort>().map(|address| address.to_string())
    }

    #[test]
    fn hosts_are_taken_with_and_without_a_port() {
        for (typed, meant) in [
            ("nodeb", "nodeb:18600"),
            ("10.0.0.2:7", "10.0.0.2:7"),
            ("::1", "[::1]:18600"),
            ("[::1]", "[::1]:18600"),
            ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
            ("fe80::1%eth0", "[fe80::1%eth0]:18600"),
        ] {
            assert_eq!(shown(typed).as_deref(), Ok(meant));
            assert_eq!(shown(meant).as_deref(), Ok(meant));
        }
    }

    #[test]
    fn a_rank_is_read_from_a_folder_and_cannot_be_typed() {
        for address in [
            PeerAddress::Rank(7),
            PeerAddress::Server(HostPort::loopback()),
        ] {
            assert_eq!(String::from(address.clone()).try_into(), Ok(address));
        }
        assert!("rank 7".parse::<PeerAddress>().is_err());
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for typed in ["", ":7", "[::1", "[::1]7", "a b", "http://nodeb/"] {
            assert!(shown(typed).unwrap_err().starts_with("invalid "), "{typed}");
        }
        for typed in ["a:", "a:x", "a:65536", "a:-1", "1:2:3"] {
            assert!(
                shown(typed).unwrap_err().starts_with("invalid port"),
                "{typed}"
            );
        }
    }
}
