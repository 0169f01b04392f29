//! The queue pair as the driver knows it, below the verbs that are posted and modified through it.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use adverb_abi as abi;
use adverb_verbs::{
    CreateError, PostError, PostErrorCause, QpCaps, QpState, QpType, Qpn, RecvRequest, SendRequest,
};

use crate::explain::object_error;
use crate::handle::{Handle, PdInner};

/// `ibv_qp` and what is known about it. Its owner destroys it.
#[derive(Debug)]
pub(crate) struct RawQp {
    pub(crate) ptr: NonNull<abi::ibv_qp>,
    pub(crate) qp_type: QpType,
    pub(crate) caps: QpCaps,
    /// The state that the last Modify QP led to. The device may have moved on to SQE or ERR. Drivers
    /// do not check for the states before RTS when requests are posted, so this crate does.
    modified_to: AtomicU32,
    pub(crate) pd: Arc<PdInner>,
}

impl RawQp {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        ptr: NonNull<abi::ibv_qp>,
        qp_type: QpType,
        caps: QpCaps,
    ) -> Self {
        RawQp {
            ptr,
            qp_type,
            caps,
            modified_to: AtomicU32::new(QpState::Reset as u32),
            pd: pd.clone(),
        }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.pd.handle
    }

    pub(crate) fn qpn(&self) -> Qpn {
        // SAFETY: the queue pair is not destroyed yet; its number does not change.
        let number = unsafe { (*self.ptr.as_ptr()).qp_num };
        Qpn::new(number & 0xff_ffff).expect("24 bits")
    }

    /// Returns the state as the device reports it or, if the query fails, as of the last Modify QP.
    pub(crate) fn state(&self) -> QpState {
        let known = || QpState::from_code(self.modified_to.load(Ordering::Relaxed));
        self.query_state()
            .unwrap_or_else(|_| known().unwrap_or(QpState::Err))
    }

    /// Queries the state (`ibv_query_qp`).
    fn query_state(&self) -> io::Result<QpState> {
        let (mut attr, mut init) = (abi::ibv_qp_attr::zeroed(), abi::ibv_qp_init_attr::zeroed());
        let mask = abi::IBV_QP_STATE as i32;
        // SAFETY: the queue pair is not destroyed yet, and the structures are exclusive.
        crate::raw::check(unsafe {
            let query = self.handle().library().ibv_query_qp;
            query(self.ptr.as_ptr(), &raw mut attr, mask, &raw mut init)
        })?;
        QpState::from_code(attr.qp_state)
            .ok_or_else(|| io::Error::other(format!("an unknown state {}", attr.qp_state)))
    }

    pub(crate) fn set_modified_to(&self, state: QpState) {
        self.modified_to.store(state as u32, Ordering::Relaxed);
    }

    /// Refuses requests in all states before `needed`.
    #[inline]
    pub(crate) fn check_state(&self, needed: QpState) -> Result<(), PostError> {
        let state = self.modified_to.load(Ordering::Relaxed);
        if state >= needed as u32 {
            return Ok(());
        }
        let state = QpState::from_code(state).unwrap_or(QpState::Reset);
        Err(PostError {
            index: 0,
            cause: PostErrorCause::State { state, needed },
        })
    }

    /// Checks what drivers do not: they would accept such a request and send garbage.
    #[inline]
    pub(crate) fn check_send(&self, request: &SendRequest<'_>) -> Result<(), PostErrorCause> {
        request.check_kind(self.qp_type)
    }

    /// Returns why the driver refused a send request with `errno`.
    pub(crate) fn explain_send(&self, errno: i32, request: &SendRequest<'_>) -> PostErrorCause {
        let wrong = request.check_sizes(&self.caps, self.handle().max_message);
        wrong.err().unwrap_or_else(|| {
            let queue = ("send", self.caps.max_send_wr);
            self.explain(errno, queue, QpState::Rts)
        })
    }

    /// Returns why the driver refused a receive request with `errno`.
    pub(crate) fn explain_recv(&self, errno: i32, request: &RecvRequest<'_>) -> PostErrorCause {
        let wrong = request.check(self.caps.max_recv_sge);
        wrong.err().unwrap_or_else(|| {
            let queue = ("receive", self.caps.max_recv_wr);
            self.explain(errno, queue, QpState::Init)
        })
    }

    /// Explains `errno` for a request that is itself valid.
    fn explain(
        &self,
        errno: i32,
        (queue, depth): (&'static str, u32),
        needed: QpState,
    ) -> PostErrorCause {
        match errno {
            // The extended interface of some drivers returns ENOSPC.
            libc::ENOMEM | libc::ENOSPC => PostErrorCause::QueueFull { queue, depth },
            libc::EOPNOTSUPP | libc::ENOSYS => {
                self.handle().unsupported("such an operation").into()
            }
            _ => match self.query_state() {
                Ok(state) if (state as u32) < needed as u32 => {
                    PostErrorCause::State { state, needed }
                }
                _ => PostErrorCause::Errno(errno),
            },
        }
    }
}

/// Returns the error that the driver did not create a queue pair.
pub(crate) fn refused(
    handle: &Handle,
    attr: &abi::ibv_qp_init_attr,
    error: io::Error,
) -> CreateError {
    if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) {
        let feature = match attr.qp_type {
            abi::IBV_QPT_RC => "RC queue pairs",
            abi::IBV_QPT_UC => "UC queue pairs",
            _ => "UD queue pairs",
        };
        return handle.unsupported(feature).into();
    }
    let cap = &attr.cap;
    let action = format!(
        "create a queue pair of {} sends of {} SGEs and {} B inline, {} receives of {} SGEs",
        cap.max_send_wr, cap.max_send_sge, cap.max_inline_data, cap.max_recv_wr, cap.max_recv_sge
    );
    object_error(&action, error)
}
