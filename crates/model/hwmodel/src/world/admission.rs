//! Whether the responder executes a request: connection, order, keys, access rights, receives.

use adverb_verbs::{AccessFlags, Operation, QpType, RemoteAddress, WcStatus};

use crate::host::memory::{Asked, Range, Ranges};
use crate::ids::QpRef;
use crate::nic::receive_queue::Received;
use crate::world::fabric::Fabric;
use crate::world::message::Delivery;

/// Room for the global routing header before a datagram's payload.
pub(super) const GRH: u32 = 40;

pub(super) enum Refusal {
    /// No such queue pair: no answer.
    Silence,
    /// Not the expected PSN.
    OutOfSequence,
    /// No receive is posted.
    NotReady,
    /// The request is invalid; the receive that it consumed, if any, fails, too.
    Invalid(WcStatus, Option<Received>),
}

pub(super) enum Task {
    Deliver(Delivery),
    Read(Option<Range>),
    Atomic(Range),
}

impl Fabric {
    /// Checks whether a request may be executed, and consumes the receive that it needs.
    pub(super) fn admit(&mut self, message: u32) -> Result<Task, Refusal> {
        let m = self.messages.get(message);
        let (from, to, operation, length) = (m.from, m.to, m.operation, m.length);
        let (psn, qkey) = (m.psn, m.qkey);
        let source = &self.qps[from.index];
        let (machine, number, seq) = (source.machine, source.number, m.seq);
        let source_type = source.qp_type;
        let qp = self.alive(to).ok_or(Refusal::Silence)?;
        if !qp.state.receives() {
            return Err(Refusal::Silence);
        }
        if qp.qp_type == QpType::Ud {
            if qp.qkey != qkey {
                return Err(Refusal::Silence);
            }
            return self.consume(to, length, GRH).map(|received| {
                Task::Deliver(Delivery {
                    place: None,
                    receive: Some(received),
                })
            });
        }
        if source_type == QpType::Dci || qp.qp_type == QpType::Dct {
            if !self.is_dc_peer(from, to) {
                return Err(Refusal::Silence);
            }
            return self.task(to, operation, length, (from, seq));
        }
        if !qp.is_connected_to(machine, number) {
            return Err(Refusal::Silence);
        }
        // An unreliable connection continues after a lost message (IBTA vol. 1, 9.8.2.2).
        if qp.qp_type != QpType::Uc && !qp.rq.expects(psn) {
            return Err(Refusal::OutOfSequence);
        }
        let task = self.task(to, operation, length, (from, seq))?;
        self.qps[to.index].rq.executed(psn);
        Ok(task)
    }

    fn read_length(&mut self, from: QpRef, seq: u64) -> u64 {
        let wqe = self.alive(from).and_then(|qp| qp.sq.wqe(seq));
        wqe.map_or(0, |wqe| wqe.length)
    }

    /// Returns the memory that a repeated READ reads; `None` if it may no longer be read.
    pub(super) fn range_again(&mut self, message: u32) -> Option<Option<Range>> {
        let m = self.messages.get(message);
        let (from, to, seq, operation) = (m.from, m.to, m.seq, m.operation);
        match self.task(to, operation, 0, (from, seq)) {
            Ok(Task::Read(range)) => Some(range),
            _ => None,
        }
    }

    /// Returns what request `seq` of `from`, with `length` bytes of payload, does.
    fn task(
        &mut self,
        to: QpRef,
        operation: Operation,
        length: u64,
        (from, seq): (QpRef, u64),
    ) -> Result<Task, Refusal> {
        let invalid = |status| Refusal::Invalid(status, None);
        let deliver = |place, receive| Task::Deliver(Delivery { place, receive });
        Ok(match operation {
            Operation::Send | Operation::SendWithImm(_) => {
                deliver(None, Some(self.consume(to, length, 0)?))
            }
            Operation::RdmaWrite(there) => {
                let write = AccessFlags::REMOTE_WRITE;
                deliver(self.reach(to, there, length, write)?, None)
            }
            Operation::RdmaWriteWithImm(there, _) => {
                let place = self.reach(to, there, length, AccessFlags::REMOTE_WRITE)?;
                deliver(place, Some(self.consume(to, 0, 0)?))
            }
            Operation::RdmaRead(there) => {
                let length = self.read_length(from, seq);
                Task::Read(self.reach(to, there, length, AccessFlags::REMOTE_READ)?)
            }
            Operation::FetchAdd(there, _) | Operation::CompareSwap(there, _) => {
                if there.addr % 8 != 0 {
                    return Err(invalid(WcStatus::RemInvReqErr));
                }
                let word = self.reach(to, there, 8, AccessFlags::REMOTE_ATOMIC)?;
                Task::Atomic(word.ok_or(invalid(WcStatus::RemAccessErr))?)
            }
            _ => return Err(invalid(WcStatus::RemInvReqErr)),
        })
    }

    /// Returns the remote memory of a request, if its access is allowed; `None` for zero bytes.
    fn reach(
        &self,
        to: QpRef,
        there: RemoteAddress,
        length: u64,
        access: AccessFlags,
    ) -> Result<Option<Range>, Refusal> {
        if length == 0 {
            return Ok(None);
        }
        let qp = &self.qps[to.index];
        let asked = Asked {
            key: there.rkey.0,
            addr: there.addr,
            length,
            pd: qp.pd,
            access,
        };
        let memory = &self.machines[qp.machine].memory;
        let found = memory.find(&asked).filter(|_| qp.access.contains(access));
        let refused = Refusal::Invalid(WcStatus::RemAccessErr, None);
        found.map(Some).ok_or(refused)
    }

    /// Consumes a receive for `length` bytes after a header of `header` bytes.
    fn consume(&mut self, to: QpRef, length: u64, header: u32) -> Result<Received, Refusal> {
        let (receive, pd) = self.next_receive(to.index).ok_or(Refusal::NotReady)?;
        let machine = self.qps[to.index].machine;
        let room: u64 = receive.sg_list.iter().map(|p| u64::from(p.length)).sum();
        let length = length + u64::from(header);
        let mut received = Received {
            wr_id: receive.wr_id,
            ranges: Ranges::new(),
            status: WcStatus::Success,
            header,
        };
        if length > room {
            received.status = WcStatus::LocLenErr;
            return Err(Refusal::Invalid(WcStatus::RemInvReqErr, Some(received)));
        }
        if length > 0 {
            let write = AccessFlags::LOCAL_WRITE;
            match self.machines[machine]
                .memory
                .ranges(&receive.sg_list, pd, write)
            {
                Some(ranges) => received.ranges = ranges,
                None => {
                    received.status = WcStatus::LocProtErr;
                    return Err(Refusal::Invalid(WcStatus::RemOpErr, Some(received)));
                }
            }
        }
        Ok(received)
    }
}
