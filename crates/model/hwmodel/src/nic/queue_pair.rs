//! A queue pair: identity, attributes, and its parts, each of which owns its state.

use adverb_verbs::{AccessFlags, QpAttr, QpCaps, QpState, QpType, Qpn};

use crate::ids::{CqIndex, MachineId, QpIndex, QpRef};
use crate::nic::dc::Connection;
use crate::nic::port::{Passage, Remote};
use crate::nic::receive_queue::ReceiveQueue;
use crate::nic::retry::Retry;
use crate::nic::send_queue::SendQueue;

/// Number of a machine's first queue pair: 0 and 1 are special (IBTA vol. 1, 3.9.3).
pub(crate) const FIRST_NUMBER: u32 = 2;

/// A queue pair.
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
    /// Its processing unit.
    pub(crate) unit: u32,
    /// The context whose last BlueFlame register it shares with other queue pairs.
    pub(crate) shared_register: Option<u32>,
    /// Port that its packets leave by.
    pub(crate) port: u32,
    pub(crate) access: AccessFlags,
    pub(crate) remote: Option<Remote>,
    pub(crate) mtu: u64,
    pub(crate) qkey: u32,
    /// The connection of a DC initiator.
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

    /// Whether the peer of a connection is `other`.
    pub(crate) fn is_connected_to(&self, machine: MachineId, number: Qpn) -> bool {
        self.remote
            .is_some_and(|remote| remote.machine == machine && remote.number == number)
    }

    /// Begins another life, in RESET; returns how many failed receives had not completed.
    pub(crate) fn begin_life(&mut self) -> u32 {
        self.life += 1;
        self.state = QpState::Reset;
        self.remote = None;
        self.dc = Connection::default();
        self.sq.reset();
        self.retry.reset();
        self.rq.reset()
    }

    /// Applies attributes that were checked, and goes to state `to`.
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

    /// Whether state and RNR pause let the next WQE be sent.
    pub(crate) fn may_issue(&self) -> bool {
        let before = match self.state {
            QpState::Rts => self.sq.known(),
            QpState::Sqd => self.sq.drains_until(),
            _ => return false,
        };
        !self.retry.is_paused() && self.sq.next() < before
    }

    /// The last request that left.
    pub(crate) fn last_request(&mut self) -> &mut Passage {
        &mut self.sq.departed
    }

    /// The last answer that left.
    pub(crate) fn last_answer(&mut self) -> &mut Passage {
        &mut self.rq.answered
    }
}
