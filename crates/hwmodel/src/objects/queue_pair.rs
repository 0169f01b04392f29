//! Queue pairs.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_verbs::{
    AccessFlags, Gid, Lid, McastError, ModifyQpError, PostError, Psn, QpAttr, QpCaps, QpInit,
    QpState, Qpn, QueuePair, RecvRequest, SendRequest, Unsupported,
};

use super::{ModelCq, World};
use crate::resource::Slots;
use crate::world::queue_pair::Qp;
use crate::world::send_queue::{BlueFlame, Reading};
use crate::world::wire::Passage;

/// What a new queue pair is given.
pub(super) struct Made {
    pub(super) machine: u32,
    pub(super) index: u32,
    pub(super) number: Qpn,
    pub(super) pd: u32,
    pub(super) unit: u32,
    pub(super) port: u32,
    pub(super) mtu: u64,
    pub(super) shared_register: Option<u32>,
    pub(super) max_inl_recv: u32,
    /// The shared receive queue that it takes from.
    pub(super) srq: Option<u32>,
    /// Payload reads at a time.
    pub(super) gathers: usize,
}

pub(super) fn new_qp(made: &Made, init: &QpInit<'_, ModelCq>) -> Qp {
    Qp {
        machine: made.machine,
        index: made.index,
        number: made.number,
        life: 0,
        qp_type: init.qp_type,
        state: QpState::Reset,
        pd: made.pd,
        caps: init.caps,
        send_cq: init.send_cq.number,
        recv_cq: init.recv_cq.number,
        unit: made.unit,
        shared_register: made.shared_register,
        max_inl_recv: made.max_inl_recv,
        port: made.port,
        access: AccessFlags::empty(),
        remote: None,
        mtu: made.mtu,
        qkey: 0,
        sq_psn: Psn::default(),
        expected: Psn::default(),
        dc: crate::world::dc::Connection::default(),
        max_rd_atomic: 1,
        timeout: None,
        retry_cnt: 0,
        rnr_retry: None,
        min_rnr_timer: Span::ZERO,
        sends: VecDeque::new(),
        first: 0,
        next: 0,
        drains_until: 0,
        known: 0,
        unread: 0,
        blueflame: BlueFlame::default(),
        retired: 0,
        reads_under_way: 0,
        room: Time::ZERO,
        issuing: false,
        paused: false,
        doorbells: 0,
        reading: Reading::No,
        gathers: Slots::new(made.gathers),
        timeout_pending: false,
        heard: Time::ZERO,
        retries_left: 0,
        rnr_retries_left: None,
        departed: Passage::default(),
        answered: Passage::default(),
        srq: made.srq,
        owes_last_wqe: false,
        receives: VecDeque::new(),
        failed_receives: VecDeque::new(),
        delivered: Time::ZERO,
        receives_in_use: 0,
    }
}

/// A queue pair of the model. Dropping it destroys it.
pub struct ModelQp {
    world: World,
    index: u32,
    number: Qpn,
    caps: QpCaps,
}

impl std::fmt::Debug for ModelQp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue pair {}", self.number)
    }
}

impl ModelQp {
    pub(super) fn new(world: &World, index: u32, number: Qpn, caps: QpCaps) -> Self {
        ModelQp {
            world: world.clone(),
            index,
            number,
            caps,
        }
    }
}

/// The model has no switch that makes copies.
fn no_multicast() -> McastError {
    McastError::Unsupported(Unsupported {
        feature: "multicast groups",
        device: "model".into(),
    })
}

impl Drop for ModelQp {
    fn drop(&mut self) {
        self.world.with(|fabric, _| {
            fabric.reset(self.index);
            fabric.leave_its_srq(self.index);
        });
    }
}

impl QueuePair for ModelQp {
    fn qpn(&self) -> Qpn {
        self.number
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn state(&self) -> QpState {
        self.world
            .with(|fabric, _| fabric.qps[self.index as usize].state)
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        self.world
            .with(|fabric, agenda| fabric.modify(self.index, attr, agenda))
    }

    fn attach_mcast(&self, _gid: Gid, _lid: Lid) -> Result<(), McastError> {
        Err(no_multicast())
    }

    fn detach_mcast(&self, _gid: Gid, _lid: Lid) -> Result<(), McastError> {
        Err(no_multicast())
    }

    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        self.world
            .with(|fabric, agenda| fabric.post_send(self.index, requests, agenda))
    }

    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        self.world
            .with(|fabric, agenda| fabric.post_recv(self.index, requests, agenda))
    }
}
