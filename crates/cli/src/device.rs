//! The devices by name: what `--device` takes and `adverb devices` lists.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use adverb_results::{DeviceKind, DeviceRef};
use adverb_softnic::SoftDevice;
use adverb_verbs::{Context, Device, DeviceCaps, PortCaps, PortNum};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The devices of this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DeviceChoice {
    /// The user-space NIC.
    Soft,
}

impl DeviceChoice {
    /// As it stands in records.
    pub(crate) fn reference(&self) -> DeviceRef {
        match self {
            DeviceChoice::Soft => DeviceRef {
                kind: DeviceKind::Soft,
                name: "soft".to_owned(),
            },
        }
    }

    /// Removes what processes that were killed have left.
    pub(crate) fn tidy(&self) {
        match self {
            // Opening reaps. If it fails, the next one to open will tell.
            DeviceChoice::Soft => drop(SoftDevice::new().open()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference().fmt(f)
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "soft" => Ok(DeviceChoice::Soft),
            Some(("verbs" | "model", _)) => Err(format!(
                "'{text}' is of a kind that this version does not have yet: use soft"
            )),
            _ => Err(format!(
                "'{text}' is no device: use soft (see `adverb devices`)"
            )),
        }
    }
}

/// What is known of a device before anything is run on it.
pub(crate) struct DeviceInfo {
    pub(crate) reference: DeviceRef,
    pub(crate) caps: DeviceCaps,
    pub(crate) port: PortCaps,
    /// What the device wants in a record's provenance.
    pub(crate) details: Vec<(String, String)>,
}

impl DeviceInfo {
    /// Asks the device.
    pub(crate) fn query(device: &DeviceChoice) -> anyhow::Result<Self> {
        let context = match device {
            DeviceChoice::Soft => SoftDevice::new().open()?,
        };
        Ok(DeviceInfo {
            reference: device.reference(),
            caps: context.caps().clone(),
            port: context.port(PortNum::ONE)?,
            details: context.provenance(),
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
            },
            "ports": [{
                "port": 1,
                "link_layer": format!("{:?}", port.link_layer),
                "gid": port.gid.to_string(),
                "active_mtu_bytes": port.active_mtu.bytes().get(),
                "max_message_bytes": port.max_msg_sz.get(),
            }],
            "details": self.details.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (caps, port) = (&self.caps, &self.port);
        writeln!(out, "{}", self.reference)?;
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(out, "  {name:<24}{value}");
        line("kind", &kind_words(self.reference.kind))?;
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
        line(
            "port 1",
            &format!("{:?}, GID {}", port.link_layer, port.gid),
        )?;
        line("path MTU", &port.active_mtu.bytes())?;
        for (name, value) in &self.details {
            line(name, value)?;
        }
        Ok(())
    }
}

fn kind_words(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Soft => "user-space NIC: measures this machine's CPU and memory",
        DeviceKind::Verbs => "hardware through libibverbs",
        DeviceKind::Model => "virtual-time model: predicts",
    }
}

/// `adverb devices`.
pub(crate) fn list(as_json: bool) -> anyhow::Result<()> {
    let info = DeviceInfo::query(&DeviceChoice::Soft)?;
    let mut out = anstream::stdout().lock();
    if as_json {
        writeln!(out, "{}", info.json())?;
        return Ok(());
    }
    info.print(&mut out)?;
    writeln!(
        out,
        "\nNot in this version yet: verbs:NAME (hardware through libibverbs), model:PRESET (virtual time)."
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_it_is_written() {
        assert_eq!("soft".parse(), Ok(DeviceChoice::Soft));
        assert_eq!(DeviceChoice::Soft.to_string(), "soft");
        assert!("soft:1".parse::<DeviceChoice>().is_err());
    }
}
