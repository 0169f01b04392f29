//! The address and socket of a UDP port. The socket is bound before the port file is initialized, because the slot of
//! a process depends on which UDP ports are free.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use adverb_verbs::{Gid, Impairment, OpenError, PathMtu};
use rustix::event::epoll;

use super::address;
use super::capture::Capture;
use super::delayed_ack::DelayedAcks;
use super::socket::RoceSocket;
use crate::shm::layout::MAX_SLOTS;

/// Which peers are reached over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpPeers {
    /// Peers at other addresses, and peers at the same address that share no memory.
    Unshared,
    /// All, so that faults are injected into all packets.
    All(Impairment),
}

/// The address of a UDP port, and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpAddress {
    ip: IpAddr,
    mtu: PathMtu,
    peers: UdpPeers,
    delayed_acks: DelayedAcks,
}

impl UdpAddress {
    /// Reads the MTU of the interface that has `ip`.
    pub(crate) fn new(ip: IpAddr, peers: UdpPeers) -> Result<Self, OpenError> {
        if let Some(what) = address::not_of_one_host(ip) {
            return Err(OpenError::Unavailable {
                device: format!("soft@{ip}"),
                reason: format!("{ip} is {what}"),
                remedy: "use an address of this host; `ip address` lists them".into(),
            });
        }
        let delayed_acks = DelayedAcks::from_env().map_err(|reason| OpenError::Unavailable {
            device: format!("soft@{ip}"),
            reason,
            remedy: "unset it, unless you measure the UDP port".into(),
        })?;
        let mtu = address::path_mtu(ip).map_err(|source| OpenError::System {
            device: format!("soft@{ip}"),
            action: "read the MTU of the interface".into(),
            source,
        })?;
        Ok(UdpAddress {
            ip,
            mtu,
            peers,
            delayed_acks,
        })
    }

    /// Returns the error that no UDP port is free.
    pub(crate) fn all_taken(self) -> OpenError {
        let ip = self.ip;
        let [first, last] = [0, MAX_SLOTS - 1].map(address::udp_port);
        OpenError::Unavailable {
            device: format!("soft@{ip}"),
            reason: format!("all UDP ports from {first} to {last} at {ip} are in use"),
            remedy: "use another address of this host, or end a process that uses one of them \
                     (`ss -ulpn`)"
                .into(),
        }
    }

    /// Binds the socket of `slot`. `None` if its UDP port is in use.
    pub(crate) fn bind(self, slot: u32) -> Result<Option<Bound>, OpenError> {
        let ip = self.ip;
        let own = SocketAddr::new(ip, address::udp_port(slot));
        let device = format!("soft@{ip}");
        let capture = Capture::from_env().map_err(|source| OpenError::System {
            device: device.clone(),
            action: "capture its packets".into(),
            source,
        })?;
        match Bound::new(own, self, capture) {
            Ok(bound) => Ok(Some(bound)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => Err(OpenError::Unavailable {
                device,
                reason: format!("{ip} is not an address of this host and network namespace"),
                remedy: "use an address of this host; `ip address` lists them".into(),
            }),
            Err(source) => Err(OpenError::System {
                device,
                action: format!("bind UDP port {}", own.port()),
                source,
            }),
        }
    }
}

/// A bound socket, and the parameters of its port.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) own: SocketAddr,
    pub(super) mtu: PathMtu,
    pub(super) peers: UdpPeers,
    pub(super) delayed_acks: DelayedAcks,
    pub(super) socket: RoceSocket,
    /// As in [`super::Udp`].
    pub(super) groups: OwnedFd,
}

impl Bound {
    fn new(own: SocketAddr, address: UdpAddress, capture: Option<Capture>) -> io::Result<Self> {
        let mut socket = RoceSocket::bind(own)?;
        socket.capture_to(capture.map(Arc::new));
        let groups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Bound {
            own,
            mtu: address.mtu,
            peers: address.peers,
            delayed_acks: address.delayed_acks,
            socket,
            groups,
        })
    }

    pub(crate) fn gid(&self) -> Gid {
        address::gid_of(self.own.ip())
    }
}
