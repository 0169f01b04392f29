//! UD services and multicast groups.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use adverb_abi::{rdma_cm_id, rdma_ud_param};
use adverb_verbs::Qpn;
use adverb_wire::cm::{ServiceId, SidrRep, SidrStatus};

use super::address::{self, ah_attr};
use super::channel::{Event, Param};
use super::event::Kind;
use super::id::{Group, Phase, Shared};
use super::param::{Wanted, padded};
use super::qp::QKEY;
use super::verbs;
use crate::call::{self, Refusal};
use crate::object::lock;

fn answer(
    shared: &Arc<Shared>,
    (status, qpn): (SidrStatus, Qpn),
    data: &[u8],
) -> Result<(), Refusal> {
    let (agent, conn) = shared.connection()?;
    let (space, port) = {
        let state = lock(&shared.state);
        (state.space, state.local.map_or(0, |local| local.port()))
    };
    let rep = SidrRep {
        request_id: 0,
        status,
        additional_length: 0,
        qpn,
        service: ServiceId::of(space, port),
        qkey: QKEY,
        additional: [0; SidrRep::ADDITIONAL],
        private_data: padded(data),
    };
    agent.with(|state, now| state.manager.answer_sidr(now, conn, rep))?;
    Ok(())
}

/// Sends the requester the number of the queue pair of a UD service. This side gets no event.
pub(super) fn accept(shared: &Arc<Shared>, wanted: &Wanted) -> Result<(), Refusal> {
    answer(
        shared,
        (SidrStatus::VALID, wanted.qpn),
        &wanted.private_data,
    )?;
    lock(&shared.state).phase = Phase::Connected;
    Ok(())
}

/// Refuses a request for a UD service.
pub(super) fn reject(shared: &Arc<Shared>, data: &[u8]) -> Result<(), Refusal> {
    answer(shared, (SidrStatus::REJECTED, Qpn::default()), data)
}

fn join(
    shared: &Arc<Shared>,
    address: SocketAddr,
    (context, receives): (*mut c_void, Receives),
) -> Result<(), Refusal> {
    shared.agent()?;
    let ip = address.ip().to_canonical();
    if !ip.is_multicast() {
        return Err(Refusal::invalid(format!("{ip} is not a multicast address")));
    }
    // SAFETY: the id is alive.
    let qp = unsafe { (*shared.c()).qp };
    let is_attached = receives == Receives::Yes && !qp.is_null();
    if is_attached {
        let gid = address::gid(ip);
        // SAFETY: the queue pair is the id's.
        let status = unsafe { verbs::ibv_attach_mcast(qp, &raw const gid, 0) };
        if status != 0 {
            return Err(Refusal::new(status, format!("cannot attach to group {ip}")));
        }
    }
    let class = {
        let mut state = lock(&shared.state);
        state.groups.push(Group { ip, is_attached });
        state.peer.traffic_class
    };
    let mut event = Event::new(Kind::MulticastJoin, 0, shared);
    event.param = Param::Ud(rdma_ud_param {
        ah_attr: ah_attr(ip, class),
        qp_num: Qpn::MULTICAST.get(),
        qkey: QKEY,
        ..rdma_ud_param::zeroed()
    });
    event.context = Some(context.expose_provenance());
    shared.push(event);
    shared.complete()
}

/// Whether a member of a group receives what is sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receives {
    Yes,
    No,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    call::number("rdma_join_multicast", || {
        // SAFETY: the program passes an id and an address.
        let (shared, address) = unsafe { (Shared::of(id)?, address::read(address)?) };
        join(&shared, address, (context, Receives::Yes))?;
        Ok(0)
    })
}

/// `struct rdma_cm_join_mc_attr_ex`.
#[repr(C)]
struct JoinAttributes {
    comp_mask: u32,
    join_flags: u32,
    addr: *mut libc::sockaddr,
}

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS` and `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`.
const ADDRESS: u32 = 1;
const JOIN_FLAGS: u32 = 2;
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER` and `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attributes: *mut JoinAttributes,
    context: *mut c_void,
) -> c_int {
    call::number("rdma_join_multicast_ex", || {
        // SAFETY: the program passes an id and attributes.
        let (shared, attributes) = unsafe { (Shared::of(id)?, &*attributes) };
        let has = |bit| attributes.comp_mask & bit != 0;
        if attributes.comp_mask & !(ADDRESS | JOIN_FLAGS) != 0 || !has(ADDRESS) || !has(JOIN_FLAGS)
        {
            return Err(Refusal::invalid(format!(
                "invalid comp_mask {:#x}: expected address and join flags",
                attributes.comp_mask
            )));
        }
        let receives = match attributes.join_flags {
            FULL_MEMBER => Receives::Yes,
            SEND_ONLY => Receives::No,
            other => return Err(Refusal::invalid(format!("invalid join flags {other}"))),
        };
        // SAFETY: the attributes have an address.
        let address = unsafe { address::read(attributes.addr) }?;
        join(&shared, address, (context, receives))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    call::number("rdma_leave_multicast", || {
        // SAFETY: the program passes an id and an address.
        let (shared, address) = unsafe { (Shared::of(id)?, address::read(address)?) };
        let ip = address.ip().to_canonical();
        let group = {
            let mut state = lock(&shared.state);
            let place = state.groups.iter().position(|group| group.ip == ip);
            place.map(|place| state.groups.remove(place))
        };
        let group = group.ok_or_else(|| {
            Refusal::new(
                libc::EADDRNOTAVAIL,
                format!("the id has not joined group {ip}"),
            )
        })?;
        // SAFETY: the id is alive.
        group.leave(unsafe { (*id).qp });
        Ok(0)
    })
}
