//! `adverb model trace`: the steps of one round of a program.

use std::fs;
use std::io::Write;

use adverb_launch::{DeviceChoice, Hardware, Interrupt, PresetChoice, Usage};
use adverb_patterns::EchoBy;
use adverb_predict::{Trace, Traced};
use adverb_results::{Opcode, Word};
use adverb_units::Bytes;
use adverb_workload::Program;
use adverb_workload::pair::{CellSpec, Request};
use anyhow::Context;

use crate::args::{Format, TraceArgs};
use crate::request::{DEFAULT_SIZE, on_model, payload};
use crate::services::queue_pair;
use crate::terminal;

/// Runs the program and shows one round of it.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let hardware = Hardware::load(&preset(args)?)?;
    let traced = traced(args)?;
    let caps = hardware.limits()?.caps;
    Program::check(&traced.job(), &caps).map_err(Usage)?;
    let interrupt = Interrupt::listen()?;
    let trace = Trace::of(&hardware, traced, &|| interrupt.raised())?;
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

fn traced(args: &TraceArgs) -> Result<Traced, Usage> {
    let completion = args.completion;
    let bytes = |size: Bytes| u32::try_from(size.get()).unwrap_or(u32::MAX);
    let Some(op) = args.op else {
        let by = args.by.unwrap_or(EchoBy::Send);
        let transport = queue_pair(args.transport.unwrap_or_default());
        if let Some(why) = by.refusal(transport, completion) {
            return Err(Usage(format!("--by {} over {transport}: {why}", by.word())));
        }
        let size = bytes(args.size.unwrap_or(DEFAULT_SIZE));
        return Ok(Traced::rpc(by, transport, size, completion));
    };
    let size = payload(op, args.size)?;
    match args.batch {
        1 => Ok(Traced::Ping(CellSpec::ping(Request {
            inline: args.inline,
            completion,
            ..on_model(op, size)
        }))),
        _ if op == Opcode::WriteRead => Err(Usage(
            "--batch is for one kind of request: write-read has two".to_owned(),
        )),
        requests => {
            let payload = (bytes(size), args.inline);
            Ok(Traced::list(op, payload, requests, completion))
        }
    }
}
