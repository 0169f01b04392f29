//! Multicast groups: their members, and a socket for each.
//!
//! Multicast packets are sent to UDP port 4791 ([`adverb_wire::ROCE_PORT`]), because they contain no queue pair number
//! that would determine the port of a process. So each context binds a socket to the group's address and that port.
//! Linux allows any number of sockets to do so (SO_REUSEADDR) and delivers a copy to each. Packets are also delivered
//! to members on the sending host (IP_MULTICAST_LOOP, on by default), and are not routed (a TTL of 1, the default).
//!
//! Source: IBTA annex A17 (RoCEv2): the group's GID is its IP address; an IPv4 address is mapped to IPv6.

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

/// The outcome of joining a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The queue pair is a member.
    Yes,
    /// The group has no members, and therefore no socket.
    NoSuchGroup,
}

impl Groups {
    /// Adds a queue pair to a group that has a socket.
    pub(super) fn join(&mut self, qpn: Qpn, ip: IpAddr) -> Joined {
        let Some(group) = self.0.get_mut(&ip) else {
            return Joined::NoSuchGroup;
        };
        if !group.members.contains(&qpn) {
            group.members.push(qpn);
        }
        Joined::Yes
    }

    /// Adds a queue pair to a group, which gets this socket if it has none.
    pub(super) fn open(&mut self, qpn: Qpn, ip: IpAddr, socket: RoceSocket) {
        if self.join(qpn, ip) == Joined::NoSuchGroup {
            let group = Group {
                socket: Arc::new(socket),
                members: vec![qpn],
            };
            self.0.insert(ip, group);
        }
    }

    /// Removes a queue pair from a group; returns false if it was not a member.
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

    /// Removes a queue pair from all groups.
    pub(super) fn leave_all(&mut self, qpn: Qpn) {
        let all: Vec<IpAddr> = self.0.keys().copied().collect();
        all.into_iter().for_each(|ip| {
            self.leave(qpn, ip);
        });
    }

    /// Whether a queue pair is a member of a group.
    pub(super) fn have(&self, qpn: Qpn) -> bool {
        let mut groups = self.0.values();
        groups.any(|group| group.members.contains(&qpn))
    }

    /// Returns the members of a group.
    pub(super) fn members(&self, ip: IpAddr) -> &[Qpn] {
        self.0.get(&ip).map_or(&[], |group| &group.members)
    }

    /// Whether no group has members.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sockets of all groups.
    pub(super) fn sockets(&self) -> Vec<Arc<RoceSocket>> {
        self.0.values().map(|group| group.socket.clone()).collect()
    }
}

/// Why an address, or a group, cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReachError {
    /// It is of another IP version than the port, whose address this is.
    #[error("it is not of the same IP version as {0}")]
    Version(IpAddr),
    /// The kernel refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl ReachError {
    /// Returns the system's error, and the remedy: empty, or beginning with `; `.
    pub(crate) fn explain(self) -> (io::Error, String) {
        match self {
            ReachError::Version(_) => (
                io::ErrorKind::NetworkUnreachable.into(),
                format!("; {self}"),
            ),
            ReachError::System(source) if source.kind() == io::ErrorKind::AddrInUse => (
                source,
                "; another program uses UDP port 4791 at all addresses, for example the kernel's Soft-RoCE \
                 (`rdma link`): use another network namespace"
                    .to_owned(),
            ),
            ReachError::System(source) if source.kind() == io::ErrorKind::NetworkUnreachable => (
                source,
                "; the interface carries no IPv6 groups, as the loopback interface: use the address of another one"
                    .to_owned(),
            ),
            ReachError::System(source) => (source, String::new()),
        }
    }

    /// Returns the error of joining group `gid`.
    pub(crate) fn of_group(self, gid: Gid) -> McastError {
        let (source, remedy) = self.explain();
        McastError::System {
            action: format!("join the multicast group {gid}"),
            source,
            remedy,
        }
    }
}
