//! Where a UDP port is to be, and its socket, bound before the port is laid out: which slot a process
//! takes depends on which UDP ports are free.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use adverb_verbs::{Gid, Impairment, OpenError, PathMtu};
use rustix::event::epoll;

use super::address;
use super::delayed_ack::DelayedAcks;
use super::socket::RoceSocket;
use crate::shm::layout::MAX_SLOTS;

/// Which peers are reached over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// Those at other addresses, and those at the same address that share no memory.
    Others,
    /// All, so that faults are injected into all packets.
    All(Impairment),
}

/// An address to have a UDP port at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpAddress {
    ip: IpAddr,
    mtu: PathMtu,
    wiring: Wiring,
    delayed_acks: DelayedAcks,
}

impl UdpAddress {
    /// Looks at the interface that has `ip`.
    pub(crate) fn new(ip: IpAddr, wiring: Wiring) -> Result<Self, OpenError> {
        if let Some(what) = address::no_address_of_one_host(ip) {
            return Err(OpenError::Unavailable {
                device: format!("soft@{ip}"),
                reason: format!("{ip} is {what}"),
                remedy: "name an address of this host; `ip address` lists them".into(),
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
            wiring,
            delayed_acks,
        })
    }

    /// No slot is left whose UDP port is free.
    pub(crate) fn all_taken(self) -> OpenError {
        let ip = self.ip;
        let [first, last] = [0, MAX_SLOTS - 1].map(address::udp_port);
        OpenError::Unavailable {
            device: format!("soft@{ip}"),
            reason: format!("the UDP ports {first} to {last} at {ip} are all in use"),
            remedy: "name another address of this host, or end a process that has some of them \
                     (`ss -ulpn`)"
                .into(),
        }
    }

    /// Binds the socket of `slot`. None where its UDP port is somebody else's.
    pub(crate) fn bind(self, slot: u32) -> Result<Option<Bound>, OpenError> {
        let ip = self.ip;
        let own = SocketAddr::new(ip, address::udp_port(slot));
        let device = format!("soft@{ip}");
        match Bound::new(own, self) {
            Ok(bound) => Ok(Some(bound)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => Err(OpenError::Unavailable {
                device,
                reason: format!("{ip} is not an address of this host and network namespace"),
                remedy: "`ip address` lists those that are".into(),
            }),
            Err(source) => Err(OpenError::System {
                device,
                action: format!("bind UDP port {}", own.port()),
                source,
            }),
        }
    }
}

/// The socket of a slot, bound before the slot's port is laid out.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(super) own: SocketAddr,
    pub(super) mtu: PathMtu,
    pub(super) wiring: Wiring,
    pub(super) delayed_acks: DelayedAcks,
    pub(super) socket: RoceSocket,
    /// As in [`super::Udp`].
    pub(super) groups: OwnedFd,
}

impl Bound {
    fn new(own: SocketAddr, address: UdpAddress) -> io::Result<Self> {
        let socket = RoceSocket::bind(own)?;
        let groups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Bound {
            own,
            mtu: address.mtu,
            wiring: address.wiring,
            delayed_acks: address.delayed_acks,
            socket,
            groups,
        })
    }

    pub(crate) fn gid(&self) -> Gid {
        address::gid_of(self.own.ip())
    }
}
