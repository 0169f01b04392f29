//! Devices by name, as `--device` takes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use adverb_ibverbs::{Connecting, GidChoice, VerbsDevice};
use adverb_results::{DeviceKind, DeviceRef, Impairment};
use adverb_softnic::SoftDevice;
use adverb_verbs::{Device, Probability};
use serde::{Deserialize, Serialize};

use crate::hardware::PresetChoice;
use crate::text::Usage;

/// A device, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// The user-space NIC.
    Soft(SoftAddress),
    /// A device behind libibverbs.
    Verbs(VerbsDevice),
    /// A model of NIC hardware, in virtual time.
    Model(PresetChoice),
    /// The kernel's TCP, without verbs.
    Tcp(TcpAddress),
}

/// Where `tcp` listens, and connects from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpAddress {
    /// By default the address by which the peer reaches this host, or 127.0.0.1 without a peer.
    ip: Option<IpAddr>,
    /// Where it listens; 0 is any free port.
    port: u16,
}

impl TcpAddress {
    /// The address to use on a host that its peer reaches at `reached_at`.
    pub fn on_host(self, reached_at: Option<IpAddr>) -> SocketAddr {
        let ip = self.ip.or(reached_at.map(|ip| ip.to_canonical()));
        SocketAddr::new(ip.unwrap_or(Ipv4Addr::LOCALHOST.into()), self.port)
    }

    /// The device in records, which do not depend on the port.
    fn name(self) -> String {
        self.ip
            .map_or_else(|| "tcp".to_owned(), |ip| format!("tcp@{ip}"))
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, self.port) {
            (Some(ip), port) if port != 0 => write!(f, "tcp@{}", SocketAddr::new(ip, port)),
            _ => f.write_str(&self.name()),
        }
    }
}

impl FromStr for TcpAddress {
    type Err = String;

    /// Reads what follows `tcp@`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            let (ip, port) = (Some(ip), 0);
            return Ok(TcpAddress { ip, port });
        }
        let at: SocketAddr = text.parse().map_err(|_| {
            format!("invalid address '{text}': expected tcp@ADDR or tcp@ADDR:PORT with an address of this host, such as tcp@10.0.0.1 or tcp@[2001:db8::1]:7000")
        })?;
        let (ip, port) = (Some(at.ip()), at.port());
        Ok(TcpAddress { ip, port })
    }
}

/// Address of the user-space NIC's UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftAddress {
    /// It has no UDP port, only its local port.
    None,
    /// The address by which the peer reaches this host (`soft@auto`).
    Met,
    /// The UDP port at this address.
    At(IpAddr),
}

impl SoftAddress {
    const MET: &str = "auto";

    /// Returns the device, whose port injects faults into the packets that it sends.
    ///
    /// # Errors
    /// It has no UDP port, or its address is not known yet.
    pub fn impaired(self, how: Impairment) -> anyhow::Result<SoftDevice> {
        match self {
            SoftAddress::At(ip) => Ok(SoftDevice::impaired_at(ip, how)),
            SoftAddress::None | SoftAddress::Met => {
                anyhow::bail!("{} has no UDP port in which to inject faults", self.name())
            }
        }
    }

    /// Returns the device.
    ///
    /// # Errors
    /// The address depends on the peer, and there is none.
    pub fn device(self) -> anyhow::Result<SoftDevice> {
        match self {
            SoftAddress::None => Ok(SoftDevice::new()),
            SoftAddress::At(ip) => Ok(SoftDevice::at(ip)),
            SoftAddress::Met => anyhow::bail!(
                "soft@{} is at the address by which a peer reaches this host, and there is no peer: name the address",
                Self::MET
            ),
        }
    }

    fn name(self) -> String {
        match self {
            SoftAddress::None => "soft".to_owned(),
            SoftAddress::Met => format!("soft@{}", Self::MET),
            SoftAddress::At(ip) => format!("soft@{ip}"),
        }
    }
}

impl FromStr for SoftAddress {
    type Err = String;

    /// Parses the text after `soft@`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::MET {
            return Ok(SoftAddress::Met);
        }
        let ip = text.parse().map_err(|_| {
            format!("invalid address '{text}': expected soft@ADDR with an IPv4 or IPv6 address of this host, such as soft@10.0.0.1, or soft@{}", Self::MET)
        })?;
        Ok(SoftAddress::At(ip))
    }
}

impl DeviceChoice {
    /// The user-space NIC with its local port only.
    pub const SOFT: DeviceChoice = DeviceChoice::Soft(SoftAddress::None);

    /// Returns the device as records name it.
    pub fn reference(&self) -> DeviceRef {
        let (kind, name) = match self {
            DeviceChoice::Soft(address) => (DeviceKind::Soft, address.name()),
            DeviceChoice::Verbs(device) => (DeviceKind::Verbs, device.to_string()),
            DeviceChoice::Model(preset) => (DeviceKind::Model, preset.to_string()),
            DeviceChoice::Tcp(address) => (DeviceKind::Tcp, address.name()),
        };
        DeviceRef { kind, name }
    }

    /// Returns the same device as seen by a peer that reaches this host at `address`: RoCE uses the network
    /// of that address, unless another GID was chosen.
    pub fn met_at(&self, address: Option<IpAddr>) -> Self {
        match (self, address) {
            (DeviceChoice::Verbs(device), Some(address)) => {
                DeviceChoice::Verbs(device.clone().met_at(address))
            }
            (DeviceChoice::Soft(SoftAddress::Met), Some(address)) => {
                DeviceChoice::Soft(SoftAddress::At(address.to_canonical()))
            }
            _ => self.clone(),
        }
    }

    /// Returns the same device and port on another host, which chooses the GID.
    pub fn elsewhere(&self) -> Self {
        match self {
            DeviceChoice::Soft(SoftAddress::None) => Self::SOFT,
            DeviceChoice::Soft(_) => DeviceChoice::Soft(SoftAddress::Met),
            DeviceChoice::Verbs(device) => {
                DeviceChoice::Verbs(device.clone().with_gid(GidChoice::Automatic))
            }
            DeviceChoice::Tcp(_) => DeviceChoice::Tcp(TcpAddress::default()),
            DeviceChoice::Model(_) => self.clone(),
        }
    }

    /// Returns the same device with this GID of its port.
    ///
    /// # Errors
    /// The device has no GID table, or already names a GID.
    pub fn with_gid(&self, gid: GidChoice) -> Result<Self, Usage> {
        let DeviceChoice::Verbs(device) = self else {
            return Err(Usage(format!(
                "--gid: {self} has no GID table; name a device behind libibverbs with --device verbs:NAME, or leave it out"
            )));
        };
        if *self != self.elsewhere() {
            return Err(Usage(format!(
                "--gid: {self} already names a GID; leave out one of them"
            )));
        }
        Ok(DeviceChoice::Verbs(device.clone().with_gid(gid)))
    }

    /// Checks that the device's port can inject these faults.
    ///
    /// # Errors
    /// It cannot; the text is for the user.
    pub fn check_impairment(&self, asked: Option<&Impairment>) -> Result<(), String> {
        match (self, asked) {
            (_, None) => Ok(()),
            (DeviceChoice::Soft(SoftAddress::At(_) | SoftAddress::Met), _) => Ok(()),
            (DeviceChoice::Model(_), Some(impairment)) => {
                let absent = [
                    ("--duplicate", impairment.duplicate),
                    ("--reorder", impairment.reorder),
                ];
                let absent = absent.iter().find(|(_, share)| *share != Probability::ZERO);
                absent.map_or(Ok(()), |(flag, share)| {
                    Err(format!(
                        "{flag} {share}: {self} neither duplicates nor reorders packets; leave it out, or name a UDP port with --device soft@ADDR"
                    ))
                })
            }
            (_, Some(impairment)) => Err(format!(
                "{impairment}: {self} injects no faults: only models and the UDP port of the user-space device do; name it with --device soft@ADDR, such as soft@127.0.0.1, or run the programs behind `adverb degen`"
            )),
        }
    }

    /// Whether the two devices use the same protocol. Whether the network between them carries it is found
    /// out when queue pairs are connected.
    pub fn reaches(&self, other: &DeviceChoice) -> bool {
        let has_port = |address: &SoftAddress| *address != SoftAddress::None;
        match (self, other) {
            (DeviceChoice::Soft(one), DeviceChoice::Soft(other)) => {
                has_port(one) == has_port(other)
            }
            (DeviceChoice::Verbs(_), DeviceChoice::Verbs(_))
            | (DeviceChoice::Tcp(_), DeviceChoice::Tcp(_)) => true,
            // RoCE v2 of any implementation.
            (DeviceChoice::Soft(address), DeviceChoice::Verbs(_))
            | (DeviceChoice::Verbs(_), DeviceChoice::Soft(address)) => has_port(address),
            (DeviceChoice::Model(_) | DeviceChoice::Tcp(_), _)
            | (_, DeviceChoice::Model(_) | DeviceChoice::Tcp(_)) => false,
        }
    }

    /// Whether a connection manager connects its queue pairs.
    pub fn is_managed(&self) -> bool {
        matches!(self, DeviceChoice::Verbs(device) if device.connecting() == Connecting::Manager)
    }

    /// Removes the files that killed processes left behind.
    pub fn tidy(&self) {
        match self {
            // Opening removes them. If it fails, the next process that opens the device reports it.
            DeviceChoice::Soft(address) => drop(address.device().map(|device| device.open())),
            // The kernel cleans up.
            DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => {}
            // A model leaves no files.
            DeviceChoice::Model(_) => {}
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // How queue pairs are connected is part of the choice, not of the device.
            DeviceChoice::Verbs(device) => f.pad(&format!("{}:{device}", device.kind())),
            DeviceChoice::Tcp(address) => f.pad(&address.to_string()),
            DeviceChoice::Soft(_) | DeviceChoice::Model(_) => self.reference().fmt(f),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(address) = text.strip_prefix("soft@") {
            return address.parse().map(DeviceChoice::Soft);
        }
        if let Some(address) = text.strip_prefix("tcp@") {
            return address.parse().map(DeviceChoice::Tcp);
        }
        match text.split_once(':') {
            None if text == "soft" => Ok(Self::SOFT),
            None if text == "tcp" => Ok(DeviceChoice::Tcp(TcpAddress::default())),
            Some(("verbs", device)) => verbs(device, Connecting::ByHand),
            Some(("verbs+cm", device)) => verbs(device, Connecting::Manager),
            Some(("model", preset)) => preset.parse().map(DeviceChoice::Model),
            _ => Err(format!(
                "invalid device '{text}': expected soft, soft@ADDR, verbs:NAME[:PORT[:GID]], model:PRESET or tcp (see `adverb devices`)"
            )),
        }
    }
}

fn verbs(text: &str, connecting: Connecting) -> Result<DeviceChoice, String> {
    let device = text.parse::<VerbsDevice>().map_err(|e| e.to_string())?;
    Ok(DeviceChoice::Verbs(device.with_connecting(connecting)))
}

impl From<DeviceChoice> for String {
    fn from(device: DeviceChoice) -> String {
        device.to_string()
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_reach_their_kind_and_roce_reaches_roce() {
        let reaches = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse::<DeviceChoice>().unwrap());
            assert_eq!(one.reaches(&other), other.reaches(&one));
            one.reaches(&other)
        };
        assert!(reaches("soft", "soft"));
        assert!(reaches("soft@10.0.0.1", "soft@auto"));
        assert!(reaches("soft@10.0.0.1", "verbs:mlx5_0"));
        assert!(reaches("verbs:rxe0", "verbs:mlx5_0"));
        assert!(!reaches("soft", "soft@10.0.0.1"));
        assert!(!reaches("soft", "verbs:mlx5_0"));
        assert!(!reaches("soft@10.0.0.1", "model:cx3"));
        assert!(reaches("tcp", "tcp@10.0.0.1:7000"));
        assert!(!reaches("tcp", "soft@10.0.0.1") && !reaches("tcp", "model:cx3"));
    }

    #[test]
    fn a_device_is_read_as_it_is_written() {
        assert_eq!("soft".parse(), Ok(DeviceChoice::SOFT));
        assert_eq!(DeviceChoice::SOFT.to_string(), "soft");
        let texts = "soft@10.0.0.1 soft@2001:db8::7 soft@auto verbs:mlx5_0 verbs:mlx5_0:2 \
                     verbs:rxe0:1:192.0.2.7 verbs+cm:mlx5_0:1:3 model:cx3 model:/a/b.toml \
                     tcp tcp@10.0.0.1 tcp@10.0.0.1:7000 tcp@::1 tcp@[::1]:7000";
        for text in texts.split(' ') {
            let device: DeviceChoice = text.parse().unwrap();
            assert_eq!(device.to_string(), text);
            assert_eq!(serde_json::to_value(&device).unwrap(), text);
        }
        for text in
            "soft:1 verbs: verbs:a:b model:cx33 mlx5_0 tcp@ tcp@here tcp:7 tcp@::1:x".split(' ')
        {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }
}
