//! Multicast groups of UD queue pairs.

use std::ffi::c_int;
use std::io;
use std::sync::{MutexGuard, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{Gid, Lid, McastError};

use crate::qp::VerbsQp;
use crate::raw::check;

/// `ibv_attach_mcast` or `ibv_detach_mcast`.
type Verb = unsafe extern "C" fn(*mut abi::ibv_qp, *const abi::ibv_gid, u16) -> c_int;

pub(crate) fn attach(qp: &VerbsQp, gid: Gid, lid: Lid) -> Result<(), McastError> {
    McastError::check(qp.qp_type, gid)?;
    let verb = qp.handle().library().ibv_attach_mcast;
    call(verb, qp, (gid, lid)).map_err(|source| McastError::System {
        action: format!("attach the queue pair to the multicast group {gid}"),
        remedy: remedy(&source).to_owned(),
        source,
    })?;
    let mut groups = groups(qp);
    if !groups.contains(&(gid, lid)) {
        groups.push((gid, lid));
    }
    Ok(())
}

pub(crate) fn detach(qp: &VerbsQp, gid: Gid, lid: Lid) -> Result<(), McastError> {
    McastError::check(qp.qp_type, gid)?;
    let verb = qp.handle().library().ibv_detach_mcast;
    call(verb, qp, (gid, lid)).map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => McastError::NotAttached { gid },
        _ => McastError::System {
            action: format!("detach the queue pair from the multicast group {gid}"),
            source,
            remedy: String::new(),
        },
    })?;
    groups(qp).retain(|group| *group != (gid, lid));
    Ok(())
}

/// Takes a queue pair out of all groups, before it is destroyed.
pub(crate) fn leave_all(qp: &VerbsQp) {
    let verb = qp.handle().library().ibv_detach_mcast;
    for group in std::mem::take(&mut *groups(qp)) {
        // Destroying does not fail either: there is nobody to tell.
        let _ = call(verb, qp, group);
    }
}

fn groups(qp: &VerbsQp) -> MutexGuard<'_, Vec<(Gid, Lid)>> {
    qp.groups.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call(verb: Verb, qp: &VerbsQp, (gid, lid): (Gid, Lid)) -> io::Result<()> {
    let gid = abi::ibv_gid { raw: gid.0 };
    // SAFETY: the queue pair lives, and the GID is only read during the call.
    check(unsafe { verb(qp.raw.as_ptr(), &raw const gid, lid.0) })
}

/// What to do where the cause is known; else empty. Begins with `; `.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => "; the driver has no multicast groups",
        Some(libc::EINVAL) => {
            "; on InfiniBand the group has to be joined with the subnet manager first, and its LID given"
        }
        Some(libc::ENOMEM) => "; the device has no room for another group or member",
        _ => "",
    }
}
