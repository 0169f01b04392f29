//! The verbs objects of one side, and their connection to the other side's.

use adverb_results::{Opcode, Program, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, CompletionQueue, Connection, Context, Destination, Endpoint, LinkLayer,
    MemoryAccessError, MemoryRegion, PathMtu, PathOptions, QpCaps, QpType, QueuePair,
    RemoteAddress, RetryParams, Sge, Station, WaitError, WcStatus, WorkCompletion,
};

use crate::attend::{Attend, Awaited, attentively};
use crate::error::{Fault, Side};
use crate::pair::layout::{self, IN, Layout};
use crate::pair::message::Hello;
use crate::pair::peer::Peer;
use crate::pair::spec::CellSpec;
use crate::payload::Pattern;
use crate::reap::Queue;
use crate::wiring::{Kit, MAX_RD_ATOMIC, PeerAddress, QKEY, RdAtomic, Route};

/// One side's objects.
pub(crate) struct Bench<'s, S: Station> {
    pub(crate) station: &'s S,
    pub(crate) peer: &'s Peer<'s, S>,
    pub(crate) spec: &'s CellSpec,
    pub(crate) side: Side,
    pub(crate) layout: Layout,
    pub(crate) pattern: Pattern,
    kit: Kit<'s, S>,
    /// Queue pairs, which messages use in turn.
    pub(crate) qps: Vec<<S::Context as Context>::Qp>,
    pub(crate) send: Queue<S::Context>,
    pub(crate) recv: Queue<S::Context>,
    /// Path MTU of the connection; `None` before it, or if messages are not split into packets.
    pub(crate) path_mtu: Option<PathMtu>,
    /// The other side's buffers; this side's until the other side's Hello.
    remote: RemoteAddress,
    /// Addresses for datagrams; empty for connected queue pairs and before the connection.
    peers: Vec<PeerAddress<S::Context>>,
    /// One for each connected queue pair.
    connections: Vec<Connection>,
    /// Endpoints of this side's queue pairs, with listening addresses after its Hello.
    endpoints: Vec<Endpoint>,
}

impl<'s, S: Station> Bench<'s, S> {
    /// Creates the objects; the queue pairs are in INIT.
    pub(crate) fn new(
        station: &'s S,
        peer: &'s Peer<'s, S>,
        spec: &'s CellSpec,
        side: Side,
    ) -> Result<Self, Fault> {
        let context = station.context();
        spec.validate(context.caps())?;
        let layout = Layout::of(spec, side);
        let mut access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        if spec.params.op.is_atomic() {
            access |= AccessFlags::REMOTE_ATOMIC;
        }
        let memory = (layout.memory().get(), access);
        let kit = Kit::new(station, memory, spec.params.path)?;
        let completion = spec.params.completion;
        let qps = spec.params.traffic.qps;
        let (sends, receives) = (layout.completions() * qps, layout.receives * qps);
        let send = Queue::new(context, sends, completion, Awaited::OwnRequest)?;
        let recv = Queue::new(context, receives, completion, Awaited::Message)?;
        let inline = match spec.params.inline {
            true => u32::try_from(spec.params.size.get()).unwrap_or(u32::MAX),
            false => 0,
        };
        let caps = QpCaps {
            max_inline_data: inline,
            ..QpCaps::new(layout.send_depth, layout.receives.max(1))
        };
        // A side that both sends and receives uses one completion queue for both.
        let receives = if layout.inbox > 0 { &send } else { &recv };
        let qps = (0..qps).map(|_| kit.queue_pair(qp_type(spec), (&send, receives), caps, 0));
        let qps = qps.collect::<Result<Vec<_>, _>>()?;
        let bench = Bench {
            station,
            peer,
            spec,
            side,
            layout,
            pattern: Pattern::new(spec.params.seed),
            endpoints: qps.iter().map(|qp| kit.endpoint(qp)).collect(),
            connections: Vec::new(),
            peers: Vec::new(),
            path_mtu: None,
            remote: kit.mr.remote(0),
            kit,
            qps,
            send,
            recv,
        };
        bench.fill()?;
        Ok(bench)
    }

    /// Returns this side's memory.
    pub(crate) fn mr(&self) -> &<S::Context as Context>::Mr {
        &self.kit.mr
    }

    /// Returns the queue pair of a program that has only one.
    pub(crate) fn qp(&self) -> &<S::Context as Context>::Qp {
        &self.qps[0]
    }

    /// Returns this side's Hello. If the device uses a connection manager, the passive side listens from now on.
    pub(crate) fn hello(&mut self) -> Result<Hello, Fault> {
        let is_reliable = self.spec.params.traffic.transport.is_reliable();
        if self.side == Side::Passive && is_reliable {
            for (end, qp) in self.endpoints.iter_mut().zip(&self.qps) {
                end.cm = qp.listen()?;
            }
        }
        Ok(Hello {
            program: self.spec.program.to_string(),
            params: self.spec.params.clone(),
            endpoints: self.endpoints.clone(),
            listens_at: None,
            mtu: self.kit.port().active_mtu.bytes().get(),
            max_rd_atomic: self.max_rd_atomic(),
            addr: self.mr().addr(),
            rkey: self.mr().rkey(),
        })
    }

    /// Connects the queue pairs to the other side's.
    pub(crate) fn connect(&mut self, peer: &Hello) -> Result<(), Fault> {
        peer.check(self.spec)?;
        let port = *self.kit.port();
        let common = common_mtu(port.active_mtu, peer.mtu);
        let options = self.spec.params.path;
        let path_mtu = options.path_mtu_up_to(common)?;
        self.path_mtu = port.link_layer.has_path_mtu().then_some(path_mtu);
        self.remote = RemoteAddress {
            addr: peer.addr,
            rkey: peer.rkey,
        };
        let route = Route {
            path_mtu: common,
            rd_atomic: RdAtomic {
                initiator: self.max_rd_atomic().min(peer.max_rd_atomic),
                responder: self.max_rd_atomic(),
            },
            options,
        };
        self.spec.check_datagram(path_mtu)?;
        if qp_type(self.spec) == QpType::Ud {
            let peers = peer
                .endpoints
                .iter()
                .map(|end| self.kit.peer_address(end, QKEY));
            self.peers = peers.collect::<Result<_, _>>()?;
            return Ok(());
        }
        let ends = self.endpoints.iter().zip(&peer.endpoints);
        let connected = self.qps.iter().zip(ends).map(|(qp, (local, remote))| {
            let qp = (qp_type(self.spec), qp);
            self.kit.connect(qp, *local, *remote, &route)
        });
        self.connections = connected.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns the retransmission parameters; `None` over TCP, which has its own.
    pub(crate) fn retry_params(&self) -> Option<RetryParams> {
        let is_reliable = self.spec.params.traffic.transport.is_reliable();
        let has_timers = is_reliable && self.kit.port().link_layer.has_ack_timeout();
        has_timers.then(|| self.spec.params.path.retry_params())
    }

    /// Returns the failure of a request that nobody waits for, if there is one, otherwise the error of a wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn unless_a_send_failed(&self, error: WaitError) -> Fault {
        self.send_failure().err().unwrap_or_else(|| error.into())
    }

    /// Checks for failures of requests that nobody waits for. It discards successful completions, so no request
    /// that is awaited later may be outstanding.
    fn send_failure(&self) -> Result<(), Fault> {
        let mut wc = [WorkCompletion::default()];
        while self.send.cq.poll(&mut wc)? > 0 {
            if !wc[0].status.is_success() {
                return Err(self.failed(&wc[0]));
            }
        }
        Ok(())
    }

    /// Calls `wait` with short timeouts until it succeeds, the timeout ends, or the other side fails or ends the
    /// run.
    #[inline]
    pub(crate) fn attentively<R, E: Into<Fault>>(
        &self,
        awaited: Awaited,
        wait: impl FnMut(Span) -> Result<R, E>,
    ) -> Result<R, Fault> {
        attentively(self, awaited, wait)
    }

    /// Returns the SGE of this side's buffer `slot`.
    pub(crate) fn sge(&self, slot: u32) -> Result<Sge<'_>, Fault> {
        let length = u32::try_from(self.size()).unwrap_or(u32::MAX);
        Ok(self.mr().sge(self.layout.offset(slot), length)?)
    }

    /// The same, with room for the header of a received message.
    pub(crate) fn receive_sge(&self, slot: u32) -> Result<Sge<'_>, Fault> {
        let length = u32::try_from(self.size() + layout::header(self.spec)).unwrap_or(u32::MAX);
        Ok(self.mr().sge(self.layout.offset(slot), length)?)
    }

    /// Returns the destination of a queue pair's datagrams.
    pub(crate) fn destination(&self, link: usize) -> Option<Destination<'_>> {
        self.peers.get(link).map(PeerAddress::destination)
    }

    /// The pieces of a request whose payload is in `buffer`: none if there is no payload, because to some
    /// devices a piece of length 0 is one of 2 GiB.
    pub(crate) fn pieces<'p>(&self, buffer: &'p [Sge<'p>; 1]) -> &'p [Sge<'p>] {
        if self.size() > 0 { buffer } else { &[] }
    }

    /// Returns the SGEs of a receive into `buffer`.
    pub(crate) fn receive_pieces<'p>(&self, buffer: &'p [Sge<'p>; 1]) -> &'p [Sge<'p>] {
        if self.size() + layout::header(self.spec) > 0 {
            buffer
        } else {
            &[]
        }
    }

    /// Returns the address of the other side's buffer `slot` for messages of this side. Buffers have the same
    /// distance on both sides.
    pub(crate) fn remote(&self, slot: u32) -> RemoteAddress {
        self.remote.at(self.layout.offset(self.layout.inbox + slot))
    }

    /// Returns the payload size of a message.
    pub(crate) fn size(&self) -> u64 {
        self.spec.params.size.get()
    }

    /// Writes the payload of `message` into buffer `slot`.
    pub(crate) fn write_payload(&self, slot: u32, message: u64) -> Result<(), MemoryAccessError> {
        let offset = self.layout.offset(slot);
        self.pattern.fill(self.mr(), offset, self.size(), message)
    }

    /// Compares buffer `slot` with the payload of `message`.
    pub(crate) fn check_payload(&self, slot: u32, message: u64) -> Result<(), Fault> {
        let offset = self.layout.offset(slot);
        self.pattern.check(self.mr(), offset, self.size(), message)
    }

    /// Compares the received data in buffer `slot` with the payload of `message`.
    pub(crate) fn check_received(&self, slot: u32, message: u64) -> Result<(), Fault> {
        let offset = self.layout.offset(slot) + layout::header(self.spec);
        self.pattern.check(self.mr(), offset, self.size(), message)
    }

    /// The same without the last byte, which the receiver polls.
    pub(crate) fn check_payload_but_last(&self, slot: u32, message: u64) -> Result<(), Fault> {
        let offset = self.layout.offset(slot);
        self.pattern
            .check(self.mr(), offset, self.size() - 1, message)
    }

    /// After a run, checks what this side was given without any completion of its own, if payload is
    /// checked: its buffers hold the last of as many messages as each queue pair has `carried`. Buffers that
    /// READs read from keep their contents.
    pub(crate) fn check_given(&self, carried: &[u64]) -> Result<(), Fault> {
        if !self.checks_given() {
            return Ok(());
        }
        let inbox = self.layout.inbox;
        if self.spec.params.op.is_atomic() {
            return self.check_counter(inbox, carried);
        }
        let buffers = (self.layout.slots - inbox) / self.spec.params.traffic.qps;
        let slots = carried.iter().enumerate();
        let slots = slots.flat_map(|(link, n)| (0..buffers).map(move |buffer| (link, *n, buffer)));
        for (link, messages, buffer) in slots {
            let slot = link as u32 * buffers + buffer;
            let (first, buffers) = (u64::from(buffer), u64::from(buffers));
            if self.spec.params.op == Opcode::Read {
                self.check_payload(inbox + slot, slot.into())?;
            } else if messages > first {
                let rounds = (messages - 1 - first) / buffers;
                self.check_payload(inbox + slot, self.number(link, first + rounds * buffers))?;
            }
        }
        Ok(())
    }

    /// Checks, after a run, the counter that each fetch-and-add increments. With a single queue pair each
    /// compare-and-swap does so, too; with several, another one may have changed the expected value.
    fn check_counter(&self, slot: u32, carried: &[u64]) -> Result<(), Fault> {
        if self.spec.params.op == Opcode::Cas && carried.len() > 1 {
            return Ok(());
        }
        let messages = carried.iter().sum();
        self.check_word(slot, messages, messages)
    }

    /// Compares the word in buffer `slot` with the value `expected` after `message`.
    pub(crate) fn check_word(&self, slot: u32, message: u64, expected: u64) -> Result<(), Fault> {
        let mut word = [0; 8];
        self.mr().read(self.layout.offset(slot), &mut word)?;
        let found = u64::from_ne_bytes(word);
        if found == expected {
            return Ok(());
        }
        Err(Fault::WrongCompletion {
            message,
            what: "word of an atomic operation",
            expected,
            found,
        })
    }

    /// Returns the number of a queue pair's `message` among all messages, which determines its payload.
    pub(crate) fn number(&self, link: usize, message: u64) -> u64 {
        message * u64::from(self.spec.params.traffic.qps) + link as u64
    }

    /// Whether this side of a `blast` sends.
    pub(crate) fn sends(&self) -> bool {
        sends(self.spec, self.side)
    }

    /// Whether this side sends, and the other one does not.
    fn is_only_sender(&self) -> bool {
        self.side == Side::Active && self.layout.inbox == 0
    }

    /// Whether this side checks, after a run, what it was given without any completion of its own.
    fn checks_given(&self) -> bool {
        self.spec.params.verify && !self.is_only_sender() && !is_answered(self.spec)
    }

    /// Touches all memory, and fills the buffers that READs read from with the data that is checked. In virtual time, data
    /// that is not checked makes no difference.
    fn fill(&self) -> Result<(), Fault> {
        let is_source = !self.is_only_sender() && self.spec.params.op == Opcode::Read;
        let inbox = self.layout.inbox;
        let slots = match self.spec.params.verify || !self.station.is_virtual() {
            true => self.layout.slots,
            false => 0,
        };
        for slot in 0..slots {
            let nothing_yet = u64::MAX - u64::from(slot);
            let source = slot.checked_sub(inbox).filter(|_| is_source);
            self.write_payload(slot, source.map_or(nothing_yet, u64::from))?;
        }
        if self.spec.params.op.is_atomic() {
            self.mr().write(self.layout.offset(inbox), &[0; 8])?;
        }
        if self.spec.program == Program::Ping && self.spec.params.op == Opcode::Write {
            // The polled byte has a value of no message.
            self.mr().write(self.layout.last_byte(IN), &[0])?;
        }
        Ok(())
    }

    fn max_rd_atomic(&self) -> u8 {
        let caps = self.station.context().caps();
        caps.max_qp_rd_atom.clamp(1, MAX_RD_ATOMIC)
    }
}

impl<S: Station> Attend for Bench<'_, S> {
    fn timeout(&self) -> Span {
        self.peer.timeout()
    }

    fn look(&self, awaited: Awaited) -> Result<(), Fault> {
        self.peer.look(awaited)
    }

    #[cold]
    fn failed(&self, wc: &WorkCompletion) -> Fault {
        let (wr_id, status) = (wc.wr_id, wc.status);
        let connections = &mut self.connections.iter();
        let connection = connections.find(|connection| connection.local.qpn == wc.qp_num);
        let unanswered = connection.and_then(|connection| {
            let retry = self.retry_params()?;
            Some(Fault::Unanswered {
                wr_id,
                peer: format!("QP {} at {}", connection.remote.qpn, connection.remote.gid),
                retries: retry.retry_cnt.get(),
                timeout: retry.timeout.span()?,
                remedy: what_to_look_at(&self.spec.params.path, self.kit.port().link_layer),
            })
        });
        match unanswered {
            Some(fault) if status == WcStatus::RetryExcErr => fault,
            _ => Fault::Completion { wr_id, status },
        }
    }
}

/// Whether a side does nothing in a run: the active side uses one-sided operations.
pub(crate) fn is_idle(spec: &CellSpec, side: Side) -> bool {
    side == Side::Passive && !is_answered(spec) && !spec.params.traffic.bidirectional
}

/// Whether a side of a `blast` sends.
pub(crate) fn sends(spec: &CellSpec, side: Side) -> bool {
    side == Side::Active || spec.params.traffic.bidirectional
}

/// Whether the passive side learns of messages.
fn is_answered(spec: &CellSpec) -> bool {
    match spec.program {
        Program::Ping => spec.params.op.consumes_receive() || spec.params.op == Opcode::Write,
        Program::Blast => spec.params.op.consumes_receive(),
    }
}

fn qp_type(spec: &CellSpec) -> QpType {
    match spec.params.traffic.transport {
        Transport::Rc => QpType::Rc,
        Transport::Uc => QpType::Uc,
        Transport::Ud => QpType::Ud,
        Transport::Tcp => unreachable!("a stream has no queue pairs"),
    }
}

/// Returns what to check if the peer does not answer.
fn what_to_look_at(path: &PathOptions, link_layer: LinkLayer) -> &'static str {
    match link_layer {
        _ if path.impairment.is_some() => {
            "the path that was asked for loses or delays packets: raise --retries or --timeout"
        }
        LinkLayer::SharedMemory => "check that its process runs",
        LinkLayer::Ethernet => {
            "check that its process runs, that its address is reached from here (`ip route get`), that no firewall stops UDP port 4791 (of soft@ADDR also those above) either way, and that packets of the path MTU fit the whole way (else --mtu)"
        }
        _ => "check that its process runs, and that the link to its port is up (`adverb doctor`)",
    }
}

/// Returns the path MTU: the largest MTU that both ports support.
fn common_mtu(ours: PathMtu, theirs: u64) -> PathMtu {
    PathMtu::up_to(Bytes::new(theirs)).map_or(PathMtu::B256, |theirs| theirs.min(ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_mtu_is_common() {
        assert_eq!(common_mtu(PathMtu::B4096, 1024), PathMtu::B1024);
        assert_eq!(common_mtu(PathMtu::B1024, 4096), PathMtu::B1024);
        assert_eq!(common_mtu(PathMtu::B256, 0), PathMtu::B256);
    }
}
