//! The stages of a NIC: contexts, translations, transmit side and receive side.

use adverb_units::{Span, Time};
use adverb_verbs::Operation;

use crate::host::memory::Range;
use crate::machine::Machine;
use crate::nic::device::{ContextKind, NicSide};
use crate::nic::port::Leaves;
use crate::trace::StepKind;

/// Bytes of a message's payload that are read at once: a packet of the largest path MTU. Smaller packets do not take longer:
/// `ib_send_lat` of 32 KiB shows 4.56 to 4.58 µs on ConnectX-4 with MTUs of 256 B to 4 KiB (D. Potter, master's thesis, RWTH
/// Aachen 2018, table of MTUs).
const PAYLOAD_READ: u64 = 4096;

impl Machine {
    /// Looks up the context of one kind of a queue pair; returns how long that stalls the side of the NIC
    /// that needs it.
    ///
    /// Requester and responder have contexts of their own.
    #[inline]
    pub(crate) fn context(&mut self, qp: u32, kind: ContextKind) -> Span {
        if self.nic.contexts.access_in(kind.key(qp), kind.room()) {
            self.nic.counts.context_hits += 1;
            return Span::ZERO;
        }
        self.nic.counts.context_misses += 1;
        self.pcie.traffic.read_lines +=
            u64::from(self.preset.params.nic.context_bytes).div_ceil(64);
        self.nic.times.context_miss
    }

    /// Loads the requester's context of a queue pair at `at`, also if it is cached, to send READs or atomic operations; returns
    /// when it is loaded.
    pub(crate) fn load_context(&mut self, qp: u32, at: Time) -> Time {
        let miss = self.context(qp, ContextKind::Requester);
        let times = &self.nic.times;
        let (busy, all) = if miss > Span::ZERO {
            (miss, times.exception)
        } else {
            (times.context_creation_stall, times.context_creation)
        };
        let loaded = self.nic.loads.begin(at, busy) + all;
        self.trace.note(StepKind::LoadContext, at, loaded);
        loaded
    }

    /// The NIC creates a context, which it need not read from memory.
    pub(crate) fn make_context(&mut self, number: u32, kind: ContextKind) {
        self.nic.contexts.access_in(kind.key(number), kind.room());
    }

    /// Occupies the transmit side for `span` from `at` on; returns when the request has passed it.
    #[inline]
    pub(crate) fn transmit(&mut self, at: Time, span: Span) -> Leaves {
        let passed = self.nic.tx.serve(at, span) + self.nic.params.tx_ns;
        let idle = at + span + self.nic.params.tx_ns;
        Leaves {
            idle,
            ready: passed,
        }
    }

    /// Occupies the transmit side with `lines` of payload, while the first ones are already leaving.
    #[inline]
    pub(crate) fn transmit_more(&mut self, at: Time, lines: u64) {
        self.nic.tx.serve(at, self.nic.params.send_line_ns * lines);
    }

    /// Writes a message of `length` bytes to memory, `delay` after its first packet arrived at `first`. Its
    /// last packet passes the receive side at `passed`. Returns when all bytes are visible: it is written while it arrives.
    pub(crate) fn stream_in(
        &mut self,
        (first, passed): (Time, Time),
        delay: Span,
        length: u64,
    ) -> Time {
        self.pcie.write(first, delay, length).max(passed)
    }

    /// Occupies the receive side for `span` from `at` on; returns when the packet has passed it.
    #[inline]
    pub(crate) fn receive(&mut self, at: Time, span: Span) -> Time {
        let at = self.pcie.admit_write(at);
        self.nic.rx.serve(at, span) + self.nic.params.rx_ns
    }

    /// Looks up the address translations of `ranges` at `at`. Misses stall `side`, the side of the NIC that needs
    /// them.
    #[inline]
    pub(crate) fn translate(&mut self, ranges: &[Range], side: NicSide, at: Time) {
        let mut missing = 0;
        for range in ranges.iter().filter(|range| range.length > 0) {
            for page in self.memory.pages(*range) {
                missing += u64::from(!self.nic.translations.access(page));
            }
        }
        if missing > 0 {
            self.nic.counts.translation_misses += missing;
            self.pcie.traffic.read_lines += missing;
            self.stall(side, at, self.nic.times.context_miss * missing);
        }
    }

    /// Returns how long the packets of a message, after its first ones, occupy the processing unit. It reads their payload, of
    /// `length` bytes, from memory that answers after `latency`: [`PAYLOAD_READ`] at a time, `nic.gathers` times concurrently.
    #[inline]
    pub(crate) fn segmenting(&self, length: u64, latency: Span) -> Span {
        if length <= PAYLOAD_READ {
            return Span::ZERO;
        }
        let further = length.div_ceil(PAYLOAD_READ) - 1;
        let rest = length - PAYLOAD_READ * further;
        let all = self.pcie.round_trip(PAYLOAD_READ, latency) * (further - 1)
            + self.pcie.round_trip(rest, latency);
        all / u64::from(self.nic.params.gathers)
    }

    /// The packets of a message after its first one, which can leave at `first`, occupy a processing unit from `at` on for
    /// `span`. Returns when the last one can leave.
    #[inline]
    pub(crate) fn segment(&mut self, (turns, at): (usize, Time), first: Time, span: Span) -> Time {
        if span == Span::ZERO {
            return first;
        }
        let begin = self.nic.units.turns[turns].begin(at, span).max(first);
        self.trace.note(StepKind::UnitWait, first, begin);
        self.trace.note(StepKind::Segment, begin, begin + span);
        begin + span
    }

    pub(crate) fn stall(&mut self, side: NicSide, at: Time, span: Span) {
        let side = match side {
            NicSide::Transmit => &mut self.nic.tx,
            NicSide::Receive => &mut self.nic.rx,
        };
        side.serve(at, span);
    }

    /// Executes a command that the driver issues at `at`; returns when it is complete.
    pub(crate) fn command(&mut self, at: Time) -> Time {
        self.nic.commands.serve(at, self.nic.params.command_ns)
    }

    /// Returns the time to pin or unpin the pages of a region.
    pub(crate) fn pin(&self, length: u64) -> Span {
        const PAGE: u64 = 4096;
        self.cpu.syscall_ns + self.cpu.pin_page_ns * length.div_ceil(PAGE)
    }
}

/// How long a request occupies the receive side. `length` excludes payload that the completion carries.
pub(crate) fn receiving_span(machine: &Machine, operation: Operation, length: u64) -> Span {
    let times = &machine.nic.times;
    match operation {
        Operation::Send | Operation::SendWithImm(_) | Operation::RdmaWriteWithImm(..) => {
            if length > 0 {
                times.recv
            } else {
                times.recv_header_only
            }
        }
        Operation::RdmaWrite(_) => times.write,
        _ => times.response,
    }
}

/// How long a request occupies the transmit side.
pub(crate) fn sending_span(machine: &Machine, operation: Operation, lines: u64) -> Span {
    let times = &machine.nic.times;
    let first = match operation {
        Operation::RdmaRead(_) | Operation::FetchAdd(..) | Operation::CompareSwap(..) => {
            times.read_request
        }
        _ => times.send,
    };
    first + machine.nic.params.send_line_ns * (lines - 1)
}

/// How long a packet that creates or ends a DC context occupies the receive side.
///
/// Creating a context costs as much as loading one, without the read over PCIe.
pub(crate) fn connecting_span(machine: &Machine) -> Span {
    machine.nic.times.response + machine.nic.times.context_creation_stall
}
