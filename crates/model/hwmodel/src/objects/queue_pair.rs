//! Queue pairs.

use adverb_verbs::{
    Gid, Lid, McastError, ModifyQpError, PostError, QpAttr, QpCaps, QpState, Qpn, QueuePair,
    RecvRequest, SendRequest,
};

use crate::ids::QpIndex;
use crate::world::fabric::SharedFabric;

/// A queue pair of the model. Dropping it destroys it.
pub struct ModelQp {
    world: SharedFabric,
    index: QpIndex,
    number: Qpn,
    caps: QpCaps,
}

debug_as!(ModelQp, "queue pair {}", number);

impl ModelQp {
    pub(super) fn new(world: &SharedFabric, index: QpIndex, number: Qpn, caps: QpCaps) -> Self {
        ModelQp {
            world: world.clone(),
            index,
            number,
            caps,
        }
    }
}

impl Drop for ModelQp {
    fn drop(&mut self) {
        self.world.with(|fabric, _| {
            fabric.reset(self.index);
            fabric.leave_its_srq(self.index);
            fabric.leave_groups(self.index);
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
        self.world.with(|fabric, _| fabric.qps[self.index].state)
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        self.world
            .with(|fabric, events| fabric.modify(self.index, attr, events))
    }

    fn attach_mcast(&self, gid: Gid, _lid: Lid) -> Result<(), McastError> {
        self.world
            .with(|fabric, events| fabric.attach(self.index, gid, events))
    }

    fn detach_mcast(&self, gid: Gid, _lid: Lid) -> Result<(), McastError> {
        self.world
            .with(|fabric, events| fabric.detach(self.index, gid, events))
    }

    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        self.world
            .with(|fabric, events| fabric.post_send(self.index, requests, events))
    }

    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        self.world
            .with(|fabric, events| fabric.post_recv(self.index, requests, events))
    }
}
