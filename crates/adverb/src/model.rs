//! `adverb model`: the presets of the model, and how well it predicts.

mod calibrate;
mod trace;
mod validate;

use std::io::Write;
use std::process::ExitCode;

use adverb_launch::Hardware;
use serde_json::json;

use crate::args::{Format, ModelCommand, ModelListArgs, ModelShowArgs};
use crate::terminal;

/// Columns of a preset's name in a list.
const NAME: usize = 22;

/// Runs one of its commands.
pub(crate) fn run(command: &ModelCommand) -> anyhow::Result<ExitCode> {
    match command {
        ModelCommand::List(args) => list(args)?,
        ModelCommand::Show(args) => show(args)?,
        ModelCommand::Trace(args) => trace::run(args)?,
        ModelCommand::Validate(args) => validate::run(args)?,
        ModelCommand::Calibrate(args) => calibrate::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ModelListArgs) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    if args.format == Format::Text {
        for hardware in Hardware::all() {
            write_line(&mut out, &hardware)?;
            writeln!(out, "{:NAME$}{}", "", hardware.support())?;
        }
        return Ok(());
    }
    for hardware in Hardware::all() {
        let Hardware { name, preset, .. } = &hardware;
        let (kind, summary) = (preset.kind.name(), &preset.summary);
        let support = support(&hardware);
        let line = json!({ "name": name, "kind": kind, "summary": summary, "support": support });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Lists the NIC presets that come with Adverb, one per line.
pub(crate) fn write_nics(out: &mut impl Write) -> anyhow::Result<()> {
    for hardware in Hardware::all().filter(Hardware::is_nic) {
        write_line(out, &hardware)?;
    }
    Ok(())
}

/// Writes its name, as `--device` takes it if it is a NIC, and what it is.
fn write_line(out: &mut impl Write, hardware: &Hardware) -> anyhow::Result<()> {
    let name = match hardware.is_nic() {
        true => hardware.reference().to_string(),
        false => hardware.name.clone(),
    };
    Ok(writeln!(out, "{name:<NAME$}{}", hardware.preset.summary)?)
}

fn show(args: &ModelShowArgs) -> anyhow::Result<()> {
    let hardware = Hardware::load(&args.preset)?;
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        return Ok(writeln!(out, "{}", as_json(&hardware))?);
    }
    let preset = &hardware.preset;
    if hardware.is_nic() {
        writeln!(out, "{}", hardware.reference())?;
    } else {
        // It cannot be named after `--device`.
        writeln!(out, "{}", hardware.name)?;
    }
    writeln!(out, "{}", preset.summary)?;
    writeln!(out, "support: {}", hardware.support())?;
    let estimates = preset.fields().filter(|field| preset.is_estimate(field));
    let (estimates, all) = (estimates.count(), preset.fields().count());
    writeln!(
        out,
        "estimates: {estimates} of {all} parameters, whose sources begin with 'mechanism estimate'"
    )?;
    writeln!(out, "kind = {}", preset.kind.name())?;
    if hardware.is_nic() {
        writeln!(out, "driver = {}", preset.driver.name())?;
        writeln!(out, "link_layer = {}", preset.link_layer)?;
    }
    for field in preset.fields() {
        let value = (field.get)(&preset.params);
        let source = preset.source(field.path).unwrap_or_default();
        let line = format!("{} = {value} {}", field.path, unit(field.path));
        writeln!(out, "\n{}", line.trim_end())?;
        for line in textwrap::wrap(field.doc.trim(), 92) {
            writeln!(out, "    {line}")?;
        }
        for line in textwrap::wrap(&format!("source: {source}"), 92) {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

fn as_json(hardware: &Hardware) -> serde_json::Value {
    let preset = &hardware.preset;
    let parameters = preset.fields().map(|field| {
        json!({
            "name": field.path,
            "value": (field.get)(&preset.params),
            "unit": Some(unit(field.path)).filter(|unit| !unit.is_empty()),
            "min": field.min,
            "max": field.max,
            "meaning": field.doc.trim(),
            "source": preset.source(field.path),
        })
    });
    let of_nic = |name: String| Some(name).filter(|_| hardware.is_nic());
    json!({
        "name": hardware.name,
        "kind": preset.kind.name(),
        "summary": preset.summary,
        "support": support(hardware),
        "driver": of_nic(preset.driver.name().to_owned()),
        "link_layer": of_nic(preset.link_layer.to_string()),
        "parameters": parameters.collect::<Vec<_>>(),
    })
}

fn support(hardware: &Hardware) -> serde_json::Value {
    let support = hardware.support();
    let known = |percent| (support.values > 0).then_some(percent);
    json!({
        "values": support.values,
        "fitted": support.fitted,
        "typical_percent": known(support.typical_percent),
        "worst_percent": known(support.worst_percent),
    })
}

/// Returns the unit at the end of a parameter's name; empty for counts.
fn unit(path: &str) -> &'static str {
    const UNITS: [(&str, &str); 5] = [
        ("_ns", "ns"),
        ("_bytes", "B"),
        ("_mops", "M/s"),
        ("_mib", "MiB"),
        ("gbps", "Gb/s"),
    ];
    let found = UNITS.iter().find(|(end, _)| path.ends_with(end));
    found.map_or("", |(_, unit)| unit)
}
