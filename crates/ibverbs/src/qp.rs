//! Queue pairs: making, naming, and what a refused request was refused for.

use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{
    ConnectError, Connection, CreateError, Gid, Lid, McastError, ModifyQpError, PostError,
    PostErrorCause, QpAttr, QpCaps, QpInit, QpState, QpType, Qpn, QueuePair, RecvRequest,
    SendRequest,
};

use crate::address::marking_of;
use crate::chain;
use crate::choice::Interface;
use crate::cm;
use crate::context::{Handle, PdInner};
use crate::cq::{CqInner, VerbsCq};
use crate::explain::object_error;
use crate::extended::{self, ExtendedPost};
use crate::modify;
use crate::multicast;
use crate::srq::SrqInner;

/// What the connection manager keeps of a queue pair.
#[derive(Debug, Default)]
enum Link {
    /// Nothing: it is connected by hand, or not yet.
    #[default]
    None,
    /// It waits for its peer.
    Listening(cm::Listener),
    /// It is connected as long as this is kept.
    Connected { _id: cm::Id },
}

/// A queue pair. Dropping it disconnects and destroys it.
#[derive(Debug)]
pub struct VerbsQp {
    pub(crate) raw: NonNull<abi::ibv_qp>,
    extended: Option<ExtendedPost>,
    pub(crate) qp_type: QpType,
    caps: QpCaps,
    /// As of the last Modify QP. The device may have gone on to SQE or ERR; drivers do not check
    /// the states before RTS when requests are posted, so that is done here.
    modified_to: AtomicU32,
    link: Mutex<Link>,
    /// Multicast groups that it is attached to.
    pub(crate) groups: Mutex<Vec<(Gid, Lid)>>,
    pub(crate) pd: Arc<PdInner>,
    srq: Option<Arc<SrqInner>>,
    _cqs: [Arc<CqInner>; 2],
}

// SAFETY: verbs are thread-safe, and the pointer is only passed to them.
unsafe impl Send for VerbsQp {}
// SAFETY: as above.
unsafe impl Sync for VerbsQp {}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        // The peer learns of the end before the queue pair stops answering.
        *self.link() = Link::None;
        // The kernel destroys none that is attached.
        multicast::leave_all(self);
        let (qpn, handle) = (self.qpn(), self.handle().clone());
        if self.srq.is_some() {
            // Events that wait name the queue pair: they have to be taken first.
            handle.faults.collect(&handle.raw);
        }
        // SAFETY: it is destroyed once; its queues and domain live.
        unsafe { (handle.library().ibv_destroy_qp)(self.raw.as_ptr()) };
        handle.faults.forget_qp(qpn);
    }
}

impl VerbsQp {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        init: &QpInit<'_, VerbsCq>,
        srq: Option<&Arc<SrqInner>>,
    ) -> Result<Self, CreateError> {
        let handle = &pd.handle;
        if srq.is_some_and(|srq| !Arc::ptr_eq(&srq.pd.handle, handle)) {
            let what = "the shared receive queue";
            return Err(CreateError::Foreign { what });
        }
        let queues = [
            (init.send_cq, "the completion queue for sends"),
            (init.recv_cq, "the completion queue for receives"),
        ];
        for (cq, what) in queues {
            if !Arc::ptr_eq(&cq.inner.handle, handle) {
                return Err(CreateError::Foreign { what });
            }
        }
        init.caps.check(&handle.caps)?;
        let mut attr = init_attr(init)?;
        if let Some(srq) = srq {
            attr.srq = srq.raw.as_ptr();
        }
        let (raw, extended) = match handle.posting {
            Interface::Classic => (create(pd, &mut attr)?, None),
            Interface::Extended => {
                let (raw, extended) = extended::create(pd, &mut attr)?;
                (raw, Some(extended))
            }
        };
        if init.qp_type == QpType::Ud {
            init.recv_cq.inner.datagrams.store(true, Ordering::Relaxed);
        }
        Ok(VerbsQp {
            raw,
            extended,
            qp_type: init.qp_type,
            caps: QpCaps {
                max_send_wr: attr.cap.max_send_wr,
                max_recv_wr: attr.cap.max_recv_wr,
                max_send_sge: attr.cap.max_send_sge,
                max_recv_sge: attr.cap.max_recv_sge,
                max_inline_data: attr.cap.max_inline_data,
            },
            modified_to: AtomicU32::new(QpState::Reset as u32),
            link: Mutex::default(),
            groups: Mutex::default(),
            pd: pd.clone(),
            srq: srq.cloned(),
            _cqs: [init.send_cq.inner.clone(), init.recv_cq.inner.clone()],
        })
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.pd.handle
    }

    /// `ibv_query_qp` of the state alone.
    pub(crate) fn query_state(&self) -> io::Result<QpState> {
        let (mut attr, mut init) = (abi::ibv_qp_attr::zeroed(), abi::ibv_qp_init_attr::zeroed());
        let mask = abi::IBV_QP_STATE as i32;
        // SAFETY: the queue pair lives, the structures are exclusive.
        crate::raw::check(unsafe {
            let query = self.handle().library().ibv_query_qp;
            query(self.raw.as_ptr(), &raw mut attr, mask, &raw mut init)
        })?;
        QpState::from_code(attr.qp_state)
            .ok_or_else(|| io::Error::other(format!("an unknown state {}", attr.qp_state)))
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_modified_to(&self, state: QpState) {
        self.modified_to.store(state as u32, Ordering::Relaxed);
    }

    /// Refuses requests in states that do not take them: all before `needed`.
    #[inline]
    fn check_state(&self, needed: QpState) -> Result<(), PostError> {
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

    /// What the driver is not asked about: what it may take and garble.
    #[inline]
    pub(crate) fn check_send(&self, request: &SendRequest<'_>) -> Result<(), PostErrorCause> {
        request.check_kind(self.qp_type)
    }

    /// Why the driver refused a send request with `errno`.
    pub(crate) fn explain_send(&self, errno: i32, request: &SendRequest<'_>) -> PostErrorCause {
        let wrong = request.check_sizes(&self.caps, self.handle().max_message);
        wrong.err().unwrap_or_else(|| {
            let queue = ("send", self.caps.max_send_wr);
            self.explain(errno, queue, QpState::Rts)
        })
    }

    /// Why the driver refused a receive request with `errno`.
    pub(crate) fn explain_recv(&self, errno: i32, request: &RecvRequest<'_>) -> PostErrorCause {
        let wrong = request.check(self.caps.max_recv_sge);
        wrong.err().unwrap_or_else(|| {
            let queue = ("receive", self.caps.max_recv_wr);
            self.explain(errno, queue, QpState::Init)
        })
    }

    /// What is left when the request itself is in order.
    fn explain(
        &self,
        errno: i32,
        (queue, depth): (&'static str, u32),
        needed: QpState,
    ) -> PostErrorCause {
        match errno {
            // The extended interface of some drivers says ENOSPC.
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

fn init_attr(init: &QpInit<'_, VerbsCq>) -> Result<abi::ibv_qp_init_attr, CreateError> {
    let caps = &init.caps;
    Ok(abi::ibv_qp_init_attr {
        send_cq: init.send_cq.inner.raw.as_ptr(),
        recv_cq: init.recv_cq.inner.raw.as_ptr(),
        cap: abi::ibv_qp_cap {
            max_send_wr: caps.max_send_wr,
            max_recv_wr: caps.max_recv_wr,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: caps.max_recv_sge,
            max_inline_data: caps.max_inline_data,
        },
        qp_type: match init.qp_type {
            QpType::Rc => abi::IBV_QPT_RC,
            QpType::Uc => abi::IBV_QPT_UC,
            QpType::Ud => abi::IBV_QPT_UD,
            _ => {
                let handle = &init.send_cq.inner.handle;
                return Err(handle.unsupported("queue pairs of this type").into());
            }
        },
        ..abi::ibv_qp_init_attr::zeroed()
    })
}

fn create(
    pd: &PdInner,
    attr: &mut abi::ibv_qp_init_attr,
) -> Result<NonNull<abi::ibv_qp>, CreateError> {
    // SAFETY: domain and queues live, the structure is exclusive.
    let qp = unsafe { (pd.handle.library().ibv_create_qp)(pd.raw.as_ptr(), ptr::from_mut(attr)) };
    NonNull::new(qp).ok_or_else(|| refused(&pd.handle, attr, io::Error::last_os_error()))
}

/// The driver made no queue pair.
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
        "create a queue pair of {} sends of {} pieces and {} B inline, {} receives of {} pieces",
        cap.max_send_wr, cap.max_send_sge, cap.max_inline_data, cap.max_recv_wr, cap.max_recv_sge
    );
    object_error(&action, error)
}

impl QueuePair for VerbsQp {
    fn qpn(&self) -> Qpn {
        // SAFETY: the queue pair lives; its number does not change.
        let number = unsafe { (*self.raw.as_ptr()).qp_num };
        Qpn::new(number & 0xff_ffff).expect("24 bits")
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn state(&self) -> QpState {
        let known = || QpState::from_code(self.modified_to.load(Ordering::Relaxed));
        self.query_state()
            .unwrap_or_else(|_| known().unwrap_or(QpState::Err))
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        modify::modify(self, attr)
    }

    fn listen(&self) -> Result<Option<SocketAddr>, ConnectError> {
        let Some(manager) = &self.handle().manager else {
            return Ok(None);
        };
        let listener = cm::Listener::new(manager.library, manager.address)?;
        let address = listener.address;
        *self.link() = Link::Listening(listener);
        Ok(Some(address))
    }

    fn connect(&self, connection: &Connection) -> Result<(), ConnectError> {
        let Some(manager) = &self.handle().manager else {
            return connection.by_hand(self);
        };
        let layer = self.handle().layer;
        (connection.address()).check_marking(layer, marking_of(layer))?;
        let link = std::mem::take(&mut *self.link());
        let id = match &link {
            Link::Listening(listener) => cm::passive(self, listener, connection)?,
            _ => cm::active(self, manager, connection)?,
        };
        *self.link() = Link::Connected { _id: id };
        Ok(())
    }

    fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        multicast::attach(self, gid, lid)
    }

    fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        multicast::detach(self, gid, lid)
    }

    #[inline]
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        self.check_state(QpState::Rts)?;
        match &self.extended {
            None => chain::post_send(self, requests),
            Some(extended) => extended.post_send(self, requests),
        }
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        if self.srq.is_some() && !requests.is_empty() {
            let cause = PostErrorCause::HasSharedReceiveQueue;
            return Err(PostError { index: 0, cause });
        }
        self.check_state(QpState::Init)?;
        chain::post_recv(self, requests)
    }
}
