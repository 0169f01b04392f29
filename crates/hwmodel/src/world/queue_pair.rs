//! A queue pair: what it is made of, what is queued, and how its life goes.

use std::collections::VecDeque;

use adverb_sim::Agenda;
use adverb_units::{Span, Time};
use adverb_verbs::{
    AccessFlags, AckTimeout, ModifyQpError, Operation, PacketMarking, Psn, QpAttr, QpCaps, QpState,
    QpType, Qpn, RetryCount, RnrTimer, SendFlags, WcStatus, WrId,
    qp::{AttrLimits, check_transition},
};
use smallvec::SmallVec;

use super::machine::machine_of;
use super::memory::Range;
use super::send_queue::{BlueFlame, Reading, Stamp};
use super::wire::Passage;
use super::{Event, Fabric, QpRef};
use crate::resource::Slots;

/// Number of a machine's first queue pair: below lie the special ones (IBTA vol. 1, 3.9.3).
pub(crate) const FIRST_NUMBER: u32 = 2;

/// A piece of memory that a request names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) key: u32,
}

/// The pieces of a request; most have one.
pub(crate) type Pieces = SmallVec<[Piece; 1]>;

/// The ranges of memory that they are; most have one.
pub(crate) type Ranges = SmallVec<[Range; 1]>;

/// Where a datagram, or a request of a DC initiator, goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) machine: u32,
    pub(crate) number: Qpn,
    pub(crate) qkey: u32,
}

/// Where the NIC has a request from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The CPU wrote it by MMIO.
    Written(Stamp),
    /// The CPU wrote it by MMIO, and it is still in a buffer of the BlueFlame register.
    Buffered,
    /// The NIC read it.
    Read(Stamp),
    /// The NIC read it to send it next, when there is room for another READ.
    Next,
    /// It is in the host's memory only.
    InMemory,
}

/// A request in the send queue, until it is completed.
#[derive(Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: WrId,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) pieces: Pieces,
    pub(crate) length: u64,
    /// Payload that came with it.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) target: Option<Target>,
    /// 64 B lines of it.
    pub(crate) lines: u64,
    /// When the NIC has it.
    pub(crate) ready: Time,
    /// Where the NIC has it from.
    pub(crate) held: Held,
    /// Which doorbell of the queue pair told of it.
    pub(crate) doorbell: u64,
    /// How it ended.
    pub(crate) status: Option<WcStatus>,
    /// When its completion can be seen.
    pub(crate) completed: Time,
}

/// A receive request.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: WrId,
    pub(crate) pieces: Pieces,
}

/// A receive that a message has consumed.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) wr_id: WrId,
    /// Its memory.
    pub(crate) ranges: Ranges,
    pub(crate) status: WcStatus,
    /// Bytes before the payload (the global routing header of a datagram).
    pub(crate) header: u32,
}

/// The other end of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) machine: u32,
    pub(crate) number: Qpn,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) machine: u32,
    pub(crate) index: u32,
    pub(crate) number: Qpn,
    pub(crate) life: u32,
    pub(crate) qp_type: QpType,
    pub(crate) state: QpState,
    pub(crate) pd: u32,
    pub(crate) caps: QpCaps,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    /// Its processing unit.
    pub(crate) unit: u32,
    /// The context whose last BlueFlame register it shares with others.
    pub(crate) shared_register: Option<u32>,
    /// Port by which it leaves.
    pub(crate) port: u32,
    /// Longest payload that a receive gets within its completion.
    pub(crate) max_inl_recv: u32,

    // Set by Modify QP.
    pub(crate) access: AccessFlags,
    pub(crate) remote: Option<Remote>,
    pub(crate) mtu: u64,
    pub(crate) qkey: u32,
    pub(crate) sq_psn: Psn,
    pub(crate) expected: Psn,
    /// The connection of a DC initiator.
    pub(crate) dc: super::dc::Connection,
    pub(crate) max_rd_atomic: u32,
    pub(crate) timeout: Option<Span>,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: Option<u8>,
    pub(crate) min_rnr_timer: Span,

    // Send queue.
    pub(crate) sends: VecDeque<Wqe>,
    /// Number of the first in `sends`.
    pub(crate) first: u64,
    /// Number of the next that the NIC takes up.
    pub(crate) next: u64,
    /// Number behind the last that had begun when the queue pair went to SQD.
    pub(crate) drains_until: u64,
    /// Number of the first that the NIC does not know of.
    pub(crate) known: u64,
    /// Number behind the last that the NIC knew of without having it.
    pub(crate) unread: u64,
    pub(crate) blueflame: BlueFlame,
    /// It is settled when its next request is read.
    pub(crate) reading: Reading,
    /// Doorbells that told of requests.
    pub(crate) doorbells: u64,
    /// Those before are completed, and the program knows it: their room is free.
    pub(crate) retired: u64,
    pub(crate) reads_under_way: u32,
    /// When the last READ or atomic operation left room for another.
    pub(crate) room: Time,
    /// Payload reads of its requests.
    pub(crate) gathers: Slots,
    /// Its next request has its turn at the processing unit.
    pub(crate) issuing: bool,
    /// It waits after RNR.
    pub(crate) paused: bool,
    pub(crate) timeout_pending: bool,
    /// When the last answer came.
    pub(crate) heard: Time,
    pub(crate) retries_left: u8,
    pub(crate) rnr_retries_left: Option<u8>,
    /// The way of its last request.
    pub(crate) departed: Passage,
    /// The way of its last answer.
    pub(crate) answered: Passage,

    // Receive queue.
    /// The shared one that it takes from instead of its own.
    pub(crate) srq: Option<u32>,
    /// It has failed, and it is still to be told that it has taken its last shared receive.
    pub(crate) owes_last_wqe: bool,
    pub(crate) receives: VecDeque<Receive>,
    /// Receives that complete without a message, once those before them have completed.
    pub(crate) failed_receives: VecDeque<(WrId, WcStatus)>,
    /// When the last message that consumed a receive is delivered.
    pub(crate) delivered: Time,
    /// Receives posted and not polled.
    pub(crate) receives_in_use: u32,
}

impl Qp {
    /// Of the `length` bytes that an operation brings, those that the completion of its receive carries.
    #[inline]
    pub(crate) fn inline_recv(&self, operation: Operation, length: u64) -> u64 {
        match operation {
            Operation::Send | Operation::SendWithImm(_) if length <= self.max_inl_recv.into() => {
                length
            }
            _ => 0,
        }
    }

    pub(crate) fn reference(&self) -> QpRef {
        QpRef {
            index: self.index,
            life: self.life,
        }
    }

    /// Number of the first request that was not posted.
    pub(crate) fn posted(&self) -> u64 {
        self.first + self.sends.len() as u64
    }

    /// A request that is not completed.
    #[inline]
    pub(crate) fn wqe(&mut self, seq: u64) -> Option<&mut Wqe> {
        let place = seq.checked_sub(self.first)?;
        self.sends.get_mut(usize::try_from(place).ok()?)
    }

    /// Whether the peer of a connection is `other`.
    pub(crate) fn is_connected_to(&self, machine: u32, number: Qpn) -> bool {
        self.remote
            .is_some_and(|remote| remote.machine == machine && remote.number == number)
    }

    /// Another life, in RESET.
    fn begin_life(&mut self) {
        self.life += 1;
        self.state = QpState::Reset;
        self.remote = None;
        self.dc = super::dc::Connection::default();
        self.sends.clear();
        self.receives.clear();
        self.failed_receives.clear();
        (self.first, self.next, self.known, self.retired) = (0, 0, 0, 0);
        (self.unread, self.blueflame) = (0, BlueFlame::default());
        (self.doorbells, self.reading) = (0, Reading::No);
        self.reads_under_way = 0;
        self.receives_in_use = 0;
        self.owes_last_wqe = false;
        (self.issuing, self.paused, self.timeout_pending) = (false, false, false);
    }

    fn apply(&mut self, attr: &QpAttr) {
        if let Some(access) = attr.access {
            self.access = access;
        }
        if let Some(qkey) = attr.qkey {
            self.qkey = qkey;
        }
        if let Some(mtu) = attr.path_mtu {
            self.mtu = mtu.bytes().get();
        }
        self.sq_psn = attr.sq_psn.unwrap_or(self.sq_psn);
        self.expected = attr.rq_psn.unwrap_or(self.expected);
        self.max_rd_atomic = attr.max_rd_atomic.map_or(self.max_rd_atomic, u32::from);
        if let Some(timeout) = attr.timeout {
            self.timeout = AckTimeout::span(timeout);
        }
        if let Some(count) = attr.retry_cnt {
            self.retry_cnt = count.get();
            self.retries_left = count.get();
        }
        if let Some(count) = attr.rnr_retry {
            self.rnr_retry = RetryCount::as_rnr(count);
            self.rnr_retries_left = self.rnr_retry;
        }
        if let Some(timer) = attr.min_rnr_timer {
            self.min_rnr_timer = RnrTimer::span(timer);
        }
    }
}

impl Fabric {
    /// Modify QP (IBTA vol. 1, 10.3.1, 11.2.5.2).
    pub(crate) fn modify(
        &mut self,
        index: u32,
        attr: &QpAttr,
        agenda: &mut Agenda<Event>,
    ) -> Result<(), ModifyQpError> {
        let qp = &self.qps[index as usize];
        let to = check_transition(qp.qp_type, qp.state, attr)?;
        self.check_ranges(qp, attr)?;
        match to {
            QpState::Reset => self.reset(index),
            QpState::Err => self.fail(index, QpState::Err, agenda),
            _ => {
                let remote = self.remote_of(attr)?;
                if let Some(remote) = remote {
                    self.agree_on_port(index, remote);
                }
                let qp = &mut self.qps[index as usize];
                qp.remote = remote.or(qp.remote);
                qp.apply(attr);
                if (qp.state, to) == (QpState::Rts, QpState::Sqd) {
                    // What waits for a receive has begun; what was sent behind it is sent again.
                    qp.drains_until = qp.next + u64::from(qp.paused);
                }
                qp.state = to;
                if to == QpState::Rts {
                    // From SQD: what was posted meanwhile goes on.
                    let qp = qp.reference();
                    self.pump(qp, agenda);
                }
            }
        }
        Ok(())
    }

    /// Both ends of a connection use the same port: switches of different ports are not connected. The
    /// first that is connected chooses the one that has fewer connections at both machines.
    fn agree_on_port(&mut self, index: u32, remote: Remote) {
        let (here, number) = {
            let qp = &self.qps[index as usize];
            (qp.machine, qp.number)
        };
        let there = remote.machine;
        let peer = self.find(there, remote.number);
        let peer = peer.map(|peer| &self.qps[peer as usize]);
        let agreed = peer.filter(|peer| peer.is_connected_to(here, number));
        let port = agreed.map(|peer| peer.port).unwrap_or_else(|| {
            let connected = |machine: u32, port: usize| {
                self.machines[machine as usize]
                    .nic
                    .connected
                    .get(port)
                    .copied()
            };
            let load = |port: &u32| {
                let port = *port as usize;
                connected(here, port).unwrap_or(0) + connected(there, port).unwrap_or(0)
            };
            let ports = self.machines[here as usize].nic.ports.len() as u32;
            (0..ports).min_by_key(load).unwrap_or(0)
        });
        self.qps[index as usize].port = port;
        let connected = &mut self.machines[here as usize].nic.connected;
        if let Some(connected) = connected.get_mut(port as usize) {
            *connected += 1;
        }
    }

    /// Checks the values of the attributes.
    fn check_ranges(&self, qp: &Qp, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let machine = &self.machines[qp.machine as usize];
        let most = machine.caps.max_qp_rd_atom;
        let limits = AttrLimits {
            ports: machine.nic.ports.len() as u8,
            max_rd_atomic: most,
            max_dest_rd_atomic: most,
        };
        limits.check(attr)?;
        if let Some(address) = &attr.address {
            address.check_marking(machine.preset.link_layer, PacketMarking::None)?;
        }
        Ok(())
    }

    fn remote_of(&self, attr: &QpAttr) -> Result<Option<Remote>, ModifyQpError> {
        let (Some(number), Some(address)) = (attr.dest_qpn, attr.address) else {
            return Ok(None);
        };
        let machine = machine_of(address.dgid, self.machines.len() as u32).ok_or_else(|| {
            ModifyQpError::Unreachable {
                peer: format!("{} QP {number}", address.dgid),
                reason: "no machine of this cluster has a port of that GID".into(),
            }
        })?;
        Ok(Some(Remote { machine, number }))
    }

    pub(crate) fn reset(&mut self, index: u32) {
        self.release(self.qps[index as usize].reference());
        let qp = &mut self.qps[index as usize];
        let (number, cqs) = (qp.number, [qp.send_cq, qp.recv_cq]);
        let mut received = qp.failed_receives.len() as u32;
        qp.begin_life();
        for cq in cqs {
            received += self.cqs[cq as usize].purge(number);
        }
        self.give_back_shared(index, received);
    }

    /// All that is posted is known to the NIC, and none of it is to be sent.
    pub(crate) fn give_up(&mut self, index: u32) {
        let qp = &mut self.qps[index as usize];
        let posted = qp.posted();
        (qp.next, qp.known) = (posted, posted);
    }

    /// To an error state: what is queued is flushed. `Sqe` leaves the receive queue alone.
    pub(crate) fn fail(&mut self, index: u32, state: QpState, agenda: &mut Agenda<Event>) {
        let qp = &mut self.qps[index as usize];
        if qp.state == QpState::Err {
            return;
        }
        qp.state = state;
        qp.reads_under_way = 0;
        for wqe in &mut qp.sends {
            if wqe.status.is_none() {
                wqe.status = Some(WcStatus::WrFlushErr);
                wqe.completed = agenda.now();
            }
        }
        self.give_up(index);
        self.retire(index, agenda);
        if state == QpState::Err {
            self.flush_own_receives(index);
            let qp = self.qps[index as usize].reference();
            self.fail_receives(qp, agenda);
        }
    }
}
