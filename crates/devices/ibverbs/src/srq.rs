//! Shared receive queues.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_abi as abi;
use adverb_verbs::{
    CreateError, ModifySrqError, PostError, PostErrorCause, QuerySrqError, RecvRequest,
    SharedReceiveQueue, SrqAttr, SrqCaps, SrqId,
};

use crate::chain;
use crate::explain::object_error;
use crate::handle::PdInner;
use crate::raw::check;

#[derive(Debug)]
pub(crate) struct SrqInner {
    pub(crate) raw: NonNull<abi::ibv_srq>,
    id: u32,
    caps: SrqCaps,
    pub(crate) pd: Arc<PdInner>,
}

// SAFETY: libibverbs locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for SrqInner {}
// SAFETY: as for `Send`.
unsafe impl Sync for SrqInner {}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let handle = &self.pd.handle;
        // `ibv_destroy_srq` waits until events of the queue are acknowledged.
        handle.faults.collect(&handle.raw);
        // SAFETY: its queue pairs hold an `Arc` of it, so none is left; it is destroyed once.
        unsafe { (handle.library().ibv_destroy_srq)(self.raw.as_ptr()) };
        handle.faults.forget_srq(SrqId(self.id));
    }
}

/// A shared receive queue. It is destroyed when it and all of its queue pairs are dropped.
#[derive(Debug)]
pub struct VerbsSrq {
    pub(crate) inner: Arc<SrqInner>,
}

impl VerbsSrq {
    pub(crate) fn new(pd: &Arc<PdInner>, caps: &SrqCaps) -> Result<Self, CreateError> {
        let handle = &pd.handle;
        caps.check(&handle.caps, &handle.name.0)?;
        let id = handle.next_srq.fetch_add(1, Ordering::Relaxed);
        let mut init = abi::ibv_srq_init_attr {
            srq_context: ptr::without_provenance_mut(id as usize),
            attr: abi::ibv_srq_attr {
                max_wr: caps.max_wr,
                max_sge: caps.max_sge,
                srq_limit: 0,
            },
        };
        // SAFETY: the domain is not deallocated yet, and the structure is exclusive.
        let srq = unsafe { (handle.library().ibv_create_srq)(pd.raw.as_ptr(), &raw mut init) };
        let raw = NonNull::new(srq).ok_or_else(|| {
            let SrqCaps { max_wr, max_sge } = caps;
            let action =
                format!("create a shared receive queue of {max_wr} receives of {max_sge} SGEs");
            object_error(&action, io::Error::last_os_error())
        })?;
        let caps = SrqCaps {
            max_wr: init.attr.max_wr,
            max_sge: init.attr.max_sge,
        };
        let pd = pd.clone();
        Ok(VerbsSrq {
            inner: Arc::new(SrqInner { raw, id, caps, pd }),
        })
    }
}

impl SrqInner {
    /// Returns why the driver refused a receive request with `errno`.
    pub(crate) fn explain_recv(&self, errno: i32, request: &RecvRequest<'_>) -> PostErrorCause {
        if let Err(wrong) = request.check(self.caps.max_sge) {
            return wrong;
        }
        match errno {
            libc::ENOMEM | libc::ENOSPC => PostErrorCause::QueueFull {
                queue: "shared receive",
                depth: self.caps.max_wr,
            },
            _ => PostErrorCause::Errno(errno),
        }
    }

    fn query(&self) -> io::Result<abi::ibv_srq_attr> {
        let mut attr = abi::ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 0,
        };
        // SAFETY: the queue is not destroyed yet, and the structure is exclusive.
        let result =
            unsafe { (self.pd.handle.library().ibv_query_srq)(self.raw.as_ptr(), &raw mut attr) };
        check(result).map(|()| attr)
    }
}

impl SharedReceiveQueue for VerbsSrq {
    fn id(&self) -> SrqId {
        SrqId(self.inner.id)
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        let raw = self.inner.raw.as_ptr();
        // SAFETY: the queue, and so its context, is not destroyed yet.
        let post = unsafe { abi::ops((*raw).context).post_srq_recv };
        let post = post.expect("every driver with shared receive queues has post_srq_recv");
        // SAFETY: the queue is not destroyed yet; `first` is a list that ends with null.
        let post = |first, bad| unsafe { post(raw, first, bad) };
        chain::post_recv_list(requests, post, |errno, i| {
            self.inner.explain_recv(errno, &requests[i])
        })
    }

    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError> {
        let (srq, given, max_wr) = (&self.inner, srq_limit, self.inner.caps.max_wr);
        if given > max_wr {
            return Err(ModifySrqError::Limit { given, max_wr });
        }
        let mut attr = abi::ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit,
        };
        let mask = abi::IBV_SRQ_LIMIT as i32;
        // SAFETY: the queue is not destroyed yet, and the structure is exclusive.
        let result = unsafe {
            let modify = srq.pd.handle.library().ibv_modify_srq;
            modify(srq.raw.as_ptr(), &raw mut attr, mask)
        };
        check(result).map_err(|error| ModifySrqError::Refused {
            given,
            reason: error.to_string(),
        })
    }

    fn query(&self) -> Result<SrqAttr, QuerySrqError> {
        let attr = self.inner.query();
        let attr = attr.map_err(|error| QuerySrqError(error.to_string()))?;
        Ok(SrqAttr {
            caps: SrqCaps {
                max_wr: attr.max_wr,
                max_sge: attr.max_sge,
            },
            srq_limit: attr.srq_limit,
        })
    }
}
