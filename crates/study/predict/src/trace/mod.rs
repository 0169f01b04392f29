//! The steps of one message of a ping, of a list of requests, or of a request and its reply.
//!
//! The program is the one that `adverb ping` or `adverb rpc` runs; the model records its steps, and one round in the
//! middle is shown.

mod journey;
mod text;

use adverb_hwmodel::trace::Component;
use adverb_launch::{Hardware, VirtualLimits, run_in_virtual_time};
use adverb_patterns::{Clients, Echo, EchoBy, Job, JobReport, RD_ATOMIC, Reply};
use adverb_report::timeline::{Bar, Lane, Timeline, Weight};
use adverb_results::{Completion, Opcode, Word};
use adverb_units::{Bytes, Span, Time};
use adverb_verbs::{PathOptions, QpType};
use adverb_workload::Program;
use adverb_workload::pair::CellSpec;
use adverb_workload::pattern::{Inbound, Limits, Load, Pattern, Posting, Refill, Schedule};
use serde_json::{Value, json};

use journey::{CLIENT, Journey, Leg, Piece, SERVER};

/// Memory of a server that requests of a list access.
const MEMORY: u64 = 2 << 20;
/// For how long the programs of lists and replies are traced: for longer as long as no whole round is among the steps.
const LENGTHS: [Span; 4] = [
    Span::from_us(200),
    Span::from_ms(2),
    Span::from_ms(20),
    Span::from_ms(200),
];

/// What is traced.
#[derive(Clone, Debug)]
pub enum Traced {
    /// A message of a ping, there and back.
    Ping(CellSpec),
    /// Requests that are posted as a list, with one doorbell; the next list follows when all have completed.
    List(Load, QpType, Completion),
    /// A request of a client to a server's core, and the reply.
    Rpc(Echo),
}

impl Traced {
    /// Returns a list of `requests` with `size` bytes of payload each.
    pub fn list(
        (op, transport): (Opcode, QpType),
        (size, inline): (u32, bool),
        requests: u32,
        completion: Completion,
    ) -> Self {
        let load = Load {
            inline,
            posting: Posting::List(requests),
            refill: Refill::Window,
            limits: Limits {
                per_qp: requests,
                per_member: requests,
                rd_atomic: RD_ATOMIC,
            },
            ..Load::new(op, size)
        };
        Traced::List(load, transport, completion)
    }

    /// Returns a request and a reply of `size` bytes each. The reply uses `transport`, and so does the request if `transport`
    /// can carry it.
    pub fn rpc(by: EchoBy, transport: QpType, size: u32, completion: Completion) -> Self {
        Traced::Rpc(Echo {
            by,
            content: Reply::Digest,
            transport,
            request: size,
            reply: size,
            cores: 1,
            clients: Clients::new([1, 1, 1], None),
            think: Span::ZERO,
            wait: completion,
            path: PathOptions::default(),
        })
    }

    /// Returns the program to run, for this long if it has no length of its own. Its host 0 is the client's for a ping,
    /// otherwise the server's.
    fn job(&self, measured: Span) -> Job {
        let schedule = Schedule {
            warm_up: measured / 2,
            measured,
        };
        match self {
            Traced::Ping(spec) => Job::Pair(spec.clone()),
            Traced::List(load, transport, completion) => {
                let shape = Inbound {
                    threads: 1,
                    peers: 1,
                    qps: 1,
                    window: None,
                    receivers: u32::from(load.op.consumes_receive()),
                    depth: 2 * load.limits.per_qp,
                    memory: MEMORY,
                };
                let pattern = Pattern {
                    wait: *completion,
                    ..Pattern::inbound(*transport, load, &shape)
                };
                Job::Pattern(pattern, schedule)
            }
            Traced::Rpc(echo) => Job::Echo(*echo, schedule),
        }
    }

    /// Returns the number of requests that the client posts in each round.
    fn posts(&self) -> u32 {
        match self {
            Traced::Ping(spec) if spec.params.op == Opcode::WriteRead => 2,
            Traced::List(load, ..) => load.limits.per_qp,
            Traced::Ping(_) | Traced::Rpc(_) => 1,
        }
    }

    /// Such as `send of 64 B on model:cx3: inline, completions by poll`.
    fn title(&self, device: &str) -> String {
        let of_requests = |op, size, transport: String, inline, completion| {
            let inline = if inline { "inline" } else { "not inline" };
            let transport = transport.to_uppercase();
            format!(
                "{op} of {size} over {transport} on {device}: {inline}, completions by {completion}"
            )
        };
        match self {
            Traced::Ping(spec) => {
                let p = &spec.params;
                let transport = p.traffic.transport.to_string();
                of_requests(p.op, p.size, transport, p.inline, p.completion)
            }
            Traced::List(load, transport, completion) => {
                let size = Bytes::new(load.size.into());
                let each = of_requests(
                    load.op,
                    size,
                    transport.to_string(),
                    load.inline,
                    *completion,
                );
                format!("a list of {}, {each}", self.posts())
            }
            Traced::Rpc(echo) => format!(
                "rpc by {} over {} on {device}: request and reply of {}, completions by {}",
                echo.by.word(),
                echo.transport,
                Bytes::new(echo.request.into()),
                echo.wait
            ),
        }
    }

    fn json(&self) -> Value {
        match self {
            Traced::Ping(spec) => {
                let p = &spec.params;
                json!({
                    "op": p.op, "transport": p.traffic.transport, "size_bytes": p.size.get(), "inline": p.inline,
                    "completion": p.completion,
                })
            }
            Traced::List(load, transport, completion) => json!({
                "op": load.op, "transport": lower(*transport), "size_bytes": load.size, "inline": load.inline, "completion": completion,
                "batch": self.posts(),
            }),
            Traced::Rpc(echo) => json!({
                "by": echo.by.word(), "transport": lower(echo.transport),
                "request_bytes": echo.request, "reply_bytes": echo.reply, "completion": echo.wait,
            }),
        }
    }
}

/// A traced round.
pub struct Trace {
    device: String,
    traced: Traced,
    journey: Journey,
    /// What the program reports for the same run: the mean one-way time of a ping, or the mean latency of replies.
    reported_ns: Option<f64>,
}

/// Why a program has no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The program failed.
    #[error("{what}: {reason}")]
    Failed {
        /// What was to be traced.
        what: String,
        /// Why, in one line.
        reason: String,
    },
}

impl Trace {
    /// Runs a program until it ends or `is_over` returns true.
    ///
    /// # Errors
    /// If the program failed or was interrupted.
    pub fn of(
        hardware: &Hardware,
        traced: &Traced,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        for length in LENGTHS {
            if let Some(trace) = Self::within(length, hardware, traced, is_over)? {
                return Ok(trace);
            }
        }
        let what = traced.title(&hardware.reference().to_string());
        let reason = "no complete round was recorded".to_owned();
        Err(TraceError::Failed { what, reason })
    }

    /// Runs a program for this long; returns `None` if its steps contain no whole round.
    fn within(
        length: Span,
        hardware: &Hardware,
        traced: &Traced,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, TraceError> {
        let device = hardware.reference().to_string();
        let failed = |reason: String| TraceError::Failed {
            what: traced.title(&device),
            reason,
        };
        let mut cluster = hardware.cluster(2);
        cluster.trace();
        let job = traced.job(length);
        let machines = match job.home() {
            0 => [CLIENT, SERVER],
            _ => [SERVER, CLIENT],
        };
        let limits = match &job {
            Job::Pair(spec) => spec.into(),
            _ => VirtualLimits::default(),
        };
        let run = run_in_virtual_time(&mut cluster, &machines, &job, limits, is_over);
        let reports = run.ok_or(TraceError::Interrupted)?.reports();
        let reports = reports.map_err(|failure| failed(failure.reason))?;
        let reported_ns = match (traced, &reports[0]) {
            (Traced::Ping(_), JobReport::Pair(Some(result))) => result.metrics.one_way_ns.mean,
            (Traced::Rpc(_), _) => {
                let outcome = job.outcome(&reports);
                let outcome = outcome.map_err(|error| failed(error.to_string()))?;
                outcome.metrics["latency_ns"]["mean"].as_f64()
            }
            _ => None,
        };
        let journey = Journey::of(&cluster.steps(), traced.posts() as usize);
        Ok(journey.map(|journey| Trace {
            device,
            traced: traced.clone(),
            journey,
            reported_ns,
        }))
    }

    /// Formats the steps as a table and as lanes, for a terminal with this many columns.
    pub fn text(&self, columns: usize) -> String {
        text::draw(self, columns)
    }

    fn title(&self) -> String {
        self.traced.title(&self.device)
    }

    /// Reports how long a round takes, and what the program reports.
    fn summary(&self) -> String {
        let journey = &self.journey;
        let round = journey.span();
        let ways = match &journey.legs[..] {
            [there, back] => format!("There {}, back {}: a", there.span(), back.span()),
            _ => "A".to_owned(),
        };
        // Of a READ or an atomic operation, `adverb ping` shows the whole round trip.
        let is_fetch = matches!(&self.traced, Traced::Ping(spec) if spec.params.op.is_fetch());
        let shown = if is_fetch { 2.0 } else { 1.0 };
        let reported = self.reported_ns.map(|ns| Span::from_ns_f64(ns * shown));
        let reported = reported.map_or_else(|| "nothing".to_owned(), |span| span.to_string());
        match &self.traced {
            Traced::Ping(_) if is_fetch => {
                format!("{ways} round takes {round}; `adverb ping` reports {reported}.")
            }
            Traced::Ping(_) => {
                let one_way = Span::from_ns_f64(journey.one_way_ns());
                format!(
                    "{ways} round takes {round}. Half of it, {one_way}, is one way; `adverb ping` reports {reported}."
                )
            }
            Traced::List(..) => {
                let requests = self.traced.posts();
                let each = round / u64::from(requests);
                format!("All {requests} have completed after {round}: {each} for each.")
            }
            Traced::Rpc(_) => format!(
                "{ways} round takes {round}, with what the client does before its next request; `adverb rpc` reports a latency of {reported}."
            ),
        }
    }

    /// Formats the whole round as a JSON object.
    pub fn json(&self) -> Value {
        let legs = self.journey.legs.iter().map(|leg| {
            json!({
                "from": leg.side().to_string(),
                "duration_ns": leg.span().as_ns_f64(),
                "steps": leg.pieces.iter().map(|piece| as_json(leg, piece)).collect::<Vec<_>>(),
            })
        });
        let mut all = self.traced.json();
        all["device"] = self.device.clone().into();
        all["round_ns"] = self.journey.span().as_ns_f64().into();
        all["legs"] = legs.collect();
        match self.traced {
            Traced::Ping(_) => {
                all["one_way_ns"] = self.journey.one_way_ns().into();
                all["ping_one_way_ns"] = self.reported_ns.into();
            }
            Traced::Rpc(_) => all["rpc_latency_ns"] = self.reported_ns.into(),
            Traced::List(..) => {}
        }
        all
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
            note: format!("{} from the client's post. {}", leg.span(), self.summary()),
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

fn lower(transport: QpType) -> String {
    transport.to_string().to_lowercase()
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
