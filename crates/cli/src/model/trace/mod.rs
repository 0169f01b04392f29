//! `adverb model trace`: what one message of a ping consists of.
//!
//! The ping is the one of `adverb ping`; the model notes the steps of it, and one round in the middle
//! is shown.

mod journey;
mod text;

use std::fs;
use std::io::Write;

use adverb_hwmodel::trace::Component;
use adverb_launch::{DeviceChoice, Hardware, Interrupt, PresetChoice, Usage};
use adverb_report::timeline::{Bar, Lane, Timeline, Weight};
use adverb_results::Opcode;
use adverb_studies::{CellSpec, Request};
use adverb_units::Time;
use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use crate::args::{Format, TraceArgs};
use crate::model::cell;
use crate::request::on_model;
use crate::table;
use crate::terminal;
use journey::{Journey, Leg, Piece};

/// A traced ping.
struct Trace {
    device: String,
    spec: CellSpec,
    journey: Journey,
    /// What ping reports of the same run.
    ping_ns: f64,
}

/// Runs, and shows.
pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let hardware = Hardware::load(&preset(args)?)?;
    let spec = spec(args);
    spec.validate(&hardware.limits()?.caps)
        .map_err(|e| Usage(e.to_string()))?;
    let trace = trace(&hardware, spec)?;
    if let Some(path) = &args.svg {
        fs::write(path, trace.picture().svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = terminal::stdout();
    if args.format == Format::Json {
        writeln!(out, "{}", trace.json())?;
    } else {
        write!(out, "{}", text::draw(&trace, textwrap::termwidth()))?;
    }
    Ok(())
}

fn preset(args: &TraceArgs) -> Result<PresetChoice, Usage> {
    match (&args.model, &args.device, &args.preset) {
        (Some(preset), ..) | (_, Some(DeviceChoice::Model(preset)), _) => Ok(preset.clone()),
        (.., Some(file)) => Ok(PresetChoice::file(file)),
        (_, Some(device), _) => Err(Usage(format!(
            "--device {device}: only a model knows what a message consists of; name one, such as model:cx3"
        ))),
        _ => Err(Usage(
            "which hardware? Name a preset, such as cx3 (`adverb model list`)".to_owned(),
        )),
    }
}

fn spec(args: &TraceArgs) -> CellSpec {
    CellSpec::ping(Request {
        inline: args.inline,
        completion: args.completion.into(),
        ..on_model(args.op.into(), args.size)
    })
}

fn trace(hardware: &Hardware, spec: CellSpec) -> anyhow::Result<Trace> {
    let interrupt = Interrupt::listen()?;
    let mut cluster = cell::cluster(hardware);
    cluster.trace();
    let Some(end) = cell::run_in(&mut cluster, &spec, &|| interrupt.raised()) else {
        bail!("interrupted");
    };
    let result = end
        .result
        .map_err(|reason| anyhow!("{}: {reason}", spec.id))?;
    let posts = match spec.params.op {
        Opcode::WriteRead => 2,
        _ => 1,
    };
    let journey = Journey::of(&cluster.steps(), posts)
        .ok_or_else(|| anyhow!("{}: no whole round was noted", spec.id))?;
    Ok(Trace {
        device: hardware.reference().to_string(),
        journey,
        ping_ns: result.metrics.one_way_ns.mean.unwrap_or(f64::NAN),
        spec,
    })
}

impl Trace {
    /// `ping send of 64 B on model:cx3: inline, completions by poll`.
    fn title(&self) -> String {
        let p = &self.spec.params;
        format!(
            "{} of {} on {}: {}, completions by {}",
            p.op,
            p.size,
            self.device,
            if p.inline { "inline" } else { "not inline" },
            p.completion
        )
    }

    fn json(&self) -> Value {
        let p = &self.spec.params;
        let legs = self.journey.legs.iter().map(|leg| {
            json!({
                "from": leg.side().to_string(),
                "duration_ns": leg.span().as_ns_f64(),
                "steps": leg.pieces.iter().map(|piece| as_json(leg, piece)).collect::<Vec<_>>(),
            })
        });
        json!({
            "device": self.device,
            "op": p.op,
            "size_bytes": p.size.get(),
            "inline": p.inline,
            "completion": p.completion,
            "one_way_ns": self.journey.one_way_ns(),
            "round_ns": self.journey.span().as_ns_f64(),
            "ping_one_way_ns": self.ping_ns,
            "legs": legs.collect::<Vec<_>>(),
        })
    }

    /// The first leg, to be drawn.
    fn picture(&self) -> Timeline {
        let leg = &self.journey.legs[0];
        let lanes = leg.lanes();
        let bars = leg.pieces.iter().filter_map(|piece| {
            let lane = lanes.iter().position(|lane| *lane == piece.lane())?;
            Some(Bar {
                lane,
                begin_ns: since(leg.from, piece.begin),
                end_ns: since(leg.from, piece.end.min(leg.to)),
                text: format!("{} {}: {}", piece.lane(), piece.what, piece.span()),
                weight: if piece.is_on_path {
                    Weight::Path
                } else {
                    Weight::Beside
                },
            })
        });
        Timeline {
            title: self.title(),
            note: format!(
                "{} from the client's post; a round takes {}, half of it is what ping reports: {}",
                leg.span(),
                self.journey.span(),
                table::ns(self.ping_ns),
            ),
            lanes: lanes
                .iter()
                .map(|lane| Lane {
                    name: lane.to_string(),
                    color: color(lane.component),
                })
                .collect(),
            span_ns: leg.span().as_ns_f64(),
            bars: bars.collect(),
        }
    }
}

/// Each component has its colour, on both sides.
fn color(component: Component) -> u8 {
    match component {
        Component::Cpu => 0,
        Component::Memory => 3,
        Component::Pcie => 1,
        Component::Nic => 2,
        Component::Wire => 4,
    }
}

fn since(from: Time, at: Time) -> f64 {
    (at - from).as_ns_f64()
}

fn as_json(leg: &Leg, piece: &Piece) -> Value {
    json!({
        "start_ns": since(leg.from, piece.begin),
        "duration_ns": piece.span().as_ns_f64(),
        "side": piece.side.to_string(),
        "component": piece.component.map(|c| c.to_string()),
        "what": piece.what,
        "on_path": piece.is_on_path,
    })
}
