//! Multicast groups joined through the connection manager.
//!
//! On InfiniBand the manager asks the subnet manager for membership, which creates the group, and derives the group's
//! GID from the IP address; on RoCE it sends an IGMP report. The id has no queue pair, so that the manager attaches
//! none.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ptr;

use adverb_units::Span;
use adverb_verbs::{ConnectError, Gid, Lid};

use super::Manager;
use super::address::to_c;
use super::connect::check_device;
use super::event::end_of;
use super::id::Id;
use super::reason::errno_words;
use crate::raw_qp::RawQp;
use adverb_abi as abi;

/// Timeout for the answer of the subnet manager.
const JOIN: Span = Span::from_secs(10);

/// A membership, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    id: Id,
    /// The group's IP address.
    address: SocketAddr,
    /// The group's GID and LID.
    pub(crate) group: (Gid, Lid),
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut address = to_c(self.address);
        // A destructor cannot report an error.
        let _ = self.id.call("leave the group", |library, id| {
            // SAFETY: the id is not destroyed yet; the address has the layout of its family.
            unsafe { (library.rdma_leave_multicast)(id, (&raw mut address).cast()) }
        });
    }
}

impl Member {
    /// Joins the group of an IP multicast address.
    pub(crate) fn join(qp: &RawQp, manager: &Manager, group: Gid) -> Result<Self, ConnectError> {
        let ip: IpAddr = Ipv6Addr::from(group.0).to_canonical();
        let address = SocketAddr::new(ip, 0);
        let id = Id::bound(manager.library, abi::RDMA_PS_UDP, manager.address)?;
        check_device(qp, &id)?;
        let mut c = to_c(address);
        id.call(&format!("join the group {ip}"), |library, id| {
            // SAFETY: the id is not destroyed yet; the address has the layout of its family.
            unsafe { (library.rdma_join_multicast)(id, (&raw mut c).cast(), ptr::null_mut()) }
        })?;
        let end = end_of(JOIN);
        loop {
            let event = id.next(end, || ConnectError::TimedOut {
                what: format!("the answer to joining the group {ip}"),
                timeout: JOIN,
            })?;
            match (event.kind, event.group) {
                (abi::RDMA_CM_EVENT_MULTICAST_JOIN, Some(group)) if event.status == 0 => {
                    return Ok(Member { id, address, group });
                }
                (abi::RDMA_CM_EVENT_MULTICAST_JOIN | abi::RDMA_CM_EVENT_MULTICAST_ERROR, _) => {
                    return Err(ConnectError::Unreachable {
                        from: manager.address,
                        peer: address,
                        reason: errno_words(event.status),
                    });
                }
                _ => {}
            }
        }
    }
}
