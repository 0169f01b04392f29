//! What one cell of a study runs, and what is refused before anything runs.

use adverb_results::{Completion, FigureId, Opcode, Params, Posting, Program, Signaling};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, LinkLayer, PathMtu, PortCaps};
use serde::{Deserialize, Serialize};

use crate::error::Side;
use crate::layout::Layout;

/// Longest message of `ping`.
pub const MAX_PING_SIZE: Bytes = Bytes::mib(64);
/// Longest message of `blast`.
pub const MAX_BLAST_SIZE: Bytes = Bytes::mib(256);
/// Most buffers of `blast`.
pub const MAX_BUFFERS: u32 = 256;
/// Most repetitions.
pub const MAX_REPETITIONS: u32 = 1000;

/// One cell: a program with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellSpec {
    /// Equal for the same program and parameters, readable, and stable between versions:
    /// `blast/write/64/inline/poll/b16/single/all`.
    pub id: String,
    /// Figures that show this cell; empty outside a study.
    pub figures: Vec<FigureId>,
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
    /// Payload carried in the work request (`write-read`: in that of the WRITE).
    pub inline: bool,
    /// How a side learns of completions.
    pub completion: Completion,
    /// Messages in flight at most; 1 for `ping`.
    pub buffers: u32,
    /// Single posts or lists.
    pub post: Posting,
    /// Which send requests ask for a completion.
    pub signal: Signaling,
    /// Largest payload of a packet; none: the largest that both sides' ports carry.
    pub path_mtu: Option<PathMtu>,
    /// Check every byte at the side that gets it.
    pub verify: bool,
    /// How long to measure.
    pub length: Length,
    /// How often to measure, at least once.
    pub repetitions: u32,
    /// Messages or rounds before the first repetition; none leaves it to the program, which warms
    /// up until its speed is known.
    pub warmup: Option<u64>,
    /// Seed of the payload.
    pub seed: u64,
}

/// How long a program measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// So many messages (`blast`) or rounds (`ping`) in each repetition.
    Iters(u64),
    /// About so long, all repetitions together; the warm-up tells how many messages that is.
    Duration(Span),
}

impl Request {
    /// `op` with messages of `size`; one buffer, busy polling, every request signaled, 1000
    /// messages or rounds, once.
    pub const fn new(op: Opcode, size: Bytes) -> Self {
        Request {
            op,
            size,
            inline: false,
            completion: Completion::Poll,
            buffers: 1,
            post: Posting::Single,
            signal: Signaling::All,
            path_mtu: None,
            verify: false,
            length: Length::Iters(1000),
            repetitions: 1,
            warmup: None,
            seed: 1,
        }
    }
}

/// Why a cell cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An operation that the program does not have.
    #[error("{program} has no operation {op}: choose from {choices}")]
    Operation {
        /// The program.
        program: Program,
        /// What was asked.
        op: Opcode,
        /// What it has.
        choices: &'static str,
    },
    /// Too short, or too long.
    #[error("size {size} is outside the range of {program} {op}, {least} to {max}")]
    Size {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// What was asked.
        size: Bytes,
        /// Shortest.
        least: Bytes,
        /// Longest.
        max: Bytes,
    },
    /// More inline data than the device takes.
    #[error("{size} inline: this device takes at most {max}; choose a smaller size or no inline")]
    Inline {
        /// What was asked.
        size: Bytes,
        /// Most.
        max: Bytes,
    },
    /// READ has no payload to carry.
    #[error("RDMA READ cannot be inline: its request carries no payload; leave inline out")]
    InlineRead,
    /// No buffer, or too many.
    #[error("{buffers} buffers are outside the range of blast, 1 to {MAX_BUFFERS}")]
    Buffers {
        /// What was asked.
        buffers: u32,
    },
    /// `ping` has one message in flight.
    #[error("ping has one message in flight: {what} is for blast")]
    OneInFlight {
        /// What was asked.
        what: String,
    },
    /// Nothing would ever free a buffer.
    #[error(
        "signal every={every} with {buffers} buffers would stall: without a completion within \
         {buffers} messages no buffer is ever free; choose 1 to {buffers}"
    )]
    Stall {
        /// What was asked.
        every: u32,
        /// Buffers.
        buffers: u32,
    },
    /// A way of signaling that the program does not have.
    #[error("{program} {op} has no signaling {signal}: choose from {choices}")]
    Signaling {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// What was asked.
        signal: Signaling,
        /// What it has.
        choices: &'static str,
    },
    /// Memory does not raise events.
    #[error(
        "ping write has no completion events: an RDMA WRITE raises none at its target, which \
         therefore polls its memory; choose poll, or write-imm"
    )]
    PolledMemoryHasNoEvents,
    /// Nothing to measure.
    #[error("{what} 0: at least {least} is needed to measure anything")]
    Nothing {
        /// Which parameter.
        what: &'static str,
        /// Smallest.
        least: &'static str,
    },
    /// More repetitions than make sense.
    #[error("{repetitions} repetitions: at most {MAX_REPETITIONS}")]
    Repetitions {
        /// What was asked.
        repetitions: u32,
    },
    /// Larger packets than the port carries.
    #[error(
        "path MTU {path_mtu}: this device's port carries packets of at most {max}; choose a smaller one"
    )]
    PathMtu {
        /// What was asked.
        path_mtu: PathMtu,
        /// Most.
        max: PathMtu,
    },
    /// No packets.
    #[error(
        "path MTU {path_mtu}: this device's port ({link_layer}) does not cut messages into packets; leave it out"
    )]
    NoPackets {
        /// What was asked.
        path_mtu: PathMtu,
        /// What the port is.
        link_layer: LinkLayer,
    },
    /// The device's queues are too short.
    #[error(
        "{what} needs {needed} requests outstanding, this device takes {max}; fewer buffers help"
    )]
    Queue {
        /// Which queue.
        what: &'static str,
        /// How many are needed.
        needed: u32,
        /// Most.
        max: u32,
    },
    /// The device's regions are too small.
    #[error(
        "the buffers of the {side} side need {needed}, a region of this device has at most {max}; fewer or smaller buffers help"
    )]
    Memory {
        /// Whose buffers.
        side: Side,
        /// How much is needed.
        needed: Bytes,
        /// Most.
        max: Bytes,
    },
}

impl CellSpec {
    /// The parameters of this cell's record, run with so many messages or rounds, where they are
    /// known. The caller fills in the cores.
    pub fn params(&self, iters: Option<u64>, warmup_iters: Option<u64>) -> Params {
        let p = &self.params;
        Params {
            op: p.op,
            size_bytes: p.size,
            inline: p.inline,
            completion: p.completion,
            buffers: p.buffers,
            post: p.post,
            signal: p.signal,
            path_mtu_bytes: p.path_mtu.map(PathMtu::bytes),
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

    /// The same cell with packets of at most `path_mtu`.
    pub fn with_path_mtu(mut self, path_mtu: Option<PathMtu>) -> Self {
        self.params.path_mtu = path_mtu;
        CellSpec {
            id: cell_id(self.program, &self.params),
            ..self
        }
    }

    /// Whether this port carries the packets that were asked for.
    ///
    /// # Errors
    /// It has none, or smaller ones only.
    pub fn check_path_mtu(&self, port: &PortCaps) -> Result<(), SpecError> {
        let Some(path_mtu) = self.params.path_mtu else {
            return Ok(());
        };
        let (link_layer, max) = (port.link_layer, port.active_mtu);
        if !link_layer.has_path_mtu() {
            return Err(SpecError::NoPackets {
                path_mtu,
                link_layer,
            });
        }
        if path_mtu > max {
            return Err(SpecError::PathMtu { path_mtu, max });
        }
        Ok(())
    }

    /// Whether the program can run so on a device with these limits.
    pub fn validate(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        self.check_extent()?;
        match self.program {
            Program::Ping => self.check_ping()?,
            Program::Blast => self.check_blast()?,
        }
        self.check_inline(caps)?;
        self.check_resources(caps)
    }

    /// About how long the cell takes, with start-up of its two roles and warm-up.
    pub fn estimate(&self) -> Span {
        const START_UP: Span = Span::from_ms(60);
        const GUESS_PER_MESSAGE: Span = Span::from_us(2);
        const GUESS_PER_BYTE: Span = Span::from_ps(200);
        let p = &self.params;
        let message = GUESS_PER_MESSAGE + GUESS_PER_BYTE * p.size.get();
        let measured = match p.length {
            Length::Duration(all) => all,
            Length::Iters(n) => message * n * u64::from(p.repetitions),
        };
        // Warm-up is a part of the measured time, but at least one message; so is a repetition.
        measured.max(message * u64::from(p.repetitions)) + (measured / 8).max(message) + START_UP
    }

    fn check_extent(&self) -> Result<(), SpecError> {
        let p = &self.params;
        let (least, max) = match (self.program, p.op) {
            // Its last byte is what the other side polls.
            (Program::Ping, Opcode::Write) => (Bytes::new(1), MAX_PING_SIZE),
            (Program::Ping, _) => (Bytes::new(0), MAX_PING_SIZE),
            (Program::Blast, _) => (Bytes::new(1), MAX_BLAST_SIZE),
        };
        if p.size < least || p.size > max {
            return Err(SpecError::Size {
                program: self.program,
                op: p.op,
                size: p.size,
                least,
                max,
            });
        }
        let nothing = |what, least| Err(SpecError::Nothing { what, least });
        match p.length {
            Length::Iters(0) => return nothing("iterations", "1"),
            Length::Duration(Span::ZERO) => return nothing("duration", "1 ns"),
            _ => {}
        }
        match p.repetitions {
            0 => nothing("repetitions", "1"),
            repetitions if repetitions > MAX_REPETITIONS => {
                Err(SpecError::Repetitions { repetitions })
            }
            _ => Ok(()),
        }
    }

    fn check_ping(&self) -> Result<(), SpecError> {
        let p = &self.params;
        if p.buffers != 1 {
            let what = format!("buffers {}", p.buffers);
            return Err(SpecError::OneInFlight { what });
        }
        if p.post != Posting::Single {
            let what = format!("posting {}s", p.post);
            return Err(SpecError::OneInFlight { what });
        }
        if p.op == Opcode::Write && p.completion == Completion::Event {
            return Err(SpecError::PolledMemoryHasNoEvents);
        }
        match (p.op, p.signal) {
            (_, Signaling::All) | (Opcode::WriteRead, Signaling::WriteUnsignaled) => Ok(()),
            (Opcode::WriteRead, _) => Err(self.bad_signaling("all, write-unsignaled")),
            _ => Err(self.bad_signaling("all")),
        }
    }

    fn check_blast(&self) -> Result<(), SpecError> {
        let p = &self.params;
        if p.op == Opcode::WriteRead {
            return Err(SpecError::Operation {
                program: self.program,
                op: p.op,
                choices: "send, write-imm, write, read",
            });
        }
        if !(1..=MAX_BUFFERS).contains(&p.buffers) {
            return Err(SpecError::Buffers { buffers: p.buffers });
        }
        match p.signal {
            Signaling::All | Signaling::Periodic => Ok(()),
            Signaling::Every(every) if (1..=p.buffers).contains(&every) => Ok(()),
            Signaling::Every(every) => Err(SpecError::Stall {
                every,
                buffers: p.buffers,
            }),
            Signaling::WriteUnsignaled => Err(self.bad_signaling("all, periodic, every=N")),
        }
    }

    fn bad_signaling(&self, choices: &'static str) -> SpecError {
        SpecError::Signaling {
            program: self.program,
            op: self.params.op,
            signal: self.params.signal,
            choices,
        }
    }

    fn check_inline(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let p = &self.params;
        let max = Bytes::new(caps.max_inline_data.into());
        match (p.inline, p.op) {
            (false, _) => Ok(()),
            (true, Opcode::Read) => Err(SpecError::InlineRead),
            (true, _) if p.size > max => Err(SpecError::Inline { size: p.size, max }),
            (true, _) => Ok(()),
        }
    }

    fn check_resources(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        for side in [Side::Active, Side::Passive] {
            let layout = Layout::of(self, side);
            let max = caps.max_qp_wr.min(caps.max_cqe);
            for (what, needed) in [
                ("the send queue", layout.send_depth),
                ("the receive queue", layout.receives),
            ] {
                if needed > max {
                    return Err(SpecError::Queue { what, needed, max });
                }
            }
            let (needed, max) = (layout.memory(), caps.max_mr_size);
            if needed > max {
                return Err(SpecError::Memory { side, needed, max });
            }
        }
        Ok(())
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
    if let Some(path_mtu) = p.path_mtu {
        id += &format!("/mtu{}", path_mtu.bytes().get());
    }
    if p.verify {
        id += "/verify";
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::caps;
    use adverb_verbs::{Gid, Lid};

    fn blast(change: impl FnOnce(&mut Request)) -> CellSpec {
        let mut params = Request::new(Opcode::Write, Bytes::new(64));
        params.buffers = 16;
        change(&mut params);
        CellSpec::blast(params)
    }

    fn ping(op: Opcode, change: impl FnOnce(&mut Request)) -> CellSpec {
        let mut params = Request::new(op, Bytes::new(64));
        change(&mut params);
        CellSpec::ping(params)
    }

    #[track_caller]
    fn refused(cell: &CellSpec, words: &str) {
        let message = cell.validate(&caps()).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn what_is_in_range_is_taken() {
        for cell in [
            blast(|_| {}),
            blast(|p| p.signal = Signaling::Every(16)),
            blast(|p| p.size = MAX_BLAST_SIZE),
            blast(|p| p.buffers = MAX_BUFFERS),
            ping(Opcode::Write, |p| p.inline = true),
            ping(Opcode::Send, |p| p.size = MAX_PING_SIZE),
            ping(Opcode::WriteRead, |p| p.signal = Signaling::WriteUnsignaled),
            ping(Opcode::Read, |p| p.completion = Completion::Event),
            ping(Opcode::Send, |p| p.size = Bytes::new(0)),
        ] {
            assert_eq!(cell.validate(&caps()), Ok(()), "{}", cell.id);
        }
    }

    #[test]
    fn a_refusal_names_the_value_and_the_limit() {
        refused(&blast(|p| p.size = Bytes::new(0)), "size 0 B is outside");
        let size = Bytes::new(MAX_BLAST_SIZE.get() + 1);
        refused(
            &blast(|p| p.size = size),
            "268435457 B is outside the range of blast write, 1 B to 256 MiB",
        );
        refused(
            &ping(Opcode::Send, |p| p.size = Bytes::mib(65)),
            "ping send, 0 B to 64 MiB",
        );
        refused(
            &ping(Opcode::Write, |p| p.size = Bytes::new(0)),
            "ping write, 1 B to 64 MiB",
        );
        refused(
            &blast(|p| p.buffers = 0),
            "0 buffers are outside the range of blast, 1 to 256",
        );
        refused(&blast(|p| p.buffers = 257), "257 buffers");
        refused(
            &blast(|p| p.op = Opcode::WriteRead),
            "blast has no operation write-read",
        );
        refused(&blast(|p| p.length = Length::Iters(0)), "iterations 0");
        refused(
            &blast(|p| p.length = Length::Duration(Span::ZERO)),
            "duration 0",
        );
        refused(&blast(|p| p.repetitions = 0), "repetitions 0");
        refused(&blast(|p| p.repetitions = 1001), "1001 repetitions");
    }

    #[test]
    fn inline_is_bounded_by_the_device_and_not_for_read() {
        let too_long = blast(|p| (p.inline, p.size) = (true, Bytes::new(257)));
        refused(&too_long, "257 B inline: this device takes at most 256 B");
        let read = blast(|p| (p.inline, p.op) = (true, Opcode::Read));
        refused(&read, "READ cannot be inline");
    }

    #[test]
    fn signaling_that_would_stall_or_makes_no_sense_is_refused() {
        refused(
            &blast(|p| p.signal = Signaling::Every(17)),
            "every=17 with 16 buffers would stall",
        );
        refused(&blast(|p| p.signal = Signaling::Every(0)), "choose 1 to 16");
        let unsignaled = Signaling::WriteUnsignaled;
        refused(
            &blast(|p| p.signal = unsignaled),
            "blast write has no signaling write-unsignaled",
        );
        refused(
            &ping(Opcode::Send, |p| p.signal = unsignaled),
            "choose from all",
        );
        refused(
            &ping(Opcode::WriteRead, |p| p.signal = Signaling::Periodic),
            "all, write-unsignaled",
        );
    }

    #[test]
    fn ping_has_one_message_in_flight_and_memory_no_events() {
        refused(
            &ping(Opcode::Send, |p| p.buffers = 2),
            "buffers 2 is for blast",
        );
        refused(
            &ping(Opcode::Send, |p| p.post = Posting::List),
            "posting lists is for blast",
        );
        let event = ping(Opcode::Write, |p| p.completion = Completion::Event);
        refused(&event, "RDMA WRITE raises none at its target");
    }

    #[test]
    fn buffers_and_queues_must_fit_the_device() {
        let large = blast(|p| (p.size, p.buffers) = (MAX_BLAST_SIZE, 256));
        refused(&large, "the buffers of the active side need 64 GiB");
        let small = DeviceCaps {
            max_qp_wr: 8,
            ..caps()
        };
        let message = blast(|_| {}).validate(&small).unwrap_err().to_string();
        assert!(
            message.contains("the send queue needs 16 requests outstanding"),
            "{message}"
        );
    }

    #[test]
    fn packets_are_bounded_by_the_port() {
        let port = |link_layer| PortCaps {
            link_layer,
            active_mtu: PathMtu::B1024,
            max_msg_sz: Bytes::mib(1),
            lid: Lid(0),
            gid: Gid::default(),
            gid_index: 0,
            gid_type: None,
        };
        let check = |path_mtu, link_layer| {
            let cell = ping(Opcode::Send, |p| p.path_mtu = path_mtu);
            let checked = cell.check_path_mtu(&port(link_layer));
            checked.map_err(|e| e.to_string())
        };
        let ethernet = LinkLayer::Ethernet;
        assert_eq!(check(Some(PathMtu::B1024), ethernet), Ok(()));
        assert_eq!(check(None, LinkLayer::SharedMemory), Ok(()));
        assert_eq!(
            check(Some(PathMtu::B2048), ethernet).unwrap_err(),
            "path MTU 2 KiB: this device's port carries packets of at most 1 KiB; choose a smaller one"
        );
        assert_eq!(
            check(Some(PathMtu::B256), LinkLayer::SharedMemory).unwrap_err(),
            "path MTU 256 B: this device's port (shared memory) does not cut messages into packets; leave it out"
        );
    }

    #[test]
    fn ids_are_readable_and_tell_cells_apart() {
        let blast = blast(|p| p.inline = true);
        assert_eq!(blast.id, "blast/write/64/inline/poll/b16/single/all");
        let ping = ping(Opcode::WriteRead, |p| p.verify = true);
        assert_eq!(ping.id, "ping/write-read/64/plain/poll/all/verify");
        let small = blast.with_path_mtu(Some(PathMtu::B256));
        assert_eq!(small.id, "blast/write/64/inline/poll/b16/single/all/mtu256");
    }

    #[test]
    fn a_cell_survives_json() {
        let cell = blast(|p| p.length = Length::Duration(Span::from_ms(3)));
        let json = serde_json::to_string(&cell).unwrap();
        assert_eq!(serde_json::from_str::<CellSpec>(&json).unwrap(), cell);
    }
}
