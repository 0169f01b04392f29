//! The text after `verbs:` that selects device, port and GID.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use adverb_verbs::{PortNum, PostApi};

/// A device of `libibverbs`, by name: `mlx5_0`, `mlx5_0:2`, `mlx5_0:1:3`, `rxe0:1:192.0.2.7`.
///
/// The text form is `NAME[:PORT[:GID]]`; GID is an index into the port's GID table, or the IP address
/// by which peers reach the port. If left out or empty, the port is the first active one, and the GID
/// is chosen by [`GidChoice::Automatic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsDevice {
    pub(crate) name: String,
    pub(crate) port: Option<PortNum>,
    pub(crate) gid: GidChoice,
    connecting: Connecting,
    pub(crate) posting: Interface,
    pub(crate) polling: Interface,
}

/// How the GID of the port is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GidChoice {
    /// RoCE: version 2 over IPv4 first, then over IPv6 (global, then link-local), then version 1.
    /// InfiniBand: index 0.
    #[default]
    Automatic,
    /// The entry with this index.
    Index(u32),
    /// The entry with this IP address, RoCE v2 before v1.
    Address(IpAddr),
    /// The entry with this IP address if there is one, otherwise automatic. For the address by which a
    /// peer already reaches this host, which may belong to another port.
    Nearest(IpAddr),
}

/// How queue pairs are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Connecting {
    /// By exchanging queue pair numbers; on iWARP, where that is impossible, through `librdmacm`.
    #[default]
    ByHand,
    /// Through `librdmacm`.
    Manager,
}

/// Which of its two interfaces a driver is used through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// `ibv_post_send` and `ibv_poll_cq`: requests and completions are structures.
    #[default]
    Classic,
    /// `ibv_wr_*` and `ibv_start_poll`: calls into the driver write requests and read completions. Not
    /// every driver has it.
    Extended,
}

impl From<PostApi> for Interface {
    fn from(api: PostApi) -> Self {
        match api {
            PostApi::Post => Interface::Classic,
            PostApi::Wr => Interface::Extended,
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Interface::Classic => "classic",
            Interface::Extended => "extended",
        })
    }
}

impl VerbsDevice {
    /// Returns the device called `name` with port and GID chosen automatically.
    pub fn new(name: impl Into<String>) -> Self {
        VerbsDevice {
            name: name.into(),
            port: None,
            gid: GidChoice::default(),
            connecting: Connecting::default(),
            posting: Interface::default(),
            polling: Interface::default(),
        }
    }

    /// Returns the name in `libibverbs`, as `ibv_devices` prints it.
    pub fn ibv_name(&self) -> &str {
        &self.name
    }

    /// Selects a port.
    #[must_use]
    pub fn with_port(self, port: PortNum) -> Self {
        VerbsDevice {
            port: Some(port),
            ..self
        }
    }

    /// Selects a GID.
    #[must_use]
    pub fn with_gid(self, gid: GidChoice) -> Self {
        VerbsDevice { gid, ..self }
    }

    /// Prefers the GID of `address`, unless a GID was selected.
    #[must_use]
    pub fn met_at(self, address: IpAddr) -> Self {
        match self.gid {
            GidChoice::Automatic => self.with_gid(GidChoice::Nearest(address)),
            _ => self,
        }
    }

    /// Selects how queue pairs are connected.
    #[must_use]
    pub fn with_connecting(self, connecting: Connecting) -> Self {
        VerbsDevice { connecting, ..self }
    }

    /// Returns how queue pairs are connected.
    pub fn connecting(&self) -> Connecting {
        self.connecting
    }

    /// Returns the prefix of the full name: `verbs`, or `verbs+cm` if queue pairs are connected through
    /// `librdmacm`.
    pub fn kind(&self) -> &'static str {
        match self.connecting {
            Connecting::ByHand => "verbs",
            Connecting::Manager => "verbs+cm",
        }
    }

    /// Selects the interface for posting requests.
    #[must_use]
    pub fn with_posting(self, posting: Interface) -> Self {
        VerbsDevice { posting, ..self }
    }

    /// Selects the interface for polling completions.
    #[must_use]
    pub fn with_polling(self, polling: Interface) -> Self {
        VerbsDevice { polling, ..self }
    }
}

impl fmt::Display for VerbsDevice {
    /// `NAME[:PORT[:GID]]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let chosen = !matches!(self.gid, GidChoice::Automatic | GidChoice::Nearest(_));
        if self.port.is_none() && !chosen {
            return Ok(());
        }
        f.write_str(":")?;
        self.port.iter().try_for_each(|port| write!(f, "{port}"))?;
        match self.gid {
            GidChoice::Automatic | GidChoice::Nearest(_) => Ok(()),
            GidChoice::Index(index) => write!(f, ":{index}"),
            GidChoice::Address(address) => write!(f, ":{address}"),
        }
    }
}

/// A text is not the name of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name before the first colon is empty.
    #[error(
        "invalid device '{0}': expected NAME[:PORT[:GID]], such as mlx5_0:1:3; ibv_devices lists the names"
    )]
    Empty(String),
    /// Invalid port.
    #[error("invalid port '{port}' in '{text}': expected a number from 1 to 254")]
    Port {
        /// The whole text.
        text: String,
        /// The part.
        port: String,
    },
    /// Invalid GID.
    #[error(
        "invalid GID '{gid}' in '{text}': expected its index (0, 1, ...) or the port's IP address"
    )]
    Gid {
        /// The whole text.
        text: String,
        /// The part.
        gid: String,
    },
}

impl FromStr for VerbsDevice {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = text.splitn(3, ':');
        let name = parts.next().unwrap_or_default();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(NameError::Empty(text.to_owned()));
        }
        let mut device = VerbsDevice::new(name);
        if let Some(port) = parts.next().filter(|part| !part.is_empty()) {
            let number = port.parse().ok().filter(|n| (1..=254).contains(n));
            device.port = Some(PortNum(number.ok_or_else(|| NameError::Port {
                text: text.to_owned(),
                port: port.to_owned(),
            })?));
        }
        if let Some(gid) = parts.next().filter(|part| !part.is_empty()) {
            device.gid = gid
                .parse()
                .map_err(|_: ParseGidChoiceError| NameError::Gid {
                    text: text.to_owned(),
                    gid: gid.to_owned(),
                })?;
        }
        Ok(device)
    }
}

/// The text is neither an index nor an IP address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid GID '{0}': expected its index (0, 1, ...) or the port's IP address")]
pub struct ParseGidChoiceError(String);

impl FromStr for GidChoice {
    type Err = ParseGidChoiceError;

    /// Reads an index or an IP address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let index = text.parse().map(GidChoice::Index);
        let address = || text.parse().map(GidChoice::Address);
        let choice = index.or_else(|_| address());
        choice.map_err(|_| ParseGidChoiceError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn parsed(text: &str) -> VerbsDevice {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn every_part_behind_the_name_may_be_left_out() {
        assert_eq!(parsed("mlx5_0"), VerbsDevice::new("mlx5_0"));
        assert_eq!(
            parsed("mlx5_0:2"),
            VerbsDevice::new("mlx5_0").with_port(PortNum(2))
        );
        let with_index = VerbsDevice::new("mlx5_0").with_gid(GidChoice::Index(3));
        assert_eq!(parsed("mlx5_0::3"), with_index);
        assert_eq!(parsed("mlx5_0:1:3"), with_index.with_port(PortNum(1)));
    }

    #[test]
    fn a_gid_may_be_an_ip_address_of_either_kind() {
        let v4 = GidChoice::Address(Ipv4Addr::new(192, 0, 2, 7).into());
        assert_eq!(parsed("rxe0:1:192.0.2.7").gid, v4);
        let v6 = GidChoice::Address("fe80::1".parse().unwrap());
        assert_eq!(parsed("rxe0:1:fe80::1").gid, v6);
    }

    #[test]
    fn a_device_prints_as_it_is_written() {
        for text in [
            "rxe0",
            "rxe0:2",
            "rxe0:1:3",
            "rxe0::192.0.2.7",
            "rxe0:1:fe80::1",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }

    #[test]
    fn refusals_name_the_part() {
        let refusal = |text: &str| text.parse::<VerbsDevice>().unwrap_err().to_string();
        assert!(refusal(":1").starts_with("invalid device ':1'"));
        assert_eq!(
            refusal("rxe0:0"),
            "invalid port '0' in 'rxe0:0': expected a number from 1 to 254"
        );
        assert!(refusal("rxe0:x:1").starts_with("invalid port 'x' in 'rxe0:x:1'"));
        assert_eq!(
            refusal("rxe0:1:eth0"),
            "invalid GID 'eth0' in 'rxe0:1:eth0': expected its index (0, 1, ...) or the port's IP address"
        );
    }
}
