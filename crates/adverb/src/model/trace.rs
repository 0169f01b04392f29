//! `adverb model trace`: the steps of one message of a ping.

use std::fs;
use std::io::Write;

use adverb_launch::{DeviceChoice, Hardware, Interrupt, PresetChoice, Usage};
use adverb_predict::Trace;
use adverb_workload::pair::{CellSpec, Request};
use anyhow::Context;

use crate::args::{Format, TraceArgs};
use crate::request::on_model;
use crate::terminal;

/// Runs the ping and shows one round of it.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let hardware = Hardware::load(&preset(args)?)?;
    let spec = spec(args);
    spec.validate(&hardware.limits()?.caps)
        .map_err(|e| Usage(e.to_string()))?;
    let interrupt = Interrupt::listen()?;
    let trace = Trace::of(&hardware, spec, &|| interrupt.raised())?;
    if let Some(path) = &args.svg {
        fs::write(path, trace.picture().svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = terminal::stdout();
    match args.format {
        Format::Json => writeln!(out, "{}", trace.json())?,
        Format::Text => write!(out, "{}", trace.text(textwrap::termwidth()))?,
    }
    Ok(())
}

fn preset(args: &TraceArgs) -> Result<PresetChoice, Usage> {
    match (&args.model, &args.device, &args.preset) {
        (Some(preset), ..) | (_, Some(DeviceChoice::Model(preset)), _) => Ok(preset.clone()),
        (.., Some(file)) => Ok(PresetChoice::file(file)),
        (_, Some(device), _) => Err(Usage(format!(
            "--device {device}: only a model can be traced; name one, such as model:cx3"
        ))),
        _ => Err(Usage(
            "which hardware? Name a preset, such as cx3 (`adverb model list`)".to_owned(),
        )),
    }
}

fn spec(args: &TraceArgs) -> CellSpec {
    CellSpec::ping(Request {
        inline: args.inline,
        completion: args.completion,
        ..on_model(args.op, args.size)
    })
}
