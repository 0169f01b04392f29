//! The router: passes packets between the two interfaces of a path.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use adverb_impair::{FaultInjector, Route, Verdict};
use adverb_verbs::{Counters, Impairment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::path::Path;

/// Longest IP packet.
const LONGEST: usize = 1 << 16;
/// Packets that are read from one interface before the other and the held packets have their turn.
const BATCH: usize = 32;
/// Time before a packet is due at which the router stops sleeping: a sleeping thread wakes up later than it asked for.
const SPIN: Duration = Duration::from_micros(60);

/// How long the router pauses while an interface is down.
const DOWN: Duration = Duration::from_millis(1);

/// A packet's way over Ethernet: header 14, check sequence 4, preamble 8, gap 12.
#[derive(Clone, Copy, Debug)]
struct Frame;

impl Route for Frame {
    fn around(&self) -> usize {
        38
    }
}

/// What passed in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Packets that arrived at the router.
    pub arrived: u64,
    /// Packets that left it.
    pub left: u64,
    /// Packets that the receiving namespace refused.
    pub refused: u64,
    /// What happened to the others, by the names of counters.
    pub impaired: Counters,
}

struct Direction<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    faults: FaultInjector<Frame>,
    counts: DirectionCounts,
}

impl Direction<'_> {
    /// Reads the packets that have arrived, at most [`BATCH`], and passes on those that are not held back.
    fn forward(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let packet = match rustix::io::read(self.from, &mut *buffer) {
                Ok(length) => &buffer[..length],
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                // The interface is down, and the descriptor always ready.
                Err(Errno::IO) => {
                    std::thread::sleep(DOWN);
                    return Ok(());
                }
                Err(e) => return Err(e.into()),
            };
            self.counts.arrived += 1;
            if self.faults.judge(&Frame, || packet.to_vec()) == Verdict::Pass {
                pass(self.to, packet, &mut self.counts);
            }
            if self.faults.is_due() {
                self.release();
            }
        }
        Ok(())
    }

    fn release(&mut self) {
        let (to, counts) = (self.to, &mut self.counts);
        self.faults.release(|Frame, packet| {
            pass(to, packet, counts);
            true
        });
    }
}

fn pass(to: &OwnedFd, packet: &[u8], counts: &mut DirectionCounts) {
    match rustix::io::write(to, packet) {
        Ok(_) => counts.left += 1,
        Err(_) => counts.refused += 1,
    }
}

/// Returns what happens to the packets of a direction, with random choices of its own.
fn of_direction(how: Impairment, number: u64) -> Impairment {
    Impairment {
        seed: how.seed.wrapping_mul(2).wrapping_add(number),
        ..how
    }
}

/// Passes packets in both directions.
pub struct Router<'a> {
    directions: [Direction<'a>; 2],
    /// What happens to further packets, whenever it changes.
    changes: Option<Receiver<Impairment>>,
}

impl<'a> Router<'a> {
    /// Makes the router of a path, which treats the packets of both directions alike, with random choices of their own.
    pub fn new(path: &'a Path, how: Impairment) -> Self {
        let [near, far] = path.tuns();
        let direction = |from, to, number| Direction {
            from,
            to,
            faults: FaultInjector::random(of_direction(how, number)),
            counts: DirectionCounts::default(),
        };
        Router {
            directions: [direction(near, far, 0), direction(far, near, 1)],
            changes: None,
        }
    }

    /// Calls `work` while another thread passes packets; returns its result and what passed. What `work` sends happens
    /// to further packets.
    ///
    /// # Errors
    /// An interface cannot be read.
    pub fn during<T>(
        path: &Path,
        how: Impairment,
        work: impl FnOnce(&Sender<Impairment>) -> T,
    ) -> io::Result<(T, [DirectionCounts; 2])> {
        let (stop, guard) = std::io::pipe()?;
        let (sender, changes) = channel();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut router = Router::new(path, how);
                router.changes = Some(changes);
                router.run(&[stop.as_fd()])?;
                Ok(router.counts())
            });
            let result = work(&sender);
            drop(guard);
            let counts: io::Result<_> = thread.join().expect("the router does not panic");
            Ok((result, counts?))
        })
    }

    /// Passes packets until one of `stop` is readable; returns its index.
    ///
    /// # Errors
    /// An interface cannot be read.
    pub fn run(&mut self, stop: &[BorrowedFd<'_>]) -> io::Result<usize> {
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let mut buffer = vec![0; LONGEST];
        loop {
            let ends = self.directions.iter().map(|direction| direction.from);
            let mut fds: Vec<PollFd<'_>> = ends
                .map(|end| PollFd::new(end, PollFlags::IN))
                .chain(
                    stop.iter()
                        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)),
                )
                .collect();
            match poll(&mut fds, self.sleep().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let (ends, stops) = ready.split_at(self.directions.len());
            if let Some(stopped) = stops.iter().position(|ready| *ready) {
                return Ok(stopped);
            }
            self.change();
            for (direction, is_ready) in self.directions.iter_mut().zip(ends) {
                if *is_ready {
                    direction.forward(&mut buffer)?;
                }
                direction.release();
            }
        }
    }

    /// Changes what happens to packets if that was asked for.
    fn change(&mut self) {
        let changes = self.changes.as_ref();
        if let Some(how) = changes.and_then(|changes| changes.try_iter().last()) {
            for (direction, number) in self.directions.iter_mut().zip(0..) {
                direction.faults.change(of_direction(how, number));
            }
        }
    }

    /// Returns how long to wait for packets; `None` if none is held.
    fn sleep(&self) -> Option<Timespec> {
        let due = self
            .directions
            .iter()
            .filter_map(|d| d.faults.next_release());
        let left = due.min()?.saturating_duration_since(Instant::now());
        // The kernel lets `poll` return late by a thousandth of its timeout.
        let sleep = left.saturating_sub(SPIN + left / 512);
        Some(sleep.try_into().expect("at most some seconds"))
    }

    /// Returns what passed from near to far and from far to near.
    pub fn counts(&self) -> [DirectionCounts; 2] {
        self.directions.each_ref().map(|direction| DirectionCounts {
            impaired: direction.faults.counters(),
            ..direction.counts.clone()
        })
    }
}
