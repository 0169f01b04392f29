//! XRC: domains, whose receive queue pairs deliver each message to the shared receive queue that it names (IBTA vol. 1,
//! annex A14).
//!
//! A receive queue pair has neither protection domain nor completion queues. Requests access memory of the protection
//! domain of the queue that they name, and complete in the completion queue of that queue. Queue pairs and shared receive
//! queues of a domain belong to one process.

use std::sync::Arc;

use adverb_verbs::{CreateError, SrqCaps};

use crate::cq::{CqInner, SoftCq};
use crate::domain::SoftPd;
use crate::shm::notify::Urgency;
use crate::srq::{ReceiveCompletions, SoftSrq, SrqInner, XrcDomain};

/// An XRC domain of the user-space NIC. It lives as long as a clone or an object of it.
#[derive(Clone, Debug)]
pub struct SoftXrcd {
    pub(crate) inner: Arc<XrcDomain>,
    /// A protection domain without regions, whose number is the domain's.
    pub(crate) pd: SoftPd,
    /// The completion queue of its queue pairs, which gets no completions.
    pub(crate) cq: SoftCq,
}

impl SoftXrcd {
    pub(crate) fn new(pd: SoftPd) -> Result<Self, CreateError> {
        let cq = SoftCq::new(&pd.handle.port, 1, None)?;
        let inner = Arc::new(XrcDomain::new(pd.number));
        Ok(SoftXrcd { inner, pd, cq })
    }
}

impl ReceiveCompletions for CqInner {
    fn index(&self) -> u32 {
        self.index
    }

    fn attach(&self, srq: &Arc<SrqInner>) {
        self.attach_shared(srq);
    }

    fn detach(&self, srq: &Arc<SrqInner>) {
        self.detach_shared(srq);
    }

    fn added(&self, urgency: Urgency) {
        self.added(None, urgency);
    }

    fn raise_anyway(&self, index: u32) {
        self.raise_anyway(index);
    }

    fn raise_owed(&self) {
        self.raise_owed();
    }
}

impl SoftXrcd {
    /// Creates a shared receive queue of the domain, whose receives complete in `cq`.
    pub(crate) fn create_srq(
        &self,
        pd: &SoftPd,
        caps: &SrqCaps,
        cq: &SoftCq,
    ) -> Result<SoftSrq, CreateError> {
        if !Arc::ptr_eq(&cq.inner.port, &pd.handle.port) {
            return Err(CreateError::Foreign {
                what: "the completion queue",
            });
        }
        if !Arc::ptr_eq(&self.pd.handle, &pd.handle) {
            return Err(CreateError::Foreign {
                what: "the XRC domain",
            });
        }
        SoftSrq::of_xrcd(pd, caps, (self.inner.clone(), cq.inner.clone()))
    }
}
