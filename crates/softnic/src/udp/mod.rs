//! The UDP port: RoCEv2 to other addresses, over a plain socket.
//!
//! ```text
//!  post_send ──► Link: RcQp ──► Outbox ──► socket ═══ UDP 4791 + slot ═══ peer
//!  poll_cq   ◄── rings  ◄──── Link ◄── ICRC, parse ◄── Inbox ◄── socket
//! ```
//! An RC or UC queue pair that is connected to another address than its own port's has a *link* here: the
//! transport's state machine, which takes receive requests from the queue pair's ring and completes
//! into the same rings as a local peer would. A UD queue pair has its own kind of link ([`datagrams`]).
//!
//! **Who drives.** Whoever polls a completion queue, reads memory in wait for a message, posts, or
//! waits for an event: by [`Udp::drive`], if nobody else does at the moment. The engine takes over
//! while nobody does.
//!
//! **What is trusted.** Nothing that arrives. A packet needs the right ICRC, a connected queue pair
//! and that one's peer address; memory is reached only through this port's own table of regions;
//! buffers are of fixed size, and what a queue pair keeps of its peer is bounded by its limits.
//!
//! **Locks.** The driver's comes after a queue pair's `send` and before its `recv` (see `qp`), a
//! completion queue's state and the table of regions. Completions of these queue pairs are
//! produced under it alone, until the queue pair is in the error state.

mod address;
mod answering;
mod binding;
mod datagram_table;
mod datagrams;
mod driver;
mod drops;
mod filter;
mod groups;
mod impairment;
mod inbox;
mod lanes;
mod link;
mod machine;
#[cfg(feature = "testing")]
mod mangle;
mod memory;
mod message_header;
mod numbering;
mod outbox;
mod seams;
mod socket;
mod totals;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use adverb_units::Time;
use adverb_verbs::{Counters, PathMtu, QpAttr, QpState, Qpn, SendRequest, TrafficClass, WcStatus};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;

pub(crate) use address::ip_of;
use answering::By;
pub(crate) use binding::{Bound, UdpAddress, Wiring};
pub(crate) use datagram_table::leads_afar;
use datagrams::front;
pub(crate) use driver::Turn;
use driver::{Driver, Left};
use groups::Joined;
pub(crate) use groups::ReachError;
use lanes::Opener;
#[cfg(feature = "testing")]
pub use mangle::Fate;
use memory::Regions;
use rustix::event::{PollFd, PollFlags, epoll};
use socket::RoceSocket;

use crate::datagram_ring::FRONT;
use crate::port::{Port, lock};
use crate::qp::QpInner;

/// What the kernel accounts for a packet beside its payload, and as much again for what it rounds up.
const PACKET_OVERHEAD: usize = 768;

/// The UDP port of a context.
#[derive(Debug)]
pub(crate) struct Udp {
    own: SocketAddr,
    pub(crate) mtu: PathMtu,
    wiring: Wiring,
    socket: Arc<RoceSocket>,
    /// Of the groups' sockets: readable while packets wait. The socket itself is not among them: that
    /// somebody may wait at it would cost each packet a twentieth of its way, though nobody does.
    groups: OwnedFd,
    driver: Mutex<Driver>,
    opener: Mutex<Opener>,
    /// Connected queue pairs: without any nobody needs to drive.
    links: AtomicUsize,
    /// Counts turns of others than the engine, so that it keeps out of their way.
    turns: AtomicU64,
    /// When the engine looks at the timers next, in picoseconds of the driver's clock; 0: soon.
    /// Written under the driver's lock, but for 0.
    engine_until: AtomicU64,
    /// Threads that sleep on the socket themselves.
    waiting: AtomicUsize,
}

/// Has `groups` be readable while packets wait at `socket`, which ends that when it is closed.
fn watch(groups: &OwnedFd, socket: &RoceSocket) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(groups, socket, data, epoll::EventFlags::IN)?)
}

impl Udp {
    pub(crate) fn new(bound: Bound) -> Self {
        let Bound {
            own,
            mtu,
            wiring,
            socket,
            groups,
        } = bound;
        // What is under way fits the peer's socket, if that is as large as this one's.
        let each = 2 * (mtu.bytes().as_usize() + PACKET_OVERHEAD);
        let window = (socket.receive_buffer() / each).clamp(16, 256) as u32;
        let socket = Arc::new(socket);
        let mut driver = Driver::new((&socket, mtu), window);
        if let Wiring::All(impairment) = wiring {
            driver.impair(impairment);
        }
        Udp {
            own,
            mtu,
            wiring,
            socket,
            groups,
            driver: Mutex::new(driver),
            opener: Mutex::default(),
            links: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            engine_until: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    pub(crate) fn socket_addr(&self) -> SocketAddr {
        self.own
    }

    /// Whether peers that share memory are reached over it, too.
    pub(crate) fn reaches_all(&self) -> bool {
        matches!(self.wiring, Wiring::All(_))
    }

    /// Whether a queue pair is connected over it.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.links.load(Ordering::Relaxed) != 0
    }

    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- queue pairs

    /// Applies a Modify QP after INIT, other than to RESET and ERR, while no packet changes the queue pair.
    /// `commit` applies what the driver does not keep, under the same lock.
    ///
    /// # Errors
    /// The peer cannot be reached; nothing has changed then, and `commit` was not called.
    pub(crate) fn modify(
        &self,
        port: &Port,
        qp: &Arc<QpInner>,
        attr: &QpAttr,
        commit: impl FnOnce(),
    ) -> Result<(), ReachError> {
        let mut driver = self.driver();
        if attr.state == Some(QpState::Rtr) {
            // What has arrived by now is not for the new connection.
            driver.turn(port, &self.socket, By::Other);
            let connected = driver.connect(qp, attr);
            connected.ok_or(ReachError::Version(self.own.ip()))?;
            self.links.fetch_add(1, Ordering::Relaxed);
            port.wake.wake(); // the engine is to watch the socket
        } else {
            driver.modify(qp.qpn(), attr);
        }
        commit();
        // Requests that were held back may be sent now.
        self.send_posted(driver, (port, Regions::of(port)));
        Ok(())
    }

    /// Opens what lanes are missing: packets leave by the socket until then. On the engine's thread, which is
    /// in the device's network namespace.
    pub(crate) fn open_lanes(&self) {
        let missing = self.driver().take_missing_lanes();
        for to in missing {
            // Where it cannot be had, such as for want of descriptors, all is well without.
            let lane = lock(&self.opener).open(self.own.ip(), to);
            if let Ok(lane) = lane {
                self.driver().open_lane(lane);
            }
        }
    }

    /// What a receive gets before the payload of a message within this host, whose packet would have
    /// `length` bytes.
    pub(crate) fn front_within_host(&self, length: usize) -> [u8; FRONT] {
        let ip = self.own.ip();
        let addresses = Addresses::of(ip, ip).expect("one version");
        front(addresses, length, Unseen::default())
    }

    // --- address handles and multicast groups

    /// Makes an address handle of domain `pd` to an address, with packets of this class; its name.
    pub(crate) fn make_handle(
        &self,
        port: &Port,
        pd: u32,
        (ip, class): (IpAddr, TrafficClass),
    ) -> Result<u64, ReachError> {
        if ip.is_multicast() {
            self.send_groups(port)?;
        }
        let made = self.driver().datagrams.make_way(pd, (ip, class));
        made.ok_or(ReachError::Version(self.own.ip()))
    }

    /// Has what is sent to multicast groups leave by the interface that has the own address.
    fn send_groups(&self, port: &Port) -> io::Result<()> {
        match self.own.ip() {
            IpAddr::V4(own) => self.socket.send_groups_from(own),
            own @ IpAddr::V6(_) => {
                let interface = port
                    .errands
                    .run(&port.wake, move || address::interface_index(own))?;
                self.socket.send_groups_by(interface)
            }
        }
    }

    /// Adds a UD queue pair to a multicast group.
    pub(crate) fn join(&self, port: &Port, qpn: Qpn, ip: IpAddr) -> Result<(), ReachError> {
        let own = self.own.ip();
        Addresses::of(own, ip).ok_or(ReachError::Version(own))?;
        if self.driver().datagrams.groups.join(qpn, ip) == Joined::Yes {
            return Ok(());
        }
        let socket = port
            .errands
            .run(&port.wake, move || RoceSocket::join(ip, own))?;
        watch(&self.groups, &socket)?;
        // Should another thread have been faster, its socket goes.
        self.driver().datagrams.groups.open(qpn, ip, socket);
        Ok(())
    }

    /// Takes a UD queue pair out of a multicast group; whether it was in it.
    pub(crate) fn leave(&self, qpn: Qpn, ip: IpAddr) -> bool {
        self.driver().datagrams.groups.leave(qpn, ip)
    }

    /// Takes a UD queue pair out of all multicast groups.
    pub(crate) fn leave_all(&self, qpn: Qpn) {
        self.driver().datagrams.groups.leave_all(qpn);
    }

    /// Ends an address handle.
    pub(crate) fn forget_handle(&self, name: u64) {
        self.driver().datagrams.forget_way(name);
    }

    /// Forgets a queue pair.
    pub(crate) fn disconnect(&self, port: &Port, qpn: Qpn) {
        let mut driver = self.driver();
        driver.turn(port, &self.socket, By::Other);
        if driver.disconnect(qpn) {
            self.links.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a queue pair to the error state: what it has under way is flushed.
    pub(crate) fn enter_error(&self, qpn: Qpn) {
        self.driver().enter_error(qpn);
    }

    /// Gives a request to a queue pair, and sends it.
    ///
    /// # Errors
    /// How it ended at once; the connection has not changed.
    pub(crate) fn post_and_ring(
        &self,
        port: &Port,
        qpn: Qpn,
        request: (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let mut driver = self.driver();
        let regions = Regions::of(port);
        driver.post(&regions, qpn, request)?;
        self.send_posted(driver, (port, regions));
        Ok(())
    }

    /// Gives a request to a queue pair; [`Udp::ring`] sends it.
    ///
    /// # Errors
    /// How it ended at once; the connection has not changed.
    pub(crate) fn post(
        &self,
        port: &Port,
        qpn: Qpn,
        request: (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let mut driver = self.driver();
        driver.post(&Regions::of(port), qpn, request)
    }

    /// Gives a datagram to the driver; [`Udp::ring`] sends it. How the request ended; none where the
    /// socket takes no more now.
    pub(crate) fn send_datagram(
        &self,
        port: &Port,
        qp: &QpInner,
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        let mut driver = self.driver();
        driver.send_datagram(&Regions::of(port), qp, request)
    }

    // --- driving

    /// Sends what was posted. That is no turn: who only posts takes no packets, and looks at no
    /// timers, so the engine does.
    pub(crate) fn ring(&self, port: &Port) {
        self.send_posted(self.driver(), (port, Regions::of(port)));
    }

    fn send_posted(
        &self,
        mut driver: MutexGuard<'_, Driver>,
        (port, regions): (&Port, Regions<'_>),
    ) {
        let now = driver.now();
        driver.transmit(now, &regions, By::Poster);
        drop(regions);
        driver.end_those_over();
        self.leave_to_engine(&driver, port);
    }

    /// Should nobody poll, the engine has to look at the timers of what was just sent, and to send what
    /// was kept for an answer.
    #[inline]
    fn leave_to_engine(&self, driver: &Driver, port: &Port) {
        let engine_until = self.engine_until.load(Ordering::Relaxed);
        let is_late = match driver.left() {
            Left::Until(deadline) => deadline.is_some_and(|d| d.as_ps() < engine_until),
            Left::More | Left::Blocked => engine_until != 0,
        };
        if is_late {
            self.engine_until.store(0, Ordering::Relaxed);
            port.wake.wake();
        }
    }

    /// Takes a turn; none where somebody else does at the moment.
    #[inline]
    pub(crate) fn drive(&self, port: &Port) -> Option<Turn> {
        // That one of two at the same time is lost is no matter.
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns.wrapping_add(1), Ordering::Relaxed);
        // The engine leaves the socket to whoever sleeps at it.
        let by = match self.waiting.load(Ordering::SeqCst) {
            0 => By::Poller,
            _ => By::Other,
        };
        self.try_turn(port, by)
    }

    /// A turn of the engine's; not if somebody else takes one at the moment.
    pub(crate) fn turn(&self, port: &Port) -> Option<Turn> {
        self.try_turn(port, By::Other)
    }

    #[inline]
    fn try_turn(&self, port: &Port, by: By) -> Option<Turn> {
        let mut driver = match self.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(driver)) => driver.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let turn = driver.turn(port, &self.socket, by);
        if (turn, by) == (Turn::Busy, By::Poller) {
            self.leave_to_engine(&driver, port);
        }
        Some(turn)
    }

    /// How many turns others than the engine have taken, unless somebody is at the socket all the
    /// time.
    pub(crate) fn attendance(&self) -> Attendance {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            Attendance::Constant
        } else {
            Attendance::Turns(self.turns.load(Ordering::Relaxed))
        }
    }

    /// Until the guard is dropped, its holder sleeps on the socket and takes turns.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting { udp: self }
    }

    /// How long somebody may sleep on the socket who takes the next turn; none for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        Self::patience_of(&self.driver())
    }

    fn patience_of(driver: &Driver) -> Option<Duration> {
        match driver.left() {
            Left::Blocked => Some(Duration::from_millis(1)),
            Left::More => Some(Duration::ZERO),
            Left::Until(deadline) => {
                let now = driver.now();
                // Rounded up: a sleep that ends before the deadline is another one.
                let left = |deadline: Time| Duration::from(deadline.since(now));
                deadline.map(|deadline| left(deadline) + Duration::from_micros(1))
            }
        }
    }

    /// The same for the engine, which [`Udp::ring`] wakes if something is due earlier.
    pub(crate) fn engine_patience(&self) -> Option<Duration> {
        let driver = self.driver();
        let patience = Self::patience_of(&driver);
        let until = match driver.left() {
            Left::Until(deadline) => deadline.map_or(u64::MAX, Time::as_ps),
            Left::More | Left::Blocked => 0,
        };
        self.engine_until.store(until, Ordering::Relaxed);
        patience
    }

    /// The engine looks again soon, whatever is posted.
    pub(crate) fn engine_ticks(&self) {
        self.engine_until.store(0, Ordering::Relaxed);
    }

    /// One of them is readable while packets wait.
    pub(crate) fn arrivals(&self) -> [PollFd<'_>; 2] {
        let (socket, groups) = (self.socket.as_fd(), self.groups.as_fd());
        [socket, groups].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.driver().counters()
    }

    /// Has what arrives pass a rule.
    #[cfg(feature = "testing")]
    pub(crate) fn mangle(&self, rule: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        self.driver().mangler.follow(Box::new(rule));
    }
}

/// Who takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attendance {
    /// Pollers have taken so many.
    Turns(u64),
    /// Somebody waits at the socket.
    Constant,
}

/// Somebody who waits at the socket.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    udp: &'a Udp,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.udp.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
