//! Checks before anything runs: ranges of the programs, limits of the device and of its port.

use adverb_results::{Completion, Opcode, Posting, Program, Signaling, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{AtomicCap, DeviceCaps, PathMtu, PortCaps};

use super::limits::{
    ATOMIC_SIZE, MAX_BLAST_SIZE, MAX_BUFFERS, MAX_PING_SIZE, MAX_QPS, MAX_REPETITIONS, operations,
};
use super::{CellSpec, Length, SpecError};
use crate::Program as _;
use crate::error::Side;
use crate::pair::layout::Layout;

/// Checks that a device has the operation, if that is an atomic one.
///
/// # Errors
/// It has none.
pub fn check_atomics(op: Opcode, caps: &DeviceCaps) -> Result<(), SpecError> {
    match caps.atomics {
        AtomicCap::None if op.is_atomic() => Err(SpecError::NoAtomics { op }),
        _ => Ok(()),
    }
}

impl CellSpec {
    /// Checks that `port` supports the transport and the options of the path.
    ///
    /// # Errors
    /// The first of them that it does not support.
    pub fn check_port(&self, port: &PortCaps) -> Result<(), SpecError> {
        let transport = self.params.traffic.transport;
        if !transport.is_reliable() && !port.link_layer.has_all_transports() {
            return Err(self.no_transport("the device has only RC queue pairs; choose rc"));
        }
        self.params.path.check(port)?;
        self.check_datagram(self.params.path.path_mtu.unwrap_or(port.active_mtu))
    }

    /// Checks that a datagram fits a packet.
    ///
    /// # Errors
    /// It exceeds the path MTU.
    pub(crate) fn check_datagram(&self, path_mtu: PathMtu) -> Result<(), SpecError> {
        let (size, mtu) = (self.params.size, path_mtu.bytes());
        match self.params.traffic.transport {
            Transport::Ud if size > mtu => Err(SpecError::Datagram { size, mtu }),
            _ => Ok(()),
        }
    }

    /// Refuses features that an unreliable transport lacks.
    fn check_transport(&self) -> Result<(), SpecError> {
        let p = &self.params;
        let op = p.op;
        let why = match (op, p.traffic.transport) {
            (_, Transport::Rc | Transport::Tcp) => return Ok(()),
            _ if p.path.ack_timeout.is_some() || p.path.retries.is_some() => {
                "it does not acknowledge or retransmit; leave --timeout and --retries out"
            }
            _ if op.is_fetch() || op == Opcode::WriteRead => {
                "only reliable transports have RDMA READ and atomics; choose rc"
            }
            (Opcode::Write | Opcode::WriteImm, Transport::Ud) => {
                "a datagram is a SEND; choose uc or rc"
            }
            _ if self.may_lose() && p.verify => {
                "after a lost message the receiver does not know which payload to expect; leave --verify out"
            }
            _ if self.may_lose() && p.traffic.bidirectional => {
                "losses are counted in one direction; leave --bidirectional out"
            }
            _ => return Ok(()),
        };
        Err(self.no_transport(why))
    }

    fn no_transport(&self, why: &'static str) -> SpecError {
        SpecError::Transport {
            program: self.program,
            op: self.params.op,
            transport: self.params.traffic.transport,
            why,
        }
    }

    /// Checks that the program can run on a device with these limits.
    pub fn validate(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let (program, op) = (self.program, self.params.op);
        if !operations(program).contains(&op) {
            return Err(SpecError::Operation { program, op });
        }
        self.check_extent()?;
        if self.is_stream() {
            return self.check_stream(caps);
        }
        self.check_transport()?;
        self.check_atomic(caps)?;
        match self.program {
            Program::Ping => self.check_ping()?,
            Program::Blast => self.check_blast(caps)?,
        }
        self.check_inline(caps)?;
        self.check_resources(caps)
    }

    /// Refuses what a byte stream lacks.
    fn check_stream(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let p = &self.params;
        let lacks = |what: String, instead| Err(SpecError::Stream { what, instead });
        match p {
            _ if p.op != Opcode::Send => lacks(format!("operation {}", p.op), "choose --op send"),
            _ if p.inline => lacks("inline data".to_owned(), "leave --inline out"),
            _ if p.post != Posting::Single => {
                lacks(format!("posting of {}s", p.post), "leave --post out")
            }
            _ if p.signal != Signaling::All => {
                lacks(format!("signaling {}", p.signal), "leave --signal out")
            }
            _ if matches!(p.completion, Completion::Hybrid(_)) => lacks(
                format!("completion {}", p.completion),
                "choose poll or event",
            ),
            _ if p.traffic.qps != 1 => lacks("queue pairs".to_owned(), "leave --qps out"),
            _ if p.traffic.bidirectional => lacks(
                "blast in both directions".to_owned(),
                "leave --bidirectional out",
            ),
            _ if !(1..=MAX_BUFFERS).contains(&p.buffers) => {
                Err(SpecError::Buffers { buffers: p.buffers })
            }
            _ => self.check_stream_memory(caps),
        }
    }

    fn check_stream_memory(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let p = &self.params;
        if self.program == Program::Ping && p.buffers != 1 {
            let what = format!("buffers {}", p.buffers);
            return Err(SpecError::OneInFlight { what });
        }
        let (side, max) = (Side::Active, caps.max_mr_size);
        let needed = Bytes::new(p.size.get() * u64::from(p.buffers));
        match needed > max {
            true => Err(SpecError::Memory { side, needed, max }),
            false => Ok(()),
        }
    }

    fn check_extent(&self) -> Result<(), SpecError> {
        let p = &self.params;
        let (least, max) = match (self.program, p.op) {
            // The other side polls the last byte.
            (Program::Ping, Opcode::Write) => (Bytes::new(1), MAX_PING_SIZE),
            // Without payload there is no message on a stream.
            (Program::Ping, _) if self.is_stream() => (Bytes::new(1), MAX_PING_SIZE),
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

    fn check_atomic(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let (op, size) = (self.params.op, self.params.size);
        if !op.is_atomic() {
            return Ok(());
        }
        if size != ATOMIC_SIZE {
            return Err(SpecError::AtomicSize { op, size });
        }
        check_atomics(op, caps)
    }

    fn check_ping(&self) -> Result<(), SpecError> {
        let p = &self.params;
        if p.buffers != 1 {
            let what = format!("buffers {}", p.buffers);
            return Err(SpecError::OneInFlight { what });
        }
        if p.traffic.qps != 1 {
            let what = format!("{} queue pairs", p.traffic.qps);
            return Err(SpecError::OneInFlight { what });
        }
        if p.traffic.bidirectional {
            let what = "traffic in both directions".to_owned();
            return Err(SpecError::OneInFlight { what });
        }
        if p.post != Posting::Single {
            let what = format!("posting {}s", p.post);
            return Err(SpecError::OneInFlight { what });
        }
        if p.op == Opcode::Write && p.completion.has_events() {
            return Err(SpecError::PolledMemoryHasNoEvents);
        }
        match (p.op, p.signal) {
            (_, Signaling::All) | (Opcode::WriteRead, Signaling::WriteUnsignaled) => Ok(()),
            (Opcode::WriteRead, _) => Err(self.bad_signaling("all, write-unsignaled")),
            _ => Err(self.bad_signaling("all")),
        }
    }

    fn check_blast(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        let p = &self.params;
        if !(1..=MAX_BUFFERS).contains(&p.buffers) {
            return Err(SpecError::Buffers { buffers: p.buffers });
        }
        let (qps, max) = (p.traffic.qps, MAX_QPS.min(caps.max_qp));
        if !(1..=max).contains(&qps) {
            return Err(SpecError::QueuePairs { qps, max });
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
            (true, Opcode::Read) => Err(SpecError::NoPayload { what: "RDMA READ" }),
            (true, Opcode::FetchAdd | Opcode::Cas) => {
                let what = "an atomic operation";
                Err(SpecError::NoPayload { what })
            }
            (true, _) if p.size > max => Err(SpecError::Inline { size: p.size, max }),
            (true, _) => Ok(()),
        }
    }

    fn check_resources(&self, caps: &DeviceCaps) -> Result<(), SpecError> {
        for side in [Side::Active, Side::Passive] {
            let layout = Layout::of(self, side);
            let qps = self.params.traffic.qps;
            let sends = layout.completions();
            let (queue, completions) = (caps.max_qp_wr, caps.max_cqe);
            for (what, needed, max) in [
                ("the send queue", layout.send_depth, queue),
                ("the receive queue", layout.receives, queue),
                ("the completion queue of sends", sends * qps, completions),
                (
                    "the completion queue of receives",
                    layout.receives * qps,
                    completions,
                ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::testing::{blast, ping};

    #[track_caller]
    fn refused(cell: &CellSpec, words: &str) {
        let message = cell.validate(&DeviceCaps::MODEST).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn values_in_range_are_accepted() {
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
            assert_eq!(cell.validate(&DeviceCaps::MODEST), Ok(()), "{}", cell.id);
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
            &blast(|p| p.traffic.qps = 0),
            "0 queue pairs are outside the range of blast on this device, 1 to 1024",
        );
        refused(&blast(|p| p.traffic.qps = 1025), "1025 queue pairs");
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
    fn transports_lack_what_they_lack() {
        let on = |transport| move |p: &mut crate::pair::Request| p.traffic.transport = transport;
        for cell in [
            ping(Opcode::Send, on(Transport::Ud)),
            ping(Opcode::WriteImm, on(Transport::Uc)),
            blast(on(Transport::Uc)),
            blast(|p| (p.op, p.traffic.transport) = (Opcode::Send, Transport::Ud)),
            blast(|p| (p.op, p.traffic.transport) = (Opcode::WriteImm, Transport::Uc)),
        ] {
            assert_eq!(cell.validate(&DeviceCaps::MODEST), Ok(()), "{}", cell.id);
        }
        let uc = "ping/write/64/plain/poll/all/uc";
        assert_eq!(ping(Opcode::Write, on(Transport::Uc)).id, uc);
        let read = ping(Opcode::Read, on(Transport::Uc));
        refused(&read, "ping read has no transport uc: only reliable");
        let write = ping(Opcode::Write, on(Transport::Ud));
        refused(&write, "a datagram is a SEND");
        let flood = |change: fn(&mut crate::pair::Request)| {
            blast(|p| {
                (p.op, p.traffic.transport) = (Opcode::Send, Transport::Ud);
                change(p);
            })
        };
        refused(&flood(|p| p.verify = true), "leave --verify out");
        let both = flood(|p| p.traffic.bidirectional = true);
        refused(&both, "leave --bidirectional out");
        let patient = ping(Opcode::Send, |p| {
            p.traffic.transport = Transport::Uc;
            p.path.retries = adverb_verbs::RetryCount::new(3);
        });
        refused(&patient, "leave --timeout and --retries out");
        let long = ping(Opcode::Send, |p| {
            (p.size, p.traffic.transport) = (Bytes::new(1025), Transport::Ud);
        });
        let refusal = long.check_datagram(PathMtu::B1024).unwrap_err().to_string();
        assert!(
            refusal.contains("1025 B exceeds the path MTU 1 KiB"),
            "{refusal}"
        );
    }

    #[test]
    fn a_stream_sends_and_has_no_choice_of_verbs() {
        type Change = fn(&mut crate::pair::Request);
        let tcp = |change: Change| {
            move |p: &mut crate::pair::Request| {
                (p.op, p.traffic.transport) = (Opcode::Send, Transport::Tcp);
                change(p);
            }
        };
        assert_eq!(blast(tcp(|_| {})).validate(&DeviceCaps::MODEST), Ok(()));
        let ok = ping(Opcode::Send, tcp(|p| p.completion = Completion::Event));
        assert_eq!(ok.validate(&DeviceCaps::MODEST), Ok(()));
        assert_eq!(ok.id, "ping/send/64/plain/event/all/tcp");
        let cases: [(Change, &str); 8] = [
            (
                |p| p.op = Opcode::Read,
                "tcp has no operation read; choose --op send",
            ),
            (|p| p.inline = true, "tcp has no inline data"),
            (|p| p.post = Posting::List, "tcp has no posting of lists"),
            (
                |p| p.signal = Signaling::Periodic,
                "tcp has no signaling periodic",
            ),
            (|p| p.traffic.qps = 2, "tcp has no queue pairs"),
            (
                |p| p.traffic.bidirectional = true,
                "leave --bidirectional out",
            ),
            (|p| p.buffers = 0, "0 buffers"),
            (
                |p| (p.size, p.buffers) = (MAX_BLAST_SIZE, MAX_BUFFERS),
                "the buffers of the active side need 64 GiB",
            ),
        ];
        for (change, words) in cases {
            refused(&blast(tcp(change)), words);
        }
        refused(
            &ping(Opcode::Send, tcp(|p| p.size = Bytes::new(0))),
            "1 B to 64 MiB",
        );
        refused(
            &ping(Opcode::Send, tcp(|p| p.buffers = 2)),
            "one message in flight",
        );
    }

    #[test]
    fn atomics_need_a_device_that_has_them_and_have_one_size() {
        let add = blast(|p| (p.op, p.size) = (Opcode::FetchAdd, ATOMIC_SIZE));
        refused(&add, "no atomic operations, which fetch-add needs");
        let has = DeviceCaps {
            atomics: AtomicCap::Device,
            ..DeviceCaps::MODEST
        };
        assert_eq!(add.validate(&has), Ok(()));
        refused(
            &ping(Opcode::Cas, |_| {}),
            "size 64 B: cas is an operation on 8 B",
        );
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
        refused(
            &ping(Opcode::Send, |p| p.traffic.qps = 2),
            "2 queue pairs is for blast",
        );
        refused(
            &ping(Opcode::Send, |p| p.traffic.bidirectional = true),
            "traffic in both directions is for blast",
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
            ..DeviceCaps::MODEST
        };
        let message = blast(|_| {}).validate(&small).unwrap_err().to_string();
        assert!(
            message.contains("the send queue needs 16 requests outstanding"),
            "{message}"
        );
        let many = blast(|p| (p.buffers, p.traffic.qps) = (256, 32));
        refused(&many, "the completion queue of sends needs 8192 requests");
    }
}
