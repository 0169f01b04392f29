//! The steps of one message of a ping.
//!
//! The ping is the one of `adverb ping`; the model records its steps, and one round in the middle is
//! shown.

mod journey;
mod text;

use adverb_hwmodel::trace::Component;
use adverb_launch::{Hardware, run_in_virtual_time};
use adverb_report::timeline::{Bar, Lane, Timeline, Weight};
use adverb_results::Opcode;
use adverb_units::{Span, Time};
use adverb_workload::pair::CellSpec;
use serde_json::{Value, json};

use journey::{CLIENT, Journey, Leg, Piece, SERVER};

/// A traced ping.
pub struct Trace {
    device: String,
    spec: CellSpec,
    journey: Journey,
    /// The one-way time that ping reports for the same run.
    ping_ns: f64,
}

/// Why a ping has no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The ping failed.
    #[error("{cell}: {reason}")]
    Failed {
        /// The ping's id.
        cell: String,
        /// Why, in one line.
        reason: String,
    },
}

impl Trace {
    /// Runs a cell of ping until it ends or `is_over` returns true.
    ///
    /// # Errors
    /// If the ping failed or was interrupted.
    pub fn of(
        hardware: &Hardware,
        spec: CellSpec,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        let failed = |reason: &str| TraceError::Failed {
            cell: spec.id.clone(),
            reason: reason.to_owned(),
        };
        let mut cluster = hardware.cluster(2);
        cluster.trace();
        let limits = (&spec).into();
        let run = run_in_virtual_time(&mut cluster, &[CLIENT, SERVER], &spec, limits, is_over);
        let reports = run.ok_or(TraceError::Interrupted)?.reports();
        let mut results = reports.map_err(|failure| failed(&failure.reason))?;
        let result = results.swap_remove(0).ok_or_else(|| failed("no result"))?;
        let posts = match spec.params.op {
            Opcode::WriteRead => 2,
            _ => 1,
        };
        let journey = Journey::of(&cluster.steps(), posts);
        Ok(Trace {
            device: hardware.reference().to_string(),
            journey: journey.ok_or_else(|| failed("no complete round was recorded"))?,
            ping_ns: result.metrics.one_way_ns.mean.unwrap_or(f64::NAN),
            spec,
        })
    }

    /// Formats the steps as a table and as lanes, for a terminal with this many columns.
    pub fn text(&self, columns: usize) -> String {
        text::draw(self, columns)
    }

    /// Such as `ping send of 64 B on model:cx3: inline, completions by poll`.
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

    /// Formats the whole round as a JSON object.
    pub fn json(&self) -> Value {
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

    /// Returns the first leg as a drawing.
    pub fn picture(&self) -> Timeline {
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
                    Weight::Parallel
                },
            })
        });
        Timeline {
            title: self.title(),
            note: format!(
                "{} from the client's post; a round takes {}, half of it is what ping reports: {}",
                leg.span(),
                self.journey.span(),
                Span::from_ns_f64(self.ping_ns),
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

/// The colour of a component, on both sides.
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
