//! Multicast groups: which UD queue pairs are in which, and the socket of each.
//!
//! Multicast goes to UDP port 4791 ([`adverb_wire::ROCE_PORT`]), whichever port a process has itself:
//! it names no queue pair, whose number would tell. So a context binds a socket of its own to the
//! group's address and that port, which Linux lets any number of sockets share and copies each
//! datagram to (SO_REUSEADDR). What is sent comes back to this host's members, too
//! (IP_MULTICAST_LOOP, which is on by default); it does not go beyond the network (a time to live
//! of 1, the default).
//!
//! Source: IBTA annex A17 (RoCEv2): the group's GID is its IP address, an IPv4 one mapped.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_verbs::{Gid, McastError, Qpn};

use super::socket::RoceSocket;

#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<IpAddr, Group>);

#[derive(Debug)]
struct Group {
    socket: Arc<RoceSocket>,
    members: Vec<Qpn>,
}

/// Whether a queue pair is in a group now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// It is.
    Yes,
    /// No queue pair is in it: it has no socket.
    NoSuchGroup,
}

impl Groups {
    /// Adds a queue pair to a group that others are in already.
    pub(super) fn join(&mut self, qpn: Qpn, ip: IpAddr) -> Joined {
        let Some(group) = self.0.get_mut(&ip) else {
            return Joined::NoSuchGroup;
        };
        if !group.members.contains(&qpn) {
            group.members.push(qpn);
        }
        Joined::Yes
    }

    /// Adds a queue pair to a group, by this socket if it is the first.
    pub(super) fn open(&mut self, qpn: Qpn, ip: IpAddr, socket: RoceSocket) {
        if self.join(qpn, ip) == Joined::NoSuchGroup {
            let group = Group {
                socket: Arc::new(socket),
                members: vec![qpn],
            };
            self.0.insert(ip, group);
        }
    }

    /// Takes a queue pair out of a group; whether it was in it.
    pub(super) fn leave(&mut self, qpn: Qpn, ip: IpAddr) -> bool {
        let Some(group) = self.0.get_mut(&ip) else {
            return false;
        };
        let before = group.members.len();
        group.members.retain(|member| *member != qpn);
        let was_in = group.members.len() != before;
        if group.members.is_empty() {
            self.0.remove(&ip);
        }
        was_in
    }

    /// Takes a queue pair out of all groups.
    pub(super) fn leave_all(&mut self, qpn: Qpn) {
        let all: Vec<IpAddr> = self.0.keys().copied().collect();
        all.into_iter().for_each(|ip| {
            self.leave(qpn, ip);
        });
    }

    /// The queue pairs in the group at `ip`.
    pub(super) fn members(&self, ip: IpAddr) -> &[Qpn] {
        self.0.get(&ip).map_or(&[], |group| &group.members)
    }

    /// Whether no queue pair is in any.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sockets of all groups.
    pub(super) fn sockets(&self) -> Vec<Arc<RoceSocket>> {
        self.0.values().map(|group| group.socket.clone()).collect()
    }
}

/// Why an address, or a group, cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    /// It is of another IP version than the port, which is at this address.
    #[error("it is not of the same IP version as {0}")]
    Version(IpAddr),
    /// The kernel refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ReachError {
    /// What the system says of it, and what to do: nothing, or from `; ` on.
    pub(crate) fn explain(self) -> (io::Error, String) {
        match self {
            ReachError::Version(_) => (
                io::ErrorKind::NetworkUnreachable.into(),
                format!("; {self}"),
            ),
            ReachError::System(source) if source.kind() == io::ErrorKind::AddrInUse => (
                source,
                "; another program has UDP port 4791 of all addresses, as the kernel's Soft-RoCE \
                 does (`rdma link`): use another network namespace"
                    .to_owned(),
            ),
            ReachError::System(source) => (source, String::new()),
        }
    }

    /// For who asked for the group `gid`.
    pub(crate) fn of_group(self, gid: Gid) -> McastError {
        let (source, remedy) = self.explain();
        McastError::System {
            action: format!("join the multicast group {gid}"),
            source,
            remedy,
        }
    }
}
