//! Multicast groups of UD queue pairs.

use std::ffi::c_int;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{Gid, Lid, McastError};

use crate::raw::check;
use crate::raw_qp::RawQp;

/// `ibv_attach_mcast` or `ibv_detach_mcast`.
type Verb = unsafe extern "C" fn(*mut abi::ibv_qp, *const abi::ibv_gid, u16) -> c_int;

/// The groups that a queue pair is attached to.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Vec<(Gid, Lid)>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Vec<(Gid, Lid)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches the queue pair to a group. Attaching twice has no further effect.
    pub(crate) fn attach(&self, qp: &RawQp, group: (Gid, Lid)) -> Result<(), McastError> {
        McastError::check(qp.qp_type, group.0)?;
        let verb = qp.handle().library().ibv_attach_mcast;
        call(verb, qp, group).map_err(|source| McastError::System {
            action: format!("attach the queue pair to the multicast group {}", group.0),
            remedy: remedy(&source).to_owned(),
            source,
        })?;
        let mut groups = self.lock();
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(())
    }

    /// Detaches the queue pair from a group.
    pub(crate) fn detach(&self, qp: &RawQp, group: (Gid, Lid)) -> Result<(), McastError> {
        let (gid, _) = group;
        McastError::check(qp.qp_type, gid)?;
        let verb = qp.handle().library().ibv_detach_mcast;
        call(verb, qp, group).map_err(|source| match source.raw_os_error() {
            Some(libc::EINVAL) => McastError::NotAttached { gid },
            _ => McastError::System {
                action: format!("detach the queue pair from the multicast group {gid}"),
                source,
                remedy: String::new(),
            },
        })?;
        self.lock().retain(|attached| *attached != group);
        Ok(())
    }

    /// Detaches the queue pair from all groups: the kernel refuses to destroy an attached one.
    pub(crate) fn detach_all(&self, qp: &RawQp) {
        let verb = qp.handle().library().ibv_detach_mcast;
        for group in std::mem::take(&mut *self.lock()) {
            // A destructor cannot report an error.
            let _ = call(verb, qp, group);
        }
    }
}

fn call(verb: Verb, qp: &RawQp, (gid, lid): (Gid, Lid)) -> io::Result<()> {
    let gid = abi::ibv_gid { raw: gid.0 };
    // SAFETY: the queue pair is not destroyed yet, and the driver reads the GID only during the call.
    check(unsafe { verb(qp.ptr.as_ptr(), &raw const gid, lid.0) })
}

/// The remedy for an error whose cause is known, beginning with `; `; otherwise empty.
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
