//! The devices by name: what `--device` takes and `adverb devices` lists.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::str::FromStr;

use adverb_host::Machine;
use adverb_ibverbs::{Connecting, GidChoice, VerbsDevice};
use adverb_results::{DeviceKind, DeviceRef, Impairment, Site};
use adverb_softnic::SoftDevice;
use adverb_verbs::{Context, Device, DeviceCaps, PortCaps, PortNum};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{DevicesArgs, Format};
use crate::failure::one_line;
use crate::model::{self, Hardware, PresetChoice};
use crate::terminal;

/// The devices of this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum DeviceChoice {
    /// The user-space NIC.
    Soft(SoftAddress),
    /// A device behind libibverbs.
    Verbs(VerbsDevice),
    /// The model of some hardware, in virtual time.
    Model(PresetChoice),
}

/// Where the user-space NIC has its UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftAddress {
    /// Nowhere: it has its local port only.
    None,
    /// At the address by which the peer reaches this host.
    Met,
    /// At this address.
    At(IpAddr),
}

impl SoftAddress {
    const MET: &str = "auto";

    /// The device of a side whose port impairs what it sends.
    ///
    /// # Errors
    /// It has no UDP port, or is at no address yet.
    pub(crate) fn impaired(self, how: Impairment) -> anyhow::Result<SoftDevice> {
        match self {
            SoftAddress::At(ip) => Ok(SoftDevice::impaired_at(ip, how)),
            SoftAddress::None | SoftAddress::Met => {
                anyhow::bail!("{} has no UDP port to impair packets", self.name())
            }
        }
    }

    /// The device.
    ///
    /// # Errors
    /// No peer has met this host.
    pub(crate) fn device(self) -> anyhow::Result<SoftDevice> {
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

    /// Reads what stands behind `soft@`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::MET {
            return Ok(SoftAddress::Met);
        }
        let ip = text.parse().map_err(|_| {
            format!("'{text}' is no address: write soft@ADDR with an IPv4 or IPv6 address of this host, such as soft@10.0.0.1, or soft@{}", Self::MET)
        })?;
        Ok(SoftAddress::At(ip))
    }
}

impl DeviceChoice {
    /// The user-space NIC with its local port only.
    pub(crate) const SOFT: DeviceChoice = DeviceChoice::Soft(SoftAddress::None);

    /// As it stands in records.
    pub(crate) fn reference(&self) -> DeviceRef {
        match self {
            DeviceChoice::Soft(address) => DeviceRef {
                kind: DeviceKind::Soft,
                name: address.name(),
            },
            DeviceChoice::Verbs(device) => DeviceRef {
                kind: DeviceKind::Verbs,
                name: device.to_string(),
            },
            DeviceChoice::Model(preset) => DeviceRef {
                kind: DeviceKind::Model,
                name: preset.to_string(),
            },
        }
    }

    /// The same device, as a peer meets it that reaches this host by `address`: RoCE then uses that
    /// network, unless another GID was asked for.
    pub(crate) fn met_at(&self, address: Option<IpAddr>) -> Self {
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

    /// The same device and port of another host; its GID is for that host to choose.
    pub(crate) fn elsewhere(&self) -> Self {
        match self {
            DeviceChoice::Soft(SoftAddress::None) => Self::SOFT,
            DeviceChoice::Soft(_) => DeviceChoice::Soft(SoftAddress::Met),
            DeviceChoice::Verbs(device) => {
                DeviceChoice::Verbs(device.clone().with_gid(GidChoice::Automatic))
            }
            DeviceChoice::Model(_) => self.clone(),
        }
    }

    /// Whether its port can do this to packets.
    ///
    /// # Errors
    /// In words for the user.
    pub(crate) fn check_impairment(&self, asked: Option<&Impairment>) -> Result<(), String> {
        match (self, asked) {
            (_, None) => Ok(()),
            (DeviceChoice::Soft(SoftAddress::At(_) | SoftAddress::Met), _) => Ok(()),
            (_, Some(impairment)) => Err(format!(
                "{impairment}: {self} does nothing to packets on purpose: only the UDP port of the user-space device does; name it with --device soft@ADDR, such as soft@127.0.0.1"
            )),
        }
    }

    /// Whether its packets are understood by the other device. What the network between them does
    /// not carry is found out when queue pairs are connected.
    pub(crate) fn reaches(&self, other: &DeviceChoice) -> bool {
        let has_port = |address: &SoftAddress| *address != SoftAddress::None;
        match (self, other) {
            (DeviceChoice::Soft(one), DeviceChoice::Soft(other)) => {
                has_port(one) == has_port(other)
            }
            (DeviceChoice::Verbs(_), DeviceChoice::Verbs(_)) => true,
            // RoCE v2 is the same from whomever.
            (DeviceChoice::Soft(address), DeviceChoice::Verbs(_))
            | (DeviceChoice::Verbs(_), DeviceChoice::Soft(address)) => has_port(address),
            (DeviceChoice::Model(_), _) | (_, DeviceChoice::Model(_)) => false,
        }
    }

    /// Removes what processes that were killed have left.
    pub(crate) fn tidy(&self) {
        match self {
            // Opening reaps. If it fails, the next one to open will tell.
            DeviceChoice::Soft(address) => drop(address.device().map(|device| device.open())),
            // The kernel does.
            DeviceChoice::Verbs(_) => {}
            // It leaves nothing.
            DeviceChoice::Model(_) => {}
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // How queue pairs are connected is part of the choice, not of the device.
            DeviceChoice::Verbs(device) => f.pad(&format!("{}:{device}", device.kind())),
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
        match text.split_once(':') {
            None if text == "soft" => Ok(Self::SOFT),
            Some(("verbs", device)) => verbs(device, Connecting::ByHand),
            Some(("verbs+cm", device)) => verbs(device, Connecting::Manager),
            Some(("model", preset)) => preset.parse().map(DeviceChoice::Model),
            _ => Err(format!(
                "'{text}' is no device: use soft, soft@ADDR, verbs:NAME[:PORT[:GID]] or model:PRESET (see `adverb devices`)"
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

/// What is known of a device before anything is run on it.
pub(crate) struct DeviceInfo {
    pub(crate) reference: DeviceRef,
    pub(crate) caps: DeviceCaps,
    port_num: PortNum,
    pub(crate) port: PortCaps,
    /// This host, and what the device wants in a record's provenance.
    pub(crate) site: Site,
}

impl DeviceInfo {
    /// Asks the device.
    pub(crate) fn query(device: &DeviceChoice) -> anyhow::Result<Self> {
        match device {
            DeviceChoice::Soft(address) => Self::of(device, &address.device()?.open()?),
            DeviceChoice::Verbs(verbs) => Self::of(device, &verbs.open()?),
            DeviceChoice::Model(preset) => Self::of_model(&Hardware::load(preset)?),
        }
    }

    /// What a model can do; nothing of this host matters to it.
    pub(crate) fn of_model(hardware: &Hardware) -> anyhow::Result<Self> {
        let limits = hardware.limits()?;
        Ok(DeviceInfo {
            reference: hardware.reference(),
            caps: limits.caps,
            port_num: limits.port_num,
            port: limits.port,
            site: site(hardware.details()),
        })
    }

    fn of<C: Context>(device: &DeviceChoice, context: &C) -> anyhow::Result<Self> {
        let port_num = context.port_num();
        Ok(DeviceInfo {
            reference: device.reference(),
            caps: context.caps().clone(),
            port_num,
            port: context.port(port_num)?,
            site: site(context.provenance()),
        })
    }

    fn json(&self) -> serde_json::Value {
        let (caps, port) = (&self.caps, &self.port);
        json!({
            "kind": self.reference.kind,
            "name": self.reference.name,
            "caps": {
                "max_inline_bytes": caps.max_inline_data,
                "max_qp": caps.max_qp,
                "max_qp_wr": caps.max_qp_wr,
                "max_sge": caps.max_sge,
                "max_cq": caps.max_cq,
                "max_cqe": caps.max_cqe,
                "max_mr": caps.max_mr,
                "max_mr_bytes": caps.max_mr_size.get(),
                "max_qp_rd_atom": caps.max_qp_rd_atom,
                "atomics": caps.atomics.to_string(),
            },
            "ports": [{
                "port": self.port_num,
                "link_layer": port.link_layer.to_string(),
                "gid_index": port.gid_index,
                "gid": port.gid.to_string(),
                "gid_type": port.gid_type.map(|t| t.to_string()),
                "active_mtu_bytes": port.active_mtu.bytes().get(),
                "max_message_bytes": port.max_msg_sz.get(),
            }],
            "details": self.site.device,
        })
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (caps, port) = (&self.caps, &self.port);
        writeln!(out, "{}", self.reference)?;
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(out, "  {name:<24}{value}");
        line("kind", &kind_words(&self.reference))?;
        line(
            "largest inline payload",
            &format!("{} B", caps.max_inline_data),
        )?;
        line("largest message", &port.max_msg_sz)?;
        line("largest memory region", &caps.max_mr_size)?;
        line("memory regions", &caps.max_mr)?;
        line("queue pairs", &caps.max_qp)?;
        line("requests in a queue", &caps.max_qp_wr)?;
        line("pieces of a request", &caps.max_sge)?;
        line("completion queues", &caps.max_cq)?;
        line("entries of a queue", &caps.max_cqe)?;
        line("READs from a peer", &caps.max_qp_rd_atom)?;
        line("atomic operations", &caps.atomics)?;
        line(
            &format!("port {}", self.port_num),
            &match port.gid_type {
                Some(kind) if self.reference.kind == DeviceKind::Soft => {
                    format!("{}, GID {} ({kind})", port.link_layer, port.gid)
                }
                _ => format!("{}, GID {}", port.link_layer, port.gid),
            },
        )?;
        line("path MTU", &port.active_mtu.bytes())?;
        for (name, value) in &self.site.device {
            line(name, value)?;
        }
        Ok(())
    }
}

/// This host, with these details of a device.
fn site(device: Vec<(String, String)>) -> Site {
    let machine = Machine::this();
    Site {
        host: machine.host,
        kernel: machine.kernel,
        cpu: machine.cpu,
        cores: machine.cores,
        device: device.into_iter().collect(),
    }
}

fn kind_words(device: &DeviceRef) -> &'static str {
    match device.kind {
        DeviceKind::Soft if device.name != "soft" => {
            "user-space NIC with a UDP port: measures CPU, memory and UDP stack"
        }
        DeviceKind::Soft => "user-space NIC: measures this machine's CPU and memory",
        DeviceKind::Verbs => "device behind libibverbs",
        DeviceKind::Model => "virtual-time model: predicts",
    }
}

/// `adverb devices`.
pub(crate) fn list(args: &DevicesArgs) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if let Some(device) = &args.device {
        let info = DeviceInfo::query(device)?;
        if args.format == Format::Json {
            writeln!(out, "{}", info.json())?;
        } else {
            info.print(&mut out)?;
        }
        return Ok(());
    }
    list_real(&mut out, args.format)?;
    list_models(&mut out, args.format)
}

/// The devices of this machine, with what they can do.
fn list_real(out: &mut impl Write, format: Format) -> anyhow::Result<()> {
    let (choices, missing) = match adverb_ibverbs::devices() {
        Ok(devices) => (devices, None),
        Err(e) => (Vec::new(), Some(e)),
    };
    let choices = choices.into_iter().map(DeviceChoice::Verbs);
    for device in std::iter::once(DeviceChoice::SOFT).chain(choices) {
        match DeviceInfo::query(&device) {
            Ok(info) if format == Format::Json => writeln!(out, "{}", info.json())?,
            Ok(info) => {
                info.print(out)?;
                writeln!(out)?;
            }
            Err(e) if format == Format::Json => writeln!(out, "{}", unusable(&device, &e))?,
            Err(e) => writeln!(out, "{device}\n  {}\n", one_line(&e))?,
        }
    }
    if let Some(why) = missing.filter(|_| format == Format::Text) {
        writeln!(out, "No device behind libibverbs: {why}.")?;
        writeln!(out, "`adverb doctor` says more.\n")?;
    }
    Ok(())
}

/// The hardware that the model can be, one line each.
fn list_models(out: &mut impl Write, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        for hardware in Hardware::all().filter(Hardware::is_nic) {
            writeln!(out, "{}", DeviceInfo::of_model(&hardware)?.json())?;
        }
        return Ok(());
    }
    writeln!(out, "Models (predictions in virtual time; `adverb model`):")?;
    model::write_nics(out)
}

/// A device that is there and cannot be used.
fn unusable(device: &DeviceChoice, error: &anyhow::Error) -> serde_json::Value {
    let DeviceRef { kind, name } = device.reference();
    json!({ "kind": kind, "name": name, "error": one_line(error) })
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
    }

    #[test]
    fn a_device_is_read_as_it_is_written() {
        assert_eq!("soft".parse(), Ok(DeviceChoice::SOFT));
        assert_eq!(DeviceChoice::SOFT.to_string(), "soft");
        for text in [
            "soft@10.0.0.1",
            "soft@2001:db8::7",
            "soft@auto",
            "verbs:mlx5_0",
            "verbs:mlx5_0:2",
            "verbs:rxe0:1:192.0.2.7",
            "verbs+cm:mlx5_0:1:3",
            "model:cx3",
            "model:/a/b.toml",
        ] {
            let device: DeviceChoice = text.parse().unwrap();
            assert_eq!(device.to_string(), text);
            assert_eq!(serde_json::to_value(&device).unwrap(), text);
        }
        for text in ["soft:1", "verbs:", "verbs:a:b", "model:cx33", "mlx5_0"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
    }
}
