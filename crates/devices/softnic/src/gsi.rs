//! Queue pair 1, the general services interface: management datagrams of the UDP port (IBTA vol. 1, 13.5).
//!
//! A thread of the program takes the datagrams that arrive. The engine receives them, unless another thread drives the
//! UDP port.
//!
//! # Which process gets a request
//! Requests to an address are sent to UDP port 4791, which one process at the address has. The other processes have other
//! ports. So each process records the services for which it listens as files in the shared directory of the address:
//! * a requester at the same address, of the same user, sends directly to the port of the listener;
//! * the process at port 4791 forwards requests for services that another process has recorded, and refuses others. It
//!   does so also if its program never opens queue pair 1.
//!
//! Answers and all later messages go to the port that the other process sends from. When the process at port 4791 has
//! ended, another one that listens takes the port over ([`Gsi::take_standard_port`]), in addition to its own.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use adverb_verbs::{CreateError, Unsupported};
use adverb_wire::ROCE_PORT;
use adverb_wire::mad;

use crate::context::SoftContext;
use crate::domain::Handle;
pub use crate::udp::ReceivedMad;
use crate::udp::{Host as _, Mailbox, Udp, holder, udp_port};

/// Queue pair 1 of a context. Dropping it closes it.
#[derive(Debug)]
pub struct Gsi {
    handle: Arc<Handle>,
    mailbox: Arc<Mailbox>,
}

impl SoftContext {
    /// Opens queue pair 1, whose datagrams are received from now on.
    ///
    /// # Errors
    /// The device has no UDP port, or the queue pair is open.
    pub fn open_gsi(&self) -> Result<Gsi, CreateError> {
        let port = &self.handle().port;
        let Some(udp) = &port.udp else {
            return Err(Unsupported {
                feature: "management datagrams",
                device: "soft".into(),
            }
            .into());
        };
        let mailbox = udp.open_mailbox().ok_or(CreateError::Exhausted {
            what: "queue pairs 1",
            limit: 1,
        })?;
        Ok(Gsi {
            handle: self.handle().clone(),
            mailbox,
        })
    }
}

impl Gsi {
    fn udp(&self) -> &Udp {
        let udp = self.handle.port.udp.as_ref();
        udp.expect("it was opened on a UDP port")
    }

    /// Returns the address and UDP port of this process.
    pub fn own(&self) -> SocketAddr {
        self.udp().socket_addr()
    }

    /// Sends a datagram. It may be lost, as on any network.
    pub fn send(&self, to: SocketAddr, mad: &[u8; mad::LEN]) {
        let port = &self.handle.port;
        self.udp().send_mad(&**port, to, (mad, None));
    }

    /// Forwards a request to the process at this address that listens for `service`; returns false if there is none.
    pub fn forward(&self, request: &ReceivedMad, service: u64) -> bool {
        let port = &self.handle.port;
        let Some(udp_port) = port.listener(service) else {
            return false;
        };
        let to = SocketAddr::new(self.own().ip(), udp_port);
        let forwarded = (&*request.bytes, Some(request.from));
        self.udp().send_mad(&**port, to, forwarded);
        true
    }

    /// Takes a datagram. Waits for it until `timeout` has passed (`None`: long) or [`Gsi::wake`] is called.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<ReceivedMad> {
        self.mailbox.wait(timeout)
    }

    /// Ends the current or next [`Gsi::wait`].
    pub fn wake(&self) {
        self.mailbox.wake();
    }

    /// Records that this process listens for a service at its address.
    ///
    /// # Errors
    /// `AddrInUse` if a process does already; the directory cannot be written.
    pub fn announce(&self, service: u64) -> io::Result<()> {
        let port = &self.handle.port;
        port.dir
            .announce(port.slot, service)
            .map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => io::ErrorKind::AddrInUse.into(),
                _ => e,
            })
    }

    /// Ends what [`Gsi::announce`] recorded.
    pub fn withdraw(&self, service: u64) {
        let port = &self.handle.port;
        port.dir.withdraw(port.slot, service);
    }

    /// Whether a process of this user listens for a service at its address.
    pub fn is_announced(&self, service: u64) -> bool {
        self.handle.port.dir.listener(service).is_some()
    }

    /// Returns which process of this user has a UDP port of this host. `None` if there is none, or it is another user's or
    /// another host's. Later processes at the same port have other numbers.
    pub fn process_at(&self, peer: SocketAddr) -> Option<u64> {
        let slot = peer.port().checked_sub(ROCE_PORT)?.into();
        let dir = &self.handle.port.dir;
        match peer.ip() == self.own().ip() {
            true => dir.owner(slot),
            false => dir.of_other_address(peer.ip())?.owner(slot),
        }
    }

    /// Whether the process that had a UDP port, as [`Gsi::process_at`] returned it, has ended. False also if that cannot be
    /// found out, because this process has changed its user or root directory.
    pub fn has_ended(&self, peer: SocketAddr, process: u64) -> bool {
        let port = &self.handle.port;
        port.check_user() && port.dir.is_at_path() && self.process_at(peer) != Some(process)
    }

    /// Whether this process receives the requests of other hosts, at UDP port 4791.
    pub fn has_standard_port(&self) -> bool {
        self.udp().has_standard_port()
    }

    /// Describes the program that holds UDP port 4791 of this address instead of a process of this user's that has opened the
    /// device. Requests from other addresses do not reach this process then.
    pub fn foreign_holder(&self) -> Option<String> {
        if self.has_standard_port() || self.handle.port.dir.has_owner(0) {
            return None;
        }
        let at = SocketAddr::new(self.own().ip(), ROCE_PORT);
        let refusal = UdpSocket::bind(at).err()?;
        let holder = (refusal.kind() == io::ErrorKind::AddrInUse).then(|| holder(at));
        Some(holder?.unwrap_or_else(|| "another program".into()))
    }

    /// Takes UDP port 4791 over from a process that has ended. Returns false if another process has it.
    pub fn take_standard_port(&self) -> bool {
        let port = &self.handle.port;
        let udp = self.udp();
        udp.has_standard_port() || !port.dir.has_owner(0) && udp.take_standard_port(&**port).is_ok()
    }

    /// Returns where requests for a service at `ip` are sent.
    pub fn listener(&self, ip: IpAddr, service: u64) -> SocketAddr {
        let port = &self.handle.port;
        let own = self.own();
        let standard = SocketAddr::new(ip, ROCE_PORT);
        if ip != own.ip() {
            return standard;
        }
        match port.dir.listener(service) {
            Some(slot) => SocketAddr::new(ip, udp_port(slot)),
            // Nobody would answer there: this process refuses the request itself.
            None if UdpSocket::bind(standard).is_ok() => own,
            None => standard,
        }
    }
}

impl Drop for Gsi {
    fn drop(&mut self) {
        if self.handle.port.is_inherited() {
            return;
        }
        self.udp().close_mailbox();
    }
}
