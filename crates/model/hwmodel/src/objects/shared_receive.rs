//! Shared receive queues.

use adverb_verbs::{
    ModifySrqError, PostError, QuerySrqError, RecvRequest, SharedReceiveQueue, SrqAttr, SrqCaps,
    SrqId,
};

use crate::ids::SrqIndex;
use crate::nic::shared_receive::Owner;
use crate::world::fabric::SharedFabric;

/// A shared receive queue of the model. It exists until this handle and all queue pairs that use it are
/// dropped.
pub struct ModelSrq {
    world: SharedFabric,
    pub(super) owner: Owner,
    pub(super) number: SrqIndex,
    caps: SrqCaps,
}

debug_as!(ModelSrq, "shared receive queue {}", number.0);

impl ModelSrq {
    pub(super) fn new(
        world: &SharedFabric,
        owner: Owner,
        (number, caps): (SrqIndex, SrqCaps),
    ) -> Self {
        ModelSrq {
            world: world.clone(),
            owner,
            number,
            caps,
        }
    }
}

impl Drop for ModelSrq {
    fn drop(&mut self) {
        self.world.with(|fabric, _| fabric.leave_srq(self.number));
    }
}

impl SharedReceiveQueue for ModelSrq {
    fn id(&self) -> SrqId {
        SrqId(self.number.0)
    }

    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        self.world
            .with(|fabric, events| fabric.post_shared(self.number, requests, events))
    }

    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError> {
        let max_wr = self.caps.max_wr;
        if srq_limit > max_wr {
            return Err(ModifySrqError::Limit {
                given: srq_limit,
                max_wr,
            });
        }
        self.world
            .with(|fabric, _| fabric.srqs[self.number].limit = srq_limit);
        Ok(())
    }

    fn query(&self) -> Result<SrqAttr, QuerySrqError> {
        let srq_limit = self.world.with(|fabric, _| fabric.srqs[self.number].limit);
        Ok(SrqAttr {
            caps: self.caps,
            srq_limit,
        })
    }
}
