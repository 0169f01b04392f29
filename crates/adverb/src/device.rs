//! `adverb devices`: the devices and their limits.

use std::fmt;
use std::io::Write;

use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, TcpAddress, one_line};
use adverb_results::{DeviceKind, DeviceRef};
use adverb_units::Bytes;
use serde_json::json;

use crate::args::{DevicesArgs, Format};
use crate::model;
use crate::terminal;

fn to_json(info: &DeviceInfo) -> serde_json::Value {
    let (caps, port) = (&info.caps, &info.port);
    json!({
        "kind": info.reference.kind,
        "name": info.reference.name,
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
            "port": info.port_num,
            "link_layer": port.link_layer.to_string(),
            "gid_index": port.gid_index,
            "gid": port.gid.to_string(),
            "gid_type": port.gid_type.map(|t| t.to_string()),
            "active_mtu_bytes": port.active_mtu.bytes().get(),
            "max_message_bytes": port.max_msg_sz.get(),
        }],
        "details": info.site.device,
    })
}

fn print(info: &DeviceInfo, out: &mut impl Write) -> std::io::Result<()> {
    let (caps, port) = (&info.caps, &info.port);
    writeln!(out, "{}", info.reference)?;
    let mut line = |name: &str, value: &dyn fmt::Display| writeln!(out, "  {name:<24}{value}");
    line("kind", &kind_words(&info.reference))?;
    if info.reference.kind == DeviceKind::Tcp {
        let mut details = info.site.device.iter();
        return details.try_for_each(|(name, value)| line(name, value));
    }
    // The names that `ibv_devinfo -v` prints; it has none for `max_inline_data`, a field of `ibv_qp_cap`.
    line("max_inline_data", &Bytes::new(caps.max_inline_data.into()))?;
    line("max_msg_sz", &port.max_msg_sz)?;
    line("max_mr_size", &caps.max_mr_size)?;
    line("max_mr", &caps.max_mr)?;
    line("max_qp", &caps.max_qp)?;
    line("max_qp_wr", &caps.max_qp_wr)?;
    line("max_sge", &caps.max_sge)?;
    line("max_cq", &caps.max_cq)?;
    line("max_cqe", &caps.max_cqe)?;
    line("max_qp_rd_atom", &caps.max_qp_rd_atom)?;
    line("atomic_cap", &caps.atomics)?;
    line(
        &format!("port {}", info.port_num),
        &match port.gid_type {
            Some(kind) if info.reference.kind == DeviceKind::Soft => {
                format!("{}, GID {} ({kind})", port.link_layer, port.gid)
            }
            _ => format!("{}, GID {}", port.link_layer, port.gid),
        },
    )?;
    line("active_mtu", &port.active_mtu.bytes())?;
    for (name, value) in &info.site.device {
        line(name, value)?;
    }
    Ok(())
}

fn kind_words(device: &DeviceRef) -> &'static str {
    match device.kind {
        DeviceKind::Soft if device.name != "soft" => {
            "user-space NIC with a UDP port: measures CPU, memory and UDP stack"
        }
        DeviceKind::Soft => "user-space NIC: measures this machine's CPU and memory",
        DeviceKind::Verbs => "device behind libibverbs",
        DeviceKind::Model => "virtual-time model: predicts",
        DeviceKind::Tcp => "kernel TCP, without RDMA: what RDMA is compared with",
    }
}

/// `adverb devices`.
pub(crate) fn list(args: &DevicesArgs) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if let Some(device) = &args.device {
        let info = DeviceInfo::query(device)?;
        if args.format == Format::Json {
            writeln!(out, "{}", to_json(&info))?;
        } else {
            print(&info, &mut out)?;
        }
        return Ok(());
    }
    list_real(&mut out, args.format)?;
    list_models(&mut out, args.format)
}

/// Lists the devices of this machine with their limits.
fn list_real(out: &mut impl Write, format: Format) -> anyhow::Result<()> {
    let (choices, missing) = match adverb_ibverbs::devices() {
        Ok(devices) => (devices, None),
        Err(e) => (Vec::new(), Some(e)),
    };
    let choices = choices.into_iter().map(DeviceChoice::Verbs);
    let tcp = DeviceChoice::Tcp(TcpAddress::default());
    for device in [DeviceChoice::SOFT, tcp].into_iter().chain(choices) {
        match DeviceInfo::query(&device) {
            Ok(info) if format == Format::Json => writeln!(out, "{}", to_json(&info))?,
            Ok(info) => {
                print(&info, out)?;
                writeln!(out)?;
            }
            Err(e) if format == Format::Json => writeln!(out, "{}", unusable(&device, &e))?,
            Err(e) => writeln!(out, "{device}\n  {}\n", one_line(&e))?,
        }
    }
    if let Some(why) = missing.filter(|_| format == Format::Text) {
        writeln!(out, "No device behind libibverbs: {why}.")?;
        writeln!(out, "`adverb doctor` checks the causes.\n")?;
    }
    Ok(())
}

/// Lists the model presets, one per line.
fn list_models(out: &mut impl Write, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        for hardware in Hardware::all().filter(Hardware::is_nic) {
            writeln!(out, "{}", to_json(&DeviceInfo::of_model(&hardware)?))?;
        }
        return Ok(());
    }
    writeln!(out, "Models (predictions in virtual time; `adverb model`):")?;
    model::write_nics(out)
}

/// A device that exists but cannot be used.
fn unusable(device: &DeviceChoice, error: &anyhow::Error) -> serde_json::Value {
    let DeviceRef { kind, name } = device.reference();
    json!({ "kind": kind, "name": name, "error": one_line(error) })
}
