//! A queue pair: identity, attributes, send queue, receive queue and retry logic.

use adverb_units::Time;
use adverb_verbs::{AccessFlags, QpAttr, QpCaps, QpState, QpType, Qpn};

use crate::ids::{CqIndex, MachineId, QpIndex, QpRef};
use crate::nic::dc::Connection;
use crate::nic::port::{Remote, TransitTimes};
use crate::nic::receive_queue::ReceiveQueue;
use crate::nic::retry::Retry;
use crate::nic::send_queue::SendQueue;

/// Number of a machine's first queue pair: 0 and 1 are reserved (IBTA vol. 1, 3.9.3).
pub(crate) const FIRST_NUMBER: u32 = 2;

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) machine: MachineId,
    pub(crate) index: QpIndex,
    pub(crate) number: Qpn,
    pub(crate) life: u32,
    pub(crate) qp_type: QpType,
    pub(crate) state: QpState,
    pub(crate) pd: u32,
    pub(crate) caps: QpCaps,
    pub(crate) send_cq: CqIndex,
    pub(crate) recv_cq: CqIndex,
    /// Its place in `Units::turns`.
    pub(crate) turns: u32,
    /// The context whose shared BlueFlame register it uses, and the thread that does, unless it has its own.
    pub(crate) shared_register: Option<(u32, u32)>,
    /// The port that sends its packets.
    pub(crate) port: u32,
    pub(crate) access: AccessFlags,
    pub(crate) remote: Option<Remote>,
    pub(crate) mtu: u64,
    /// When its last answer and its last request, in this order, arrive over a long path of an iWARP adapter.
    pub(crate) crossed: [Time; 2],
    pub(crate) qkey: u32,
    pub(crate) dc: Connection,
    pub(crate) sq: SendQueue,
    pub(crate) rq: ReceiveQueue,
    pub(crate) retry: Retry,
}

impl Qp {
    pub(crate) fn reference(&self) -> QpRef {
        QpRef {
            index: self.index,
            life: self.life,
        }
    }

    /// Whether it is connected to queue pair `number` of `machine`.
    pub(crate) fn is_connected_to(&self, machine: MachineId, number: Qpn) -> bool {
        self.remote
            .is_some_and(|remote| remote.machine == machine && remote.number == number)
    }

    /// Begins another life in RESET; returns how many failed receives had not completed.
    pub(crate) fn begin_life(&mut self) -> u32 {
        self.life += 1;
        self.state = QpState::Reset;
        self.remote = None;
        self.dc = Connection::default();
        self.sq.reset();
        self.retry.reset();
        self.rq.reset()
    }

    /// Applies attributes that were checked, and enters state `to`.
    pub(crate) fn apply(&mut self, attr: &QpAttr, to: QpState) {
        self.access = attr.access.unwrap_or(self.access);
        self.qkey = attr.qkey.unwrap_or(self.qkey);
        self.mtu = attr.path_mtu.map_or(self.mtu, |mtu| mtu.bytes().get());
        self.sq.apply(attr);
        self.rq.apply(attr);
        self.retry.apply(attr);
        if (self.state, to) == (QpState::Rts, QpState::Sqd) {
            self.sq.drain(self.retry.is_paused());
        }
        self.state = to;
    }

    /// Whether there is a next WQE, and state and RNR pause allow it to be sent.
    pub(crate) fn may_issue(&self) -> bool {
        let before = match self.state {
            QpState::Rts => self.sq.known(),
            QpState::Sqd => self.sq.drains_until(),
            _ => return false,
        };
        !self.retry.is_paused() && self.sq.next() < before
    }

    pub(crate) fn last_request(&mut self) -> &mut TransitTimes {
        &mut self.sq.departed
    }

    pub(crate) fn last_answer(&mut self) -> &mut TransitTimes {
        &mut self.rq.answered
    }
}
