//! `adverb model trace`: the steps of one round of a program.

use std::fs;
use std::io::Write;

use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, Interrupt, PresetChoice, Usage};
use adverb_patterns::EchoBy;
use adverb_predict::{Trace, Traced};
use adverb_results::{Opcode, Posting, Word};
use adverb_units::Bytes;
use adverb_verbs::PortCaps;
use adverb_workload::pair::{CellSpec, Request};
use anyhow::Context;

use crate::args::{Format, TraceArgs};
use crate::request::{DEFAULT_SIZE, checked, on_model, payload};
use crate::services::{queue_pair, why_not};
use crate::terminal;

/// Runs the program and shows one round of it.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let preset = preset(args)?;
    let hardware = Hardware::load(&preset)?;
    let info = DeviceInfo::of_model(&hardware)?;
    let traced = match args.op {
        Some(op) => of_operation(args, op, (&DeviceChoice::Model(preset), &info))?,
        None => of_reply(args, &info.port)?,
    };
    let interrupt = Interrupt::listen()?;
    let trace = Trace::of(&hardware, &traced, &|| interrupt.raised())?;
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

/// Returns a message of a ping, or a list of requests. It is refused if `adverb ping` or `adverb blast` refuses it.
fn of_operation(
    args: &TraceArgs,
    op: Opcode,
    device: (&DeviceChoice, &DeviceInfo),
) -> Result<Traced, Usage> {
    let size = payload(op, args.size)?;
    let mut request = Request {
        inline: args.inline,
        completion: args.completion,
        ..on_model(op, size)
    };
    request.traffic.transport = args.transport;
    if args.batch == 1 {
        let cell = checked(CellSpec::ping(request), device.0, device.1)?;
        return Ok(Traced::Ping(cell));
    }
    if op == Opcode::WriteRead {
        return Err(Usage(
            "--batch is for one kind of request: write-read has two".to_owned(),
        ));
    }
    request.buffers = args.batch;
    request.post = Posting::List;
    checked(CellSpec::blast(request), device.0, device.1)?;
    let payload = (bytes(size), args.inline);
    let transport = queue_pair(args.transport);
    Ok(Traced::list(
        (op, transport),
        payload,
        args.batch,
        args.completion,
    ))
}

/// Returns a request and its reply.
fn of_reply(args: &TraceArgs, port: &PortCaps) -> Result<Traced, Usage> {
    let (by, transport) = (args.by.unwrap_or(EchoBy::Send), args.transport);
    let (size, completion) = (args.size.unwrap_or(DEFAULT_SIZE), args.completion);
    if let Some(why) = why_not((by, transport), completion, ([size, size], port)) {
        return Err(Usage(format!("--by {} over {transport}: {why}", by.word())));
    }
    let size = bytes(size);
    Ok(Traced::rpc(by, queue_pair(transport), size, completion))
}

fn bytes(size: Bytes) -> u32 {
    u32::try_from(size.get()).unwrap_or(u32::MAX)
}
