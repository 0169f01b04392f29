//! A cell of a study: a program with its parameters.

mod check;
mod duration;
mod error;
mod limits;

use adverb_results::{Completion, Opcode, Params, Posting, Program, Signaling, Traffic};
use adverb_units::{Bytes, Span};
use adverb_verbs::{AckTimeout, PathMtu, PathOptions, RetryCount};
use serde::{Deserialize, Serialize};

pub use check::check_atomics;
pub(crate) use duration::{LONGEST_CELL, WARM_UP, WARM_UP_SHARE};
pub use error::SpecError;
pub use limits::{
    ATOMIC_SIZE, MAX_BLAST_SIZE, MAX_BUFFERS, MAX_PING_SIZE, MAX_QPS, MAX_REPETITIONS, operations,
};
pub(crate) use limits::{POLLED_SEND_DEPTH, SIGNALED_WRITES};

/// One cell: a program with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellSpec {
    /// Equal for the same program and parameters, readable, and stable between versions:
    /// `blast/write/64/inline/poll/b16/single/all`.
    pub id: String,
    /// Figures that show this cell; empty outside a study.
    pub figures: Vec<String>,
    /// The program.
    pub program: Program,
    /// Its parameters.
    pub params: Request,
}

/// Parameters of a program, as asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Transfer operation.
    pub op: Opcode,
    /// Payload of one message.
    pub size: Bytes,
    /// Whether the payload is inline (`write-read`: of the WRITE).
    pub inline: bool,
    /// How a side learns of completions.
    pub completion: Completion,
    /// Messages in flight at most on each queue pair; 1 for `ping`.
    pub buffers: u32,
    /// Single posts or lists.
    pub post: Posting,
    /// Which send requests ask for a completion.
    pub signal: Signaling,
    /// How messages flow between the two sides.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Options of the path between the queue pairs.
    pub path: PathOptions,
    /// Check every byte at the side that gets it.
    pub verify: bool,
    /// How long to measure.
    pub length: Length,
    /// How often to measure, at least once.
    pub repetitions: u32,
    /// Messages or rounds before the first repetition; `None` lets the program warm up until its speed is known.
    pub warmup: Option<u64>,
    /// Seed of the payload.
    pub seed: u64,
}

/// How long a program measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// This many messages (`blast`) or rounds (`ping`) in each repetition.
    Iters(u64),
    /// About this duration for all repetitions together; the warm-up determines the number of messages.
    Duration(Span),
}

impl Request {
    /// Returns the maximum number of messages in flight on all queue pairs.
    pub fn in_flight(&self) -> u32 {
        self.buffers.saturating_mul(self.traffic.qps)
    }

    /// `op` with messages of `size`; one buffer, busy polling, every request signaled, 1000
    /// messages or rounds, once.
    pub fn new(op: Opcode, size: Bytes) -> Self {
        Request {
            op,
            size,
            inline: false,
            completion: Completion::Poll,
            buffers: 1,
            post: Posting::Single,
            signal: Signaling::All,
            traffic: Traffic::default(),
            path: PathOptions::default(),
            verify: false,
            length: Length::Iters(1000),
            repetitions: 1,
            warmup: None,
            seed: 1,
        }
    }
}

impl CellSpec {
    /// Returns the parameters for this cell's record, with the numbers of messages or rounds if known. The
    /// caller adds the cores.
    pub fn params(&self, iters: Option<u64>, warmup_iters: Option<u64>) -> Params {
        let p = &self.params;
        Params {
            op: p.op,
            size_bytes: p.size,
            inline: p.inline,
            completion: p.completion,
            buffers: p.buffers,
            post: p.post,
            signal: match (self.program, p.op) {
                (Program::Ping, Opcode::Write) => Signaling::Every(SIGNALED_WRITES),
                _ => p.signal,
            },
            traffic: p.traffic,
            path_mtu_bytes: p.path.path_mtu.map(PathMtu::bytes),
            ack_timeout: p.path.ack_timeout.and_then(AckTimeout::span),
            retry_cnt: p.path.retries.map(RetryCount::get),
            rate: p.path.rate,
            api: p.path.api,
            impairment: p.path.impairment,
            verify: p.verify,
            iters,
            warmup_iters,
            active_core: None,
            passive_core: None,
            active_numa_node: None,
            passive_numa_node: None,
            seed: p.seed,
        }
    }

    /// A cell of `ping`.
    pub fn ping(params: Request) -> Self {
        CellSpec::new(Program::Ping, params)
    }

    /// A cell of `blast`.
    pub fn blast(params: Request) -> Self {
        CellSpec::new(Program::Blast, params)
    }

    fn new(program: Program, params: Request) -> Self {
        CellSpec {
            id: cell_id(program, &params),
            figures: Vec::new(),
            program,
            params,
        }
    }

    /// Whether messages may be lost, so that the receiver counts them.
    pub(crate) fn may_lose(&self) -> bool {
        self.program == Program::Blast
            && !self.params.traffic.transport.is_reliable()
            && self.params.op.consumes_receive()
    }

    /// Returns the cell with these path options, except those that it already sets.
    pub fn with_path(mut self, path: PathOptions) -> Self {
        self.params.path = self.params.path.or(path);
        self.renamed()
    }

    /// Returns the cell with an id made from its parameters.
    fn renamed(self) -> Self {
        CellSpec {
            id: cell_id(self.program, &self.params),
            ..self
        }
    }
}

fn cell_id(program: Program, p: &Request) -> String {
    let inline = if p.inline { "inline" } else { "plain" };
    let size = p.size.get();
    let mut id = format!("{program}/{}/{size}/{inline}/{}", p.op, p.completion);
    if program == Program::Blast {
        id += &format!("/b{}/{}", p.buffers, p.post);
    }
    id += &format!("/{}", p.signal);
    if p.traffic.qps != 1 {
        id += &format!("/q{}", p.traffic.qps);
    }
    if p.traffic.bidirectional {
        id += "/bidirectional";
    }
    if p.traffic.reversed {
        id += "/reversed";
    }
    if !p.traffic.transport.is_default() {
        id += &format!("/{}", p.traffic.transport);
    }
    id += &path_id(&p.path);
    if let Some(impairment) = &p.path.impairment {
        id += &impairment.id();
    }
    if p.verify {
        id += "/verify";
    }
    id
}

fn path_id(path: &PathOptions) -> String {
    let parts = [
        path.path_mtu
            .map(|mtu| format!("/mtu{}", mtu.bytes().get())),
        path.ack_timeout
            .map(|timeout| format!("/timeout={}", timeout.code())),
        path.retries
            .map(|retries| format!("/retries={}", retries.get())),
        path.traffic_class.map(|class| format!("/tc={class}")),
        path.service_level.map(|level| format!("/sl={level}")),
        path.rate.map(|rate| format!("/rate={rate}")),
        path.api.map(|api| format!("/api={api}")),
    ];
    parts.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use adverb_verbs::{Impairment, Probability};

    use super::*;
    use crate::pair::testing::{blast, ping};

    #[test]
    fn ids_are_readable_and_tell_cells_apart() {
        let blast = blast(|p| p.inline = true);
        assert_eq!(blast.id, "blast/write/64/inline/poll/b16/single/all");
        let wide = self::blast(|p| p.traffic.qps = 4).id;
        assert_eq!(wide, "blast/write/64/plain/poll/b16/single/all/q4");
        let ping = ping(Opcode::WriteRead, |p| p.verify = true);
        assert_eq!(ping.id, "ping/write-read/64/plain/poll/all/verify");
        let small = blast.with_path(PathOptions {
            path_mtu: Some(PathMtu::B256),
            ..PathOptions::default()
        });
        assert_eq!(small.id, "blast/write/64/inline/poll/b16/single/all/mtu256");
        let patient = self::ping(Opcode::Send, |p| {
            (p.path.ack_timeout, p.path.retries) = (AckTimeout::new(8), RetryCount::new(0));
        });
        assert_eq!(
            patient.id,
            "ping/send/64/plain/poll/all/timeout=8/retries=0"
        );
        let asked = patient.clone();
        let asked = asked.with_path(PathOptions {
            ack_timeout: AckTimeout::new(10),
            retries: RetryCount::new(3),
            ..PathOptions::default()
        });
        assert_eq!(asked, patient, "options of the cell have priority");
        let lossy = |loss, seed| {
            let impairment = Impairment {
                loss: Probability::per_million(loss),
                seed,
                ..Impairment::default()
            };
            self::ping(Opcode::Send, |p| p.path.impairment = Some(impairment)).id
        };
        assert_eq!(lossy(500, 1), "ping/send/64/plain/poll/all/loss=0.0005");
        assert_eq!(lossy(0, 2), "ping/send/64/plain/poll/all/loss=0");
        let id = "ping/send/64/plain/poll/all/loss=0.000001/seed=2";
        assert_eq!(lossy(1, 2), id);
    }

    #[test]
    fn a_record_says_how_the_writes_of_a_ping_are_signaled() {
        let signal = |op| ping(op, |_| {}).params(None, None).signal;
        assert_eq!(signal(Opcode::Write), Signaling::Every(32));
        assert_eq!(signal(Opcode::Send), Signaling::All);
    }

    #[test]
    fn a_cell_survives_json() {
        let cell = blast(|p| p.length = Length::Duration(Span::from_ms(3)));
        let json = serde_json::to_string(&cell).unwrap();
        assert_eq!(serde_json::from_str::<CellSpec>(&json).unwrap(), cell);
    }
}
