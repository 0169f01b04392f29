//! The UDP port: RoCEv2 to other addresses, over a plain socket.
//!
//! ```text
//!  post_send ──► Link: RcQp ──► TxBatch ──► socket ═══ UDP 4791 + slot ═══ peer
//!  poll_cq   ◄── rings  ◄──── Link ◄── ICRC, parse ◄── RxBatch ◄── socket
//! ```
//! An RC or UC queue pair that is connected to another address than its own port's has a *link*: the
//! transport's state machine, which takes receive requests from the queue pair's ring and completes into the
//! same rings as a local peer would. A UD queue pair has a link of another type ([`datagrams`]).
//!
//! **Who drives.** A thread that polls a completion queue, polls memory for a message, posts, or waits for an event
//! calls [`Udp::drive`], which returns at once if another thread is driving. While no thread does, the engine
//! drives.
//!
//! **Trust.** Nothing that arrives is trusted. A packet needs the right ICRC, a connected queue pair and the address of
//! its peer; memory is accessed only through this port's own table of regions; buffers have a fixed size, and the
//! state that a peer can cause at a queue pair is bounded by the queue pair's limits.
//!
//! **Locks.** The driver's lock is taken after a queue pair's `send` lock and before its `recv` lock (see `qp`), a
//! completion queue's state and the table of regions. Completions of connected queue pairs are produced only under
//! the driver's lock, until the queue pair is in the error state.

mod address;
mod binding;
mod capture;
mod datagram_table;
mod datagrams;
mod delayed_ack;
mod driver;
mod drops;
mod filter;
mod groups;
mod holder;
mod host;
mod link;
mod mailbox;
mod memory;
mod message_header;
mod packet;
mod rx_batch;
mod socket;
mod totals;
mod transport;
mod tx_batch;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use adverb_units::{Span, Time};
use adverb_verbs::{Counters, PathMtu, QpAttr, QpState, Qpn, SendRequest, TrafficClass, WcStatus};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;
use adverb_wire::{ROCE_PORT, mad};

#[cfg(feature = "testing")]
pub use adverb_impair::Fault;

pub use address::{host_addresses, interface_index};
pub(crate) use address::{ip_of, udp_port};
pub(crate) use binding::{Bound, UdpAddress, UdpPeers};
pub use capture::{CAPTURE_VARIABLE, create_capture};
pub(crate) use datagram_table::is_udp_handle;
use datagrams::receive_grh;
use delayed_ack::Caller;
pub(crate) use driver::Progress;
use driver::{Driver, Left};
use groups::Joined;
pub(crate) use groups::ReachError;
pub(crate) use holder::holder;
pub(crate) use host::{Endpoint, Host};
pub(crate) use mailbox::Mailbox;
pub use mailbox::ReceivedMad;
use memory::Regions;
use rustix::event::{PollFd, PollFlags, epoll};
use socket::RoceSocket;

use crate::shm::datagram_ring::GRH_LEN;

/// Bytes that the kernel charges to the socket's buffer per packet in addition to the payload, with rounding.
const PACKET_OVERHEAD: usize = 768;
/// How long the engine leaves packets that a link has held back to threads that drive the port.
const GRACE: Duration = Duration::from_micros(100);
/// How long a process that ends waits for the packets that a link holds back.
const LONGEST_DRAIN: Duration = Duration::from_secs(20);

/// The UDP port of a context.
#[derive(Debug)]
pub(crate) struct Udp {
    own: SocketAddr,
    pub(crate) mtu: PathMtu,
    peers: UdpPeers,
    socket: Arc<RoceSocket>,
    /// An epoll descriptor of the multicast groups' sockets. The main socket is not in it: even if nobody
    /// waits, an epoll entry makes each packet 5 % slower.
    groups: OwnedFd,
    /// The socket at UDP port 4791, if this process took it over from one that has ended ([`crate::gsi`]). Only the engine
    /// receives from it.
    standard: OnceLock<RoceSocket>,
    driver: Mutex<Driver>,
    /// Number of connected queue pairs; at 0 there is nothing to drive.
    links: AtomicUsize,
    /// Number of turns by threads other than the engine, which drives only while these take none, and of polls that
    /// found something.
    turns: AtomicU64,
    /// Whether the last poll found something: its thread may now wait for something else, such as a change of memory.
    has_found: AtomicBool,
    /// Whether a thread is about to sleep elsewhere than on the socket, and expects the engine to receive.
    is_sleep_announced: AtomicBool,
    /// Whether the engine sleeps on the socket.
    has_engine: AtomicBool,
    /// When the engine looks at the timers next, in picoseconds of the driver's clock; 0: soon. Values other than 0
    /// are written under the driver's lock.
    engine_until: AtomicU64,
    /// Number of threads that sleep on the socket.
    sleepers: AtomicUsize,
}

/// Adds `socket` to the epoll descriptor `groups`; closing the socket removes it.
fn watch(groups: &OwnedFd, socket: &RoceSocket) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(groups, socket, data, epoll::EventFlags::IN)?)
}

impl Udp {
    pub(crate) fn new(bound: Bound) -> Self {
        let Bound {
            own,
            mtu,
            peers,
            delayed_acks,
            socket,
            groups,
        } = bound;
        // The packets in flight fit into the peer's receive buffer, if it is as large as this one's.
        let each = 2 * (mtu.bytes().as_usize() + PACKET_OVERHEAD);
        let window = (socket.receive_buffer() / each).max(16) as u32;
        let socket = Arc::new(socket);
        let mut driver = Driver::new((&socket, mtu), window, delayed_acks);
        if let UdpPeers::All(impairment) = peers {
            driver.impair(impairment);
        }
        Udp {
            own,
            mtu,
            peers,
            socket,
            groups,
            standard: OnceLock::new(),
            driver: Mutex::new(driver),
            links: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            has_found: AtomicBool::new(false),
            is_sleep_announced: AtomicBool::new(false),
            has_engine: AtomicBool::new(false),
            engine_until: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
        }
    }

    pub(crate) fn socket_addr(&self) -> SocketAddr {
        self.own
    }

    /// Whether it also carries traffic to peers that share memory.
    pub(crate) fn carries_all(&self) -> bool {
        matches!(self.peers, UdpPeers::All(_))
    }

    /// Whether any queue pair is connected over it.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.links.load(Ordering::Relaxed) != 0
    }

    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- queue pairs

    /// Moves the queue pairs of failed connections to the error state. During another thread's turn a program may have
    /// polled their completions already.
    pub(crate) fn end_failed(&self) {
        self.driver().end_failed();
    }

    /// Applies a Modify QP after INIT, other than to RESET and ERR, while no packet changes the queue pair.
    /// `commit` applies what the driver does not keep, under the same lock.
    ///
    /// # Errors
    /// The peer cannot be reached; nothing has changed then, and `commit` was not called.
    pub(crate) fn modify(
        &self,
        host: &dyn Host,
        qp: &Arc<dyn Endpoint>,
        attr: &QpAttr,
        commit: impl FnOnce(),
    ) -> Result<(), ReachError> {
        let mut driver = self.driver();
        if attr.state == Some(QpState::Rtr) {
            // Packets that have arrived by now do not belong to the new connection.
            driver.turn(host, &self.socket, Caller::Other);
            let connected = driver.connect(qp, attr);
            connected.ok_or(ReachError::Version(self.own.ip()))?;
            self.links.fetch_add(1, Ordering::Relaxed);
            host.wake().wake(); // the engine has to watch the socket
        } else {
            driver.modify(qp.qpn(), attr);
        }
        commit();
        // Requests that were waiting for the new state may be sent now.
        self.send_posted(driver, (host, Regions::of(host)));
        Ok(())
    }

    /// Returns the 40 bytes that a UD receive gets before the payload of a message from this host, whose packet
    /// would have `length` bytes.
    pub(crate) fn grh_within_host(&self, length: usize) -> [u8; GRH_LEN] {
        let ip = self.own.ip();
        let addresses = Addresses::of(ip, ip).expect("one version");
        receive_grh(addresses, length, Unseen::default())
    }

    // --- address handles and multicast groups

    /// Makes an address handle of protection domain `pd`; returns its name.
    pub(crate) fn make_handle(
        &self,
        host: &dyn Host,
        pd: u32,
        (ip, class): (IpAddr, TrafficClass),
    ) -> Result<u64, ReachError> {
        if ip.is_multicast() {
            self.send_groups(host, ip)?;
        }
        let made = self.driver().datagrams.make_handle(pd, (ip, class));
        made.ok_or(ReachError::Version(self.own.ip()))
    }

    /// Sends multicast datagrams, to this group and others, through the interface of the port's address.
    fn send_groups(&self, host: &dyn Host, group: IpAddr) -> io::Result<()> {
        match self.own.ip() {
            IpAddr::V4(own) => self.socket.send_groups_from(own),
            own @ IpAddr::V6(_) => {
                let find = move || address::interface_to_group(own, group);
                let interface = host.tasks().run(host.wake(), find)?;
                self.socket.send_groups_by(interface)
            }
        }
    }

    /// Adds a UD queue pair to a multicast group.
    pub(crate) fn join(&self, host: &dyn Host, qpn: Qpn, ip: IpAddr) -> Result<(), ReachError> {
        let own = self.own.ip();
        Addresses::of(own, ip).ok_or(ReachError::Version(own))?;
        if self.driver().datagrams.groups.join(qpn, ip) == Joined::Yes {
            return Ok(());
        }
        let join = move || RoceSocket::join(ip, own);
        let mut socket = host.tasks().run(host.wake(), join)?;
        socket.capture_to(self.socket.capture().cloned());
        watch(&self.groups, &socket)?;
        // If another thread was faster, its socket is replaced.
        self.driver().datagrams.groups.open(qpn, ip, socket);
        Ok(())
    }

    /// Removes a UD queue pair from a multicast group; returns false if it was not in it.
    pub(crate) fn leave(&self, qpn: Qpn, ip: IpAddr) -> bool {
        self.driver().datagrams.groups.leave(qpn, ip)
    }

    /// Whether a UD queue pair is attached to a multicast group.
    pub(crate) fn is_in_group(&self, qpn: Qpn) -> bool {
        self.driver().datagrams.groups.have(qpn)
    }

    /// Removes a UD queue pair from all multicast groups.
    pub(crate) fn leave_all(&self, qpn: Qpn) {
        self.driver().datagrams.groups.leave_all(qpn);
    }

    /// Destroys an address handle.
    pub(crate) fn forget_handle(&self, name: u64) {
        self.driver().datagrams.forget_handle(name);
    }

    /// Removes a queue pair.
    pub(crate) fn disconnect(&self, host: &dyn Host, qpn: Qpn) {
        let mut driver = self.driver();
        driver.turn(host, &self.socket, Caller::Other);
        if driver.disconnect(qpn) {
            self.links.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Moves a queue pair to the error state, which flushes its requests. The messages that have arrived are acknowledged
    /// now, before the peer learns otherwise that the connection has ended.
    pub(crate) fn enter_error(&self, host: &dyn Host, qpn: Qpn) {
        let mut driver = self.driver();
        driver.enter_error(qpn);
        self.send_posted(driver, (host, Regions::of(host)));
    }

    /// Posts a request and sends it.
    ///
    /// # Errors
    /// The status with which the request completes at once; the connection has not changed.
    pub(crate) fn post_and_doorbell(
        &self,
        host: &dyn Host,
        qpn: Qpn,
        request: (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let mut driver = self.driver();
        let regions = Regions::of(host);
        driver.post(&regions, qpn, request)?;
        self.send_posted(driver, (host, regions));
        Ok(())
    }

    /// Posts a request, which [`Udp::doorbell`] sends.
    ///
    /// # Errors
    /// The status with which the request completes at once; the connection has not changed.
    pub(crate) fn post(
        &self,
        host: &dyn Host,
        qpn: Qpn,
        request: (u64, &SendRequest<'_>),
    ) -> Result<(), WcStatus> {
        let mut driver = self.driver();
        driver.post(&Regions::of(host), qpn, request)
    }

    /// Whether a send request of a connected queue pair is not complete.
    pub(crate) fn has_unfinished_sends(&self, qpn: Qpn) -> bool {
        self.driver().has_unfinished_sends(qpn)
    }

    /// Whether a connected queue pair is in SQD and not drained.
    pub(crate) fn is_draining(&self, qpn: Qpn) -> bool {
        self.driver().is_draining(qpn)
    }

    /// Posts a datagram, which [`Udp::doorbell`] sends. Returns the request's status, or `None` if the socket
    /// takes no more packets now.
    pub(crate) fn send_datagram(
        &self,
        host: &dyn Host,
        qp: &dyn Endpoint,
        request: &SendRequest<'_>,
    ) -> Option<WcStatus> {
        let mut driver = self.driver();
        driver.send_datagram(&Regions::of(host), qp, request)
    }

    // --- queue pair 1

    /// Opens queue pair 1. `None` if it is open.
    pub(crate) fn open_mailbox(&self) -> Option<Arc<Mailbox>> {
        let mut driver = self.driver();
        if driver.mailbox.is_some() {
            return None;
        }
        let mailbox = Arc::new(Mailbox::default());
        driver.mailbox = Some(mailbox.clone());
        Some(mailbox)
    }

    /// Closes queue pair 1.
    pub(crate) fn close_mailbox(&self) {
        self.driver().mailbox = None;
    }

    /// Sends a management datagram, on behalf of `sender` if it is forwarded.
    pub(crate) fn send_mad(
        &self,
        host: &dyn Host,
        to: SocketAddr,
        (mad, sender): (&[u8; mad::LEN], Option<SocketAddr>),
    ) {
        let mut driver = self.driver();
        driver.send_mad(to, mad, sender);
        self.send_posted(driver, (host, Regions::of(host)));
    }

    /// Whether this process receives at UDP port 4791 of its address.
    pub(crate) fn has_standard_port(&self) -> bool {
        self.own.port() == ROCE_PORT || self.standard.get().is_some()
    }

    /// Takes over UDP port 4791 of this address.
    ///
    /// # Errors
    /// Another process has it.
    pub(crate) fn take_standard_port(&self, host: &dyn Host) -> io::Result<()> {
        let at = SocketAddr::new(self.own.ip(), ROCE_PORT);
        let bind = move || RoceSocket::bind(at);
        let mut socket = host.tasks().run(host.wake(), bind)?;
        socket.capture_to(self.socket.capture().cloned());
        // Another thread may have been faster.
        let _ = self.standard.set(socket);
        host.wake().wake(); // the engine has to watch the socket
        Ok(())
    }

    /// Receives the packets that are waiting at UDP port 4791, if this process has taken it over.
    pub(crate) fn receive_at_standard_port(&self, host: &dyn Host) {
        if let Some(socket) = self.standard.get() {
            let mut driver = self.driver();
            driver.receive_from(host, socket);
            driver.turn(host, &self.socket, Caller::Other);
        }
    }

    /// Returns the descriptor that is readable while packets are waiting there.
    pub(crate) fn standard_arrivals(&self) -> Option<PollFd<'_>> {
        let socket = self.standard.get()?;
        Some(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
    }

    // --- driving

    /// Sends what was posted. This is not a turn: it receives nothing and looks at no timers, so that for a
    /// program that only posts, the engine does.
    pub(crate) fn doorbell(&self, host: &dyn Host) {
        self.send_posted(self.driver(), (host, Regions::of(host)));
    }

    fn send_posted(
        &self,
        mut driver: MutexGuard<'_, Driver>,
        (host, regions): (&dyn Host, Regions<'_>),
    ) {
        let now = driver.now();
        driver.transmit(now, &regions, Caller::Poster);
        drop(regions);
        driver.end_failed();
        self.leave_to_engine(&driver, host);
    }

    /// Wakes the engine if it would look too late: if nobody polls, it has to look at the timers of the packets
    /// just sent and to send delayed ACKs.
    #[inline]
    fn leave_to_engine(&self, driver: &Driver, host: &dyn Host) {
        let engine_until = self.engine_until.load(Ordering::Relaxed);
        let is_late = match driver.left() {
            Left::Until(deadline) => deadline.is_some_and(|d| d.as_ps() < engine_until),
            Left::More | Left::Blocked => engine_until != 0,
        };
        if is_late {
            self.engine_until.store(0, Ordering::Relaxed);
            host.wake().wake();
        }
    }

    /// Takes a turn. `None` if another thread is taking one.
    #[inline]
    pub(crate) fn drive(&self, host: &dyn Host) -> Option<Progress> {
        self.count_turn(false);
        // The engine does not serve the socket while a thread sleeps on it.
        let by = match self.sleepers.load(Ordering::SeqCst) {
            0 => Caller::Poller,
            _ => Caller::Other,
        };
        self.try_turn(host, by)
    }

    /// A poll has found something.
    #[inline]
    pub(crate) fn found(&self) {
        self.count_turn(true);
    }

    #[inline]
    fn count_turn(&self, has_found: bool) {
        // A racy increment: losing one update is harmless.
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns.wrapping_add(1), Ordering::Relaxed);
        self.has_found.store(has_found, Ordering::Relaxed);
    }

    /// Announces that the calling thread is about to sleep elsewhere than on the socket. Returns whether the engine has to
    /// be woken, because it leaves the port to other threads: either this thread sees it at the socket, or the engine sees
    /// the announcement before it leaves the port.
    pub(crate) fn announce_sleep(&self) -> bool {
        self.is_sleep_announced.store(true, Ordering::SeqCst);
        !self.has_engine.load(Ordering::SeqCst)
    }

    /// Whether a thread has announced a sleep since the last call.
    pub(crate) fn take_announced_sleep(&self) -> bool {
        self.is_sleep_announced.swap(false, Ordering::SeqCst)
    }

    /// Notes whether the engine sleeps on the socket.
    pub(crate) fn note_engine(&self, is_there: bool) {
        self.has_engine.store(is_there, Ordering::SeqCst);
    }

    /// Whether the last poll found something.
    pub(crate) fn has_found(&self) -> bool {
        self.has_found.load(Ordering::Relaxed)
    }

    /// Takes a turn on the engine's thread. `None` if another thread is taking one.
    pub(crate) fn turn(&self, host: &dyn Host) -> Option<Progress> {
        self.try_turn(host, Caller::Other)
    }

    #[inline]
    fn try_turn(&self, host: &dyn Host, by: Caller) -> Option<Progress> {
        let mut driver = match self.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(driver)) => driver.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let turn = driver.turn(host, &self.socket, by);
        if (turn, by) == (Progress::Made, Caller::Poller) {
            self.leave_to_engine(&driver, host);
        }
        Some(turn)
    }

    /// Returns how the other threads drive the port.
    pub(crate) fn driving(&self) -> Driving {
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            Driving::Constant
        } else {
            Driving::Turns(self.turns.load(Ordering::Relaxed))
        }
    }

    /// Announces that the calling thread sleeps on the socket and takes turns until it drops the guard.
    pub(crate) fn wait(&self) -> SocketSleeper<'_> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        SocketSleeper { udp: self }
    }

    /// Returns how long the thread that takes the next turn may sleep on the socket. `None`: indefinitely.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Self::timeout_of(&self.driver())
    }

    fn timeout_of(driver: &Driver) -> Option<Duration> {
        match driver.left() {
            Left::Blocked => Some(Duration::from_millis(1)),
            Left::More => Some(Duration::ZERO),
            Left::Until(deadline) => {
                let now = driver.now();
                // Rounded up: a sleep that ended before the deadline would be repeated.
                let left = |deadline: Time| Duration::from(deadline.since(now));
                deadline.map(|deadline| left(deadline) + Duration::from_micros(1))
            }
        }
    }

    /// The same for the engine, which [`Udp::doorbell`] wakes if a timer is due earlier.
    pub(crate) fn engine_timeout(&self) -> Option<Duration> {
        let driver = self.driver();
        let timeout = Self::timeout_of(&driver);
        let until = match driver.left() {
            Left::Until(deadline) => deadline.map_or(u64::MAX, Time::as_ps),
            Left::More | Left::Blocked => 0,
        };
        self.engine_until.store(until, Ordering::Relaxed);
        timeout
    }

    /// Records that the engine leaves the port to other threads and looks again after `tick`. Until then it need not be
    /// woken for timers, but for packets that a link holds back: returns how long it may sleep.
    pub(crate) fn engine_ticks(&self, tick: Duration) -> Duration {
        self.engine_until.store(0, Ordering::Relaxed);
        if !self.has_link() {
            return tick;
        }
        let Ok(mut driver) = self.driver.try_lock() else {
            return tick.min(GRACE);
        };
        driver.release();
        let now = driver.now();
        let left = |at: Time| Duration::from(at.since(now)) + GRACE;
        let sleep = driver.next_release().map_or(tick, left).min(tick);
        let until = now + Span::from(sleep);
        self.engine_until.store(until.as_ps(), Ordering::Relaxed);
        sleep
    }

    /// Whether sent packets pass a link with a delay or a rate.
    pub(crate) fn has_link(&self) -> bool {
        matches!(self.peers, UdpPeers::All(how) if how.delays())
    }

    /// Waits until the packets that a link holds back are sent: they have left the host before the process ends.
    pub(crate) fn drain(&self) {
        let began = Instant::now();
        while self.has_link() && began.elapsed() < LONGEST_DRAIN {
            let left = self.driver.try_lock().map(|mut driver| {
                driver.release();
                let left = |at: Time| at.since(driver.now()).into();
                driver.next_release().map(left)
            });
            match left {
                Ok(None) => return,
                Ok(Some(left)) => std::thread::sleep(GRACE.min(left)),
                Err(_) => std::thread::sleep(GRACE),
            }
        }
    }

    /// Returns the descriptors to wait for: one of them is readable while packets are waiting.
    pub(crate) fn arrivals(&self) -> [PollFd<'_>; 2] {
        let (socket, groups) = (self.socket.as_fd(), self.groups.as_fd());
        [socket, groups].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.driver().counters()
    }

    /// Injects the faults that a closure chooses into all further received datagrams.
    #[cfg(feature = "testing")]
    pub(crate) fn inject(&self, rule: impl FnMut(&[u8]) -> Option<Fault> + Send + 'static) {
        let injector = adverb_impair::FaultInjector::by_rule(Box::new(rule));
        self.driver().receive_faults = Some(injector);
    }
}

/// How threads other than the engine drive the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driving {
    /// They have taken this number of turns.
    Turns(u64),
    /// A thread sleeps on the socket.
    Constant,
}

/// Announces a thread that sleeps on the socket.
#[derive(Debug)]
pub(crate) struct SocketSleeper<'a> {
    udp: &'a Udp,
}

impl Drop for SocketSleeper<'_> {
    fn drop(&mut self) {
        self.udp.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
