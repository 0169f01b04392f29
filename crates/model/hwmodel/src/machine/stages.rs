//! What the stages of a NIC take: contexts, translations, the sending and the receiving side.

use adverb_units::{Span, Time};
use adverb_verbs::Operation;

use crate::host::memory::Range;
use crate::machine::Machine;
use crate::nic::device::{Half, NicSide};
use crate::nic::port::Leaves;
use crate::trace::Act;

impl Machine {
    /// The context of one half of a queue pair is needed; how long that stops the side that needs it.
    ///
    /// The halves, as requester and as responder, are kept apart.
    #[inline]
    pub(crate) fn context(&mut self, qp: u32, half: Half) -> Span {
        if self.nic.contexts.access_in(half.key(qp), half.room()) {
            self.nic.counts.context_hits += 1;
            return Span::ZERO;
        }
        self.nic.counts.context_misses += 1;
        self.pcie.traffic.read_lines +=
            u64::from(self.preset.params.nic.context_bytes).div_ceil(64);
        self.nic.times.context_miss
    }

    /// The NIC makes a context: what it writes it need not read.
    pub(crate) fn make_context(&mut self, number: u32, half: Half) {
        self.nic.contexts.access_in(half.key(number), half.room());
    }

    /// The sending side works for `span`, from `at` on; returns when the request has passed it.
    #[inline]
    pub(crate) fn transmit(&mut self, at: Time, span: Span) -> Leaves {
        let passed = self.nic.tx.serve(at, span) + self.nic.times.tx;
        let idle = at + span + self.nic.times.tx;
        Leaves {
            idle,
            ready: passed,
        }
    }

    /// So many lines of payload follow: the sending side is busy with them, while the first ones are on
    /// their way.
    #[inline]
    pub(crate) fn transmit_more(&mut self, at: Time, lines: u64) {
        self.nic.tx.serve(at, self.nic.times.send_line * lines);
    }

    /// The NIC writes a message of `length` bytes to memory, `delay` after its first packet came at
    /// `first`; the last one passes the receiving side at `passed`. Returns when all can be seen.
    ///
    /// A long message streams in behind its first packet.
    pub(crate) fn stream_in(
        &mut self,
        (first, passed): (Time, Time),
        delay: Span,
        (length, mtu): (u64, u64),
    ) -> Time {
        let streamed = self.pcie.write(first, delay, length);
        if length <= mtu {
            return streamed.max(passed);
        }
        // What came last is written last; so is the full packet before it.
        let rest = (length - 1) % mtu.max(1) + 1;
        let came_before = self.link.byte.of(rest);
        let full = self.pcie.write_time(mtu).saturating_sub(came_before);
        let seen = passed + self.pcie.write_time(rest).max(full);
        let act = Act::Write(self.pcie.trace.subject(), rest);
        self.pcie.trace.note(act, passed, seen);
        streamed.max(seen)
    }

    /// The receiving side works for `span`, from `at` on; returns when the packet has passed it.
    #[inline]
    pub(crate) fn receive(&mut self, at: Time, span: Span) -> Time {
        let at = self.pcie.admit_write(at);
        self.nic.rx.serve(at, span) + self.nic.times.rx
    }

    /// Looks up the address translations of `ranges` for one side of the NIC at `at`. That side is stalled while
    /// missing ones are fetched.
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
            self.stop(side, at, self.nic.times.context_miss * missing);
        }
    }

    /// A side of the NIC does nothing else for `span`.
    pub(crate) fn stop(&mut self, side: NicSide, at: Time, span: Span) {
        let side = match side {
            NicSide::Sending => &mut self.nic.tx,
            NicSide::Receiving => &mut self.nic.rx,
        };
        side.serve(at, span);
    }

    /// A command of the driver's, given at `at`; returns when it has been carried out.
    pub(crate) fn command(&mut self, at: Time) -> Time {
        self.nic.commands.serve(at, self.nic.times.command)
    }

    /// Pinning, or letting go, the host's pages of a region.
    pub(crate) fn pin(&self, length: u64) -> Span {
        const PAGE: u64 = 4096;
        self.cpu.syscall + self.cpu.pin_page * length.div_ceil(PAGE)
    }
}

/// How long a request occupies the receiving side, of whose payload `length` bytes are written apart from
/// a completion.
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

/// How long a request occupies the sending side.
pub(crate) fn sending_span(machine: &Machine, operation: Operation, lines: u64) -> Span {
    let times = &machine.nic.times;
    match operation {
        Operation::RdmaRead(_) | Operation::FetchAdd(..) | Operation::CompareSwap(..) => {
            times.read_request
        }
        _ => times.send + times.send_line * (lines - 1),
    }
}

/// How long a packet that makes or ends a context occupies the receiving side.
///
/// Making a context costs what loading one costs, without the read over PCIe.
pub(crate) fn connecting_span(machine: &Machine) -> Span {
    machine.nic.times.response + machine.nic.times.context_making
}
