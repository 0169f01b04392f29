//! Which device, port and GID: what the user writes after `verbs:`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use adverb_verbs::PortNum;

/// A device of `libibverbs`, by name: `mlx5_0`, `mlx5_0:2`, `mlx5_0:1:3`, `rxe0:1:192.0.2.7`.
///
/// The text form is `NAME[:PORT[:GID]]`; GID is an index into the port's table, or an IP address
/// of the port, the one that peers are to reach it by. Left out or empty, the port is the first
/// active one, and the GID is chosen by [`GidChoice::Automatic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsDevice {
    pub(crate) name: String,
    pub(crate) port: Option<PortNum>,
    pub(crate) gid: GidChoice,
    connecting: Connecting,
    pub(crate) posting: Interface,
    pub(crate) polling: Interface,
}

/// How the GID that peers reach a port by is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GidChoice {
    /// RoCE: version 2 over IPv4 first, then over IPv6 (global, then link-local), then version 1.
    /// InfiniBand: index 0.
    #[default]
    Automatic,
    /// The entry of this index.
    Index(u32),
    /// The entry of this IP address, version 2 of RoCE first.
    Address(IpAddr),
    /// The same where there is one, else automatic: for the address that a peer already reaches this
    /// host by, which may or may not be one of the port's.
    Nearest(IpAddr),
}

/// How queue pairs are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Connecting {
    /// With the numbers that programs exchange; iWARP, which has no such way, through `librdmacm`.
    #[default]
    ByHand,
    /// Through `librdmacm`.
    Manager,
}

/// Through which of its interfaces a driver is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// `ibv_post_send`, `ibv_poll_cq`: requests and completions are structures.
    #[default]
    Classic,
    /// `ibv_wr_*`, `ibv_start_poll` and following: requests are written and completions are read
    /// by calls into the driver. Not every driver has it.
    Extended,
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
    /// The device called `name`, its port and GID chosen automatically.
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

    /// Its name in `libibverbs`, as in `ibv_devices`.
    pub fn ibv_name(&self) -> &str {
        &self.name
    }

    /// The same device by this port.
    #[must_use]
    pub fn with_port(self, port: PortNum) -> Self {
        VerbsDevice {
            port: Some(port),
            ..self
        }
    }

    /// The same device with this GID.
    #[must_use]
    pub fn with_gid(self, gid: GidChoice) -> Self {
        VerbsDevice { gid, ..self }
    }

    /// The same device; unless its GID was chosen, it is that of `address` if the port has one.
    #[must_use]
    pub fn met_at(self, address: IpAddr) -> Self {
        match self.gid {
            GidChoice::Automatic => self.with_gid(GidChoice::Nearest(address)),
            _ => self,
        }
    }

    /// The same device, its queue pairs connected so.
    #[must_use]
    pub fn with_connecting(self, connecting: Connecting) -> Self {
        VerbsDevice { connecting, ..self }
    }

    /// How its queue pairs are connected.
    pub fn connecting(&self) -> Connecting {
        self.connecting
    }

    /// The kind that its whole name begins with: `verbs`, or `verbs+cm` where queue pairs are
    /// connected through `librdmacm`.
    pub fn kind(&self) -> &'static str {
        match self.connecting {
            Connecting::ByHand => "verbs",
            Connecting::Manager => "verbs+cm",
        }
    }

    /// The same device, requests posted through `posting`.
    #[must_use]
    pub fn with_posting(self, posting: Interface) -> Self {
        VerbsDevice { posting, ..self }
    }

    /// The same device, completions polled through `polling`.
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

/// Why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing before the first colon.
    #[error(
        "'{0}' names no device: write NAME[:PORT[:GID]], such as mlx5_0:1:3; ibv_devices lists the names"
    )]
    Empty(String),
    /// The part that is to be a port is none.
    #[error("'{port}' in '{text}' is no port: ports are numbered from 1 to 254")]
    Port {
        /// All of it.
        text: String,
        /// The part.
        port: String,
    },
    /// The part that is to be a GID is none.
    #[error("'{gid}' in '{text}' is no GID: write its index (0, 1, ...) or the port's IP address")]
    Gid {
        /// All of it.
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
        assert!(refusal(":1").starts_with("':1' names no device"));
        assert_eq!(
            refusal("rxe0:0"),
            "'0' in 'rxe0:0' is no port: ports are numbered from 1 to 254"
        );
        assert!(refusal("rxe0:x:1").starts_with("'x' in 'rxe0:x:1' is no port"));
        assert_eq!(
            refusal("rxe0:1:eth0"),
            "'eth0' in 'rxe0:1:eth0' is no GID: write its index (0, 1, ...) or the port's IP address"
        );
    }
}
