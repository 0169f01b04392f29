//! The engine: one thread per context, which only does work that no other thread does.
//!
//! It wakes up when a peer dies (pidfd); every 20 ms while there are peers, because no descriptor reports that one has
//! called `execve`; when a peer reports a fault, could not raise an event, or posts a receive for which a request waits
//! (FIFO); every millisecond while requests wait for a peer and no thread polls; and when packets arrive that no thread
//! receives. It runs tasks in the device's network namespace ([`crate::shm::tasks`]). It does
//! not compete with a polling thread: if a thread has driven the port since the last tick, the engine sleeps
//! again and ignores the socket.
//!
//! A program may wait for a message in memory, and poll only for its own completions (`ib_write_lat`). If the last poll found
//! something and no other follows soon, the engine stays at the socket for some time, although threads drive the port.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_current_timer_slack;

use crate::pages::threads::{self, OwnThread};
use crate::port::{Port, SenderWatch};
use crate::shm::datagram_ring::Holder;
use crate::shm::layout::MAX_SLOTS;
use crate::shm::life::Mark;
use crate::shm::peer::{Peer, PeerWatch};
use crate::udp::{Driving, Udp};

/// Interval at which the engine drives waiting requests.
const TICK: Timespec = ticks(1);
/// Interval at which it checks whether other threads still poll the UDP port. Each look takes the polling
/// thread off its core, if they share one: on an emulated processor a tenth of its time if the engine looked
/// each tick.
const POLLED_TICK: Timespec = ticks(4);
/// When it looks again whether a thread polls whose last poll found something.
const SOON: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};
/// For how long it then stays at the socket if none has polled.
const STAY: Duration = Duration::from_millis(1);
/// Looks in a row that end this early by finding that the last poll found nothing: its thread polls on.
const PATIENCE: u32 = 8;
/// Interval at which it checks the UDP port while a thread sleeps on the port's socket.
const LONG_TICK: Timespec = ticks(10);
/// Interval at which it checks armed limits of shared receive queues.
const LIMIT_TICK: Timespec = ticks(4);
/// Interval at which it looks for peers whose end no descriptor reports.
const PEERS_TICK: Timespec = ticks(20);
/// Number of ticks without waiting requests after which the engine sleeps until it is woken.
const IDLE_TICKS: u32 = 16;

/// Returns `count` milliseconds.
const fn ticks(count: u32) -> Timespec {
    Timespec {
        tv_sec: 0,
        tv_nsec: count as i64 * 1_000_000,
    }
}

/// The running thread. Dropping it ends and joins the thread.
#[derive(Debug)]
pub(crate) struct Engine {
    port: Arc<Port>,
    thread: Option<JoinHandle<()>>,
    /// Its thread ID.
    id: i32,
}

impl Engine {
    pub(crate) fn start(port: Arc<Port>) -> io::Result<Self> {
        let driven = port.clone();
        let (marked, is_marked) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("adverb-engine".into())
            .spawn(move || {
                let (_own, id) = OwnThread::begin();
                let _mark = Mark::new(driven.engine_word());
                let _ = marked.send(id);
                Loop {
                    port: driven.clone(),
                    senders: HashMap::new(),
                    idle_ticks: 0,
                    drives_seen: 0,
                    driving: Driving::Turns(0),
                    is_second_look: false,
                    stay: None,
                }
                .run();
                driven.mark_left();
            })?;
        // Otherwise peers would not notice if the process ran another program now.
        let id = is_marked.recv().unwrap_or_default();
        Ok(Engine {
            id,
            port,
            thread: Some(thread),
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.port.is_inherited() {
            // The thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        self.port.closing.store(true, Ordering::Release);
        self.port.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
            threads::forget(self.id);
        }
    }
}

/// The events that ended a sleep; none at a tick.
#[derive(Default)]
struct Woken<'a> {
    by_fifo: bool,
    ended: Vec<&'a Arc<Peer>>,
}

struct Loop {
    port: Arc<Port>,
    /// Epochs of processes that send datagrams to this port, by slot. Each is watched or dead.
    senders: HashMap<u32, u64>,
    idle_ticks: u32,
    drives_seen: u64,
    /// How the UDP port was driven at this thread's last look.
    driving: Driving,
    /// Whether this look is the second one within [`SOON`].
    is_second_look: bool,
    stay: Option<Stay>,
}

/// A stay at the socket although other threads drive the port.
#[derive(Clone, Copy, Debug)]
struct Stay {
    until: Instant,
    /// Further looks in a row that end it.
    patience: u32,
}

impl Stay {
    fn begin() -> Self {
        Stay {
            until: Instant::now() + STAY,
            patience: PATIENCE,
        }
    }

    /// Returns the rest after a look.
    fn after(self, has_found: bool) -> Option<Self> {
        let patience = if has_found {
            PATIENCE
        } else {
            self.patience - 1
        };
        let lasts = patience > 0 && Instant::now() < self.until;
        lasts.then_some(Stay { patience, ..self })
    }
}

/// What the engine does about the UDP port during a sleep.
#[derive(Clone, Copy, Debug)]
enum Watch {
    /// Nothing: there is none.
    Nothing,
    /// Other threads drive it: look again after this time.
    Others(Timespec),
    /// No other thread drives it: sleep on its socket, at most for this time.
    Alone(Option<Timespec>),
}

impl Watch {
    /// Leaves the port to other threads, and looks again after `tick`.
    fn leave(udp: &Udp, tick: Timespec) -> Self {
        let tick = Duration::new(tick.tv_sec as u64, tick.tv_nsec as u32);
        let sleep = Timespec::try_from(udp.engine_ticks(tick));
        Watch::Others(sleep.expect("at most some ms"))
    }
}

impl Loop {
    fn run(mut self) {
        if self.port.udp.as_ref().is_some_and(Udp::has_link) {
            // The kernel may end a sleep late by 50 µs otherwise.
            let _ = set_current_timer_slack(NonZeroU64::new(1));
        }
        while !self.port.closing.load(Ordering::Acquire) {
            let peers = self.port.peers();
            let watch = self.drive_udp();
            let limits = self.port.report_limits().then_some(LIMIT_TICK);
            let Woken { by_fifo, ended } = self.sleep(&peers, watch, limits);
            let has_ended = !ended.is_empty();
            ended.into_iter().for_each(|peer| self.handle_death(peer));
            if by_fifo {
                self.port.wake.drain();
            }
            if by_fifo || has_ended {
                self.watch_senders();
                self.port.carry_out_owner_requests();
            }
            if by_fifo {
                self.port.tasks.run_all();
                self.take_reports();
                self.port.drive();
            } else {
                self.tick();
            }
        }
    }

    /// Drives the UDP port if no other thread has driven it since this thread's last look.
    fn drive_udp(&mut self) -> Watch {
        let Some(udp) = self.port.udp.as_ref() else {
            return Watch::Nothing;
        };
        udp.receive_at_standard_port(&*self.port);
        let driving = udp.driving();
        if driving == Driving::Constant {
            // The sleeping thread does not know of timers that were started later, such as for a request that
            // another thread posted without polling.
            udp.turn(&*self.port);
            self.driving = driving;
            return Watch::leave(udp, LONG_TICK);
        }
        let was_second_look = std::mem::take(&mut self.is_second_look);
        if udp.take_announced_sleep() {
            self.stay = Some(Stay::begin());
        }
        if driving != self.driving {
            self.driving = driving;
            let has_found = udp.has_found();
            self.stay = self.stay.and_then(|stay| stay.after(has_found));
            if self.stay.is_none() {
                self.is_second_look = has_found && !was_second_look;
                let tick = if self.is_second_look {
                    SOON
                } else {
                    POLLED_TICK
                };
                return Watch::leave(udp, tick);
            }
        } else if was_second_look {
            self.stay = Some(Stay::begin());
        }
        if udp.turn(&*self.port).is_none() && self.stay.is_none() {
            // Another thread has been driving it for longer than a tick.
            return Watch::leave(udp, TICK);
        }
        let timeout = udp.engine_timeout();
        Watch::Alone(timeout.and_then(|timeout| Timespec::try_from(timeout).ok()))
    }

    /// Sleeps until the engine is woken, a peer dies, packets arrive that no other thread receives, or a tick
    /// has passed; at most for `limit`.
    fn sleep<'a>(
        &self,
        peers: &'a [Arc<Peer>],
        watch: Watch,
        limit: Option<Timespec>,
    ) -> Woken<'a> {
        let mut fds = vec![PollFd::new(&self.port.wake.fifo, PollFlags::IN)];
        fds.extend(peers.iter().map(|peer| match &peer.watch {
            PeerWatch::Pidfd(pidfd) => PollFd::new(pidfd, PollFlags::IN),
            PeerWatch::Lock(file) => PollFd::new(file, PollFlags::empty()),
        }));
        let udp = self.port.udp.as_ref();
        fds.extend(udp.and_then(Udp::standard_arrivals));
        let watching = self.port.wake.watching.load(Ordering::Relaxed);
        let has_peers = peers.iter().any(|peer| peer.is_other_process);
        let limit = limit
            .into_iter()
            .chain(has_peers.then_some(PEERS_TICK))
            .min();
        let tick = watching.then_some(TICK).or(limit);
        let timeout = match (watch, udp) {
            (Watch::Others(span), _) => Some(tick.map_or(span, |tick| tick.min(span))),
            (Watch::Alone(span), Some(udp)) => {
                fds.extend(udp.arrivals());
                span.into_iter().chain(tick).min()
            }
            _ => tick,
        };
        let at_socket = udp.filter(|_| matches!(watch, Watch::Alone(_)));
        at_socket.inspect(|udp| udp.note_engine(true));
        let slept = threads::block(|| poll(&mut fds, timeout.as_ref()));
        at_socket.inspect(|udp| udp.note_engine(false));
        if slept.is_err() {
            return Woken::default();
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ended =
            (peers.iter().zip(&fds[1..])).filter(|(peer, fd)| is_ready(fd) || peer.is_gone());
        Woken {
            by_fifo: is_ready(&fds[0]),
            ended: ended.map(|(peer, _)| peer).collect(),
        }
    }

    fn tick(&mut self) {
        if !self.port.has_pending() {
            self.idle_ticks += 1;
            if self.idle_ticks > IDLE_TICKS {
                self.port.wake.watching.store(false, Ordering::SeqCst);
                // A request that began to wait just before has still seen `watching` set, and did not wake the
                // engine.
                if self.port.has_pending() {
                    self.port.wake.watch();
                }
            }
            return;
        }
        self.idle_ticks = 0;
        let drives = self.port.drives.load(Ordering::Relaxed);
        if drives == self.drives_seen {
            self.port.prepare_to_sleep();
        }
        self.drives_seen = self.port.drives.load(Ordering::Relaxed);
    }

    /// Watches for the death of processes that have begun to send datagrams to this port.
    fn watch_senders(&mut self) {
        let own = self.port.slot;
        for slot in (0..MAX_SLOTS).filter(|slot| *slot != own) {
            let Some(epoch) = self.port.sender(slot) else {
                continue;
            };
            if self.senders.get(&slot) == Some(&epoch) {
                continue;
            }
            let holder = Holder::new(slot, epoch);
            match self.port.watch_sender(slot, epoch) {
                SenderWatch::NotYet => continue,
                SenderWatch::Dead => {
                    self.port.reclaim_datagrams(|h| h == holder);
                    self.port.dir.reap();
                }
                SenderWatch::Begun => {}
            }
            // Earlier owners of the slot are dead, since it has a new one.
            if self.senders.insert(slot, epoch).is_some() {
                (self.port).reclaim_datagrams(|h| h.is_of(slot) && h != holder);
            }
        }
    }

    /// Takes what peers reported of their connections.
    fn take_reports(&self) {
        let qps = self.port.queue_pairs();
        qps.iter().for_each(|qp| qp.take_reports());
    }

    /// Handles a peer's death: moves the queue pairs that are connected to it to the error state, reclaims the
    /// cells that it held, and removes its files.
    fn handle_death(&self, peer: &Arc<Peer>) {
        peer.mark_dead();
        let qps = self.port.queue_pairs();
        qps.iter()
            .filter(|qp| qp.is_connected_to(peer))
            .for_each(|qp| qp.fail_for_dead_peer());
        let holder = Holder::new(peer.slot, peer.epoch);
        self.port.reclaim_datagrams(|h| h == holder);
        self.port.forget_peer(peer);
        self.port.dir.reap();
    }
}
