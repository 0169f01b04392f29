//! Queue pairs: creating, connecting and posting.

use std::io;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{
    ConnectError, Connection, CreateError, Gid, GroupMember, Lid, McastError, ModifyQpError,
    PostError, PostErrorCause, QpAttr, QpCaps, QpInit, QpState, QpType, Qpn, QueuePair,
    RecvRequest, SendRequest,
};

use crate::address::marking_of;
use crate::chain;
use crate::choice::Interface;
use crate::cm;
use crate::cm::connect::{active, passive};
use crate::cm::multicast::Member;
use crate::cq::{CqInner, VerbsCq};
use crate::extended::{self, ExtendedPost};
use crate::handle::PdInner;
use crate::modify;
use crate::multicast::Groups;
use crate::raw_qp::{RawQp, refused};
use crate::srq::SrqInner;

/// The connection manager's part of a queue pair.
#[derive(Debug, Default)]
enum Link {
    /// Not connected, or connected by the program.
    #[default]
    None,
    /// Waits for its peer.
    Listening(cm::Listener),
    /// Connected. Dropping the identifier disconnects.
    Connected { _id: cm::Id },
}

/// A queue pair. Dropping it disconnects and destroys it.
#[derive(Debug)]
pub struct VerbsQp {
    raw: RawQp,
    extended: Option<ExtendedPost>,
    link: Mutex<Link>,
    groups: Groups,
    /// Groups that were joined through the connection manager, by the GID of their IP address.
    members: Mutex<Vec<(Gid, Member)>>,
    srq: Option<Arc<SrqInner>>,
    _cqs: [Arc<CqInner>; 2],
}

// SAFETY: libibverbs locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for VerbsQp {}
// SAFETY: as for `Send`.
unsafe impl Sync for VerbsQp {}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        // Disconnect while the queue pair still responds, so that the peer learns of it.
        *self.link() = Link::None;
        self.groups.detach_all(&self.raw);
        self.members().clear();
        let (qpn, handle) = (self.raw.qpn(), self.raw.handle().clone());
        if self.srq.is_some() {
            // `ibv_destroy_qp` waits until events of the queue pair are acknowledged.
            handle.faults.collect(&handle.raw);
        }
        // SAFETY: it is destroyed once, before its CQs and its domain, which this holds.
        unsafe { (handle.library().ibv_destroy_qp)(self.raw.ptr.as_ptr()) };
        handle.faults.forget_qp(qpn);
    }
}

impl VerbsQp {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        init: &QpInit<'_, VerbsCq>,
        srq: Option<&Arc<SrqInner>>,
        posting: Interface,
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
        let (raw, extended) = match posting {
            Interface::Classic => (create(pd, &mut attr)?, None),
            Interface::Extended => {
                let (raw, extended) = extended::create(pd, &mut attr)?;
                (raw, Some(extended))
            }
        };
        if init.qp_type == QpType::Ud {
            init.recv_cq.inner.datagrams.store(true, Ordering::Relaxed);
        }
        let caps = QpCaps {
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
        };
        Ok(VerbsQp {
            raw: RawQp::new(pd, raw, init.qp_type, caps),
            extended,
            link: Mutex::default(),
            groups: Groups::default(),
            members: Mutex::default(),
            srq: srq.cloned(),
            _cqs: [init.send_cq.inner.clone(), init.recv_cq.inner.clone()],
        })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, Vec<(Gid, Member)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
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
    // SAFETY: the caller holds the domain and the CQs; the structure is exclusive.
    let qp = unsafe { (pd.handle.library().ibv_create_qp)(pd.raw.as_ptr(), ptr::from_mut(attr)) };
    NonNull::new(qp).ok_or_else(|| refused(&pd.handle, attr, io::Error::last_os_error()))
}

impl QueuePair for VerbsQp {
    fn qpn(&self) -> Qpn {
        self.raw.qpn()
    }

    fn caps(&self) -> QpCaps {
        self.raw.caps
    }

    fn state(&self) -> QpState {
        self.raw.state()
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        modify::modify(&self.raw, attr)
    }

    fn listen(&self) -> Result<Option<SocketAddr>, ConnectError> {
        let Some(manager) = &self.raw.handle().manager else {
            return Ok(None);
        };
        let listener = cm::Listener::new(manager.library, manager.address)?;
        let address = listener.address;
        *self.link() = Link::Listening(listener);
        Ok(Some(address))
    }

    fn connect(&self, connection: &Connection) -> Result<(), ConnectError> {
        let Some(manager) = &self.raw.handle().manager else {
            return connection.by_hand(self);
        };
        let layer = self.raw.handle().layer;
        (connection.address()).check_marking(layer, marking_of(layer))?;
        let link = std::mem::take(&mut *self.link());
        let id = match &link {
            Link::Listening(listener) => passive(&self.raw, listener, connection)?,
            _ => active(&self.raw, manager, connection)?,
        };
        *self.link() = Link::Connected { _id: id };
        Ok(())
    }

    fn join_mcast(&self, gid: Gid, member: GroupMember) -> Result<(Gid, Lid), McastError> {
        let Some(manager) = &self.raw.handle().manager else {
            if member == GroupMember::Receiver {
                self.attach_mcast(gid, Lid(0))?;
            }
            return Ok((gid, Lid(0)));
        };
        McastError::check(self.raw.qp_type, gid)?;
        let joined = Member::join(&self.raw, manager, gid).map_err(|error| McastError::System {
            action: format!("join the multicast group {gid} through the connection manager"),
            source: io::Error::other(error),
            remedy: String::new(),
        })?;
        let group = joined.group;
        if member == GroupMember::Receiver {
            self.groups.attach(&self.raw, group)?;
        }
        self.members().push((gid, joined));
        Ok(group)
    }

    fn leave_mcast(&self, gid: Gid) -> Result<(), McastError> {
        let mut members = self.members();
        let place = members.iter().position(|(joined, _)| *joined == gid);
        match place.map(|place| members.remove(place)) {
            Some((_, member)) => self.groups.detach(&self.raw, member.group),
            None => self.detach_mcast(gid, Lid(0)),
        }
    }

    fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        self.groups.attach(&self.raw, (gid, lid))
    }

    fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        self.groups.detach(&self.raw, (gid, lid))
    }

    #[inline]
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        self.raw.check_state(QpState::Rts)?;
        match &self.extended {
            None => chain::post_send(&self.raw, requests),
            Some(extended) => extended.post_send(&self.raw, requests),
        }
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        if self.srq.is_some() && !requests.is_empty() {
            let cause = PostErrorCause::HasSharedReceiveQueue;
            return Err(PostError { index: 0, cause });
        }
        self.raw.check_state(QpState::Init)?;
        chain::post_recv(&self.raw, requests)
    }
}
