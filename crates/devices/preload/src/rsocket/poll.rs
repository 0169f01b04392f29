//! `rpoll` and `rselect`: waiting for rsockets and ordinary descriptors.

use std::ffi::{c_int, c_short};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM,
    fd_set, nfds_t, pollfd, timeval,
};

use super::functions as c;
use super::sizes::polling_time;
use super::sleep::Sleeper;
use super::socket::{Phase, Socket, State};
use super::table;
use crate::call::{self, Refusal, SLICE};

const READABLE: c_short = POLLIN | POLLRDNORM;
const WRITABLE: c_short = POLLOUT | POLLWRNORM;

/// Returns the events of an rsocket, as poll(2) reports them of a TCP socket.
fn events(state: &State) -> c_short {
    let of_stream = || {
        let Some(stream) = &state.stream else {
            return POLLERR | POLLHUP;
        };
        let mut found = 0;
        if stream.has_data() || !stream.reads {
            found |= READABLE;
        }
        if !stream.reads {
            found |= POLLRDHUP;
        }
        if stream.can_send() || !stream.writes {
            found |= WRITABLE;
        }
        // Programs such as rstream take POLLHUP for an error, although data can still be read.
        if !stream.reads && !stream.writes && !stream.has_data() {
            found |= POLLHUP;
        }
        if stream.lost.is_some() {
            found |= POLLERR;
        }
        found
    };
    match state.phase {
        Phase::New | Phase::Bound => WRITABLE | POLLHUP,
        Phase::Listening => {
            let is_complete = |child: &Arc<Socket>| child.lock().phase != Phase::Connecting;
            match state.queue.iter().any(is_complete) {
                true => READABLE,
                false => 0,
            }
        }
        Phase::Connecting => 0,
        Phase::Connected => of_stream(),
        Phase::Failed => READABLE | WRITABLE | POLLERR | POLLHUP,
        Phase::Closed => POLLNVAL,
    }
}

/// The descriptors of a call.
struct Polled<'a> {
    fds: &'a mut [pollfd],
    /// The rsockets among them, with their position.
    sockets: Vec<(usize, Arc<Socket>)>,
    /// What the kernel is asked: the others, and behind them what the thread sleeps for.
    kernel: Vec<pollfd>,
    /// Positions of the others.
    others: Vec<usize>,
}

impl<'a> Polled<'a> {
    fn new(fds: &'a mut [pollfd]) -> Result<Self, Refusal> {
        let mut polled = Polled {
            sockets: Vec::new(),
            kernel: Vec::new(),
            others: Vec::new(),
            fds,
        };
        for (at, entry) in polled.fds.iter_mut().enumerate() {
            entry.revents = 0;
            match table::find(entry.fd) {
                Some(socket) => polled.sockets.push((at, socket)),
                None => {
                    polled.others.push(at);
                    polled.kernel.push(*entry);
                }
            }
        }
        if !polled.sockets.is_empty() {
            table::check_not_child()?;
        }
        Ok(polled)
    }

    /// Looks at the rsockets; returns how many have events.
    fn look(&mut self) -> usize {
        let mut count = 0;
        for (at, socket) in &self.sockets {
            let entry = &mut self.fds[*at];
            let wanted = entry.events | POLLERR | POLLHUP | POLLNVAL;
            let mut found = 0;
            socket.look(&mut |state| -> Option<()> {
                found = events(state);
                None
            });
            entry.revents = found & wanted;
            count += usize::from(entry.revents != 0);
        }
        count
    }

    /// Asks the kernel; returns how many of the other descriptors have events.
    fn ask(&mut self, timeout: c_int) -> Result<usize, Refusal> {
        if self.kernel.is_empty() {
            return Ok(0);
        }
        let count = self.kernel.len() as nfds_t;
        // SAFETY: the list has this number of descriptors.
        if unsafe { libc::poll(self.kernel.as_mut_ptr(), count, timeout) } < 0 {
            return Err(Refusal::expected(c::errno()));
        }
        let mut count = 0;
        for (at, entry) in self.others.iter().zip(&self.kernel) {
            self.fds[*at].revents = entry.revents;
            count += usize::from(entry.revents != 0);
        }
        Ok(count)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Result<usize, Refusal> {
        let began = Instant::now();
        loop {
            let ready = self.look() + self.ask(0)?;
            if ready > 0 || timeout.is_some_and(|timeout| timeout.is_zero()) {
                return Ok(ready);
            }
            if began.elapsed() >= polling_time() {
                break;
            }
            std::hint::spin_loop();
        }
        let sleeper = Sleeper::current()?;
        let sockets: Vec<_> = self.sockets.iter().map(|(_, s)| s.clone()).collect();
        sockets.iter().for_each(|s| s.sleepers.add(&sleeper));
        let ready = self.sleep(&sleeper, timeout.map(|timeout| began + timeout));
        sockets.iter().for_each(|s| s.sleepers.remove(&sleeper));
        ready
    }

    fn sleep(&mut self, sleeper: &Sleeper, until: Option<Instant>) -> Result<usize, Refusal> {
        loop {
            let asked = |fd| pollfd {
                fd,
                events: POLLIN,
                revents: 0,
            };
            self.kernel.truncate(self.others.len());
            self.kernel.push(asked(sleeper.fd()));
            let armed = self.sockets.iter().filter_map(|(_, socket)| socket.arm());
            self.kernel.extend(armed.map(asked));
            if self.look() > 0 {
                return Ok(self.look() + self.ask(0)?);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let ready = self.ask(milliseconds(left))? + self.look();
            if ready > 0 || left.is_some_and(|left| left.is_zero()) {
                return Ok(ready);
            }
            if self.kernel[self.others.len()].revents != 0 {
                sleeper.reset();
            }
        }
    }
}

/// Returns a timeout for the kernel, rounded up.
pub(super) fn milliseconds(timeout: Option<Duration>) -> c_int {
    timeout.map_or(-1, |timeout| {
        let rounded = timeout.as_nanos().div_ceil(1_000_000);
        rounded.try_into().unwrap_or(c_int::MAX)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let until = timeout.map(|timeout| Instant::now() + timeout);
    let look = || {
        let fds = match nfds {
            0 => &mut [][..],
            // SAFETY: the program passes an array of `nfds` descriptors.
            _ => unsafe { std::slice::from_raw_parts_mut(fds, nfds as usize) },
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        let ready = Polled::new(fds)?.poll(Some(slice))?;
        let is_over = ready > 0 || left.is_some_and(|left| left <= SLICE);
        Ok(is_over.then_some(ready as c_int))
    };
    // SAFETY: the closure has nothing to drop.
    unsafe { call::in_slices("rpoll", look) }
}

/// A set of `rselect`, with the events that put a descriptor into it.
struct Set {
    set: *mut fd_set,
    asked: c_short,
    reported: c_short,
}

impl Set {
    /// # Safety
    /// The set is NULL or valid.
    unsafe fn has(&self, fd: c_int) -> bool {
        // SAFETY: the caller's.
        !self.set.is_null() && unsafe { libc::FD_ISSET(fd, self.set) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    call::number("rselect", || {
        if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
            return Err(Refusal::invalid(format!(
                "invalid nfds {nfds}: expected 0 to {}",
                libc::FD_SETSIZE
            )));
        }
        // As poll(2) and select(2) of the kernel correspond.
        let sets = [
            (readfds, POLLIN, READABLE | POLLHUP | POLLERR),
            (writefds, POLLOUT, WRITABLE | POLLERR),
            (exceptfds, POLLPRI, POLLPRI),
        ];
        let sets = sets.map(|(set, asked, reported)| Set {
            set,
            asked,
            reported,
        });
        // SAFETY: the program passes NULL or valid sets, and NULL or a timeout.
        unsafe {
            let mut fds = Vec::new();
            for fd in 0..nfds {
                let of = sets.iter().filter(|set| set.has(fd));
                let events = of.fold(0, |events, set| events | set.asked);
                if events != 0 {
                    fds.push(pollfd {
                        fd,
                        events,
                        revents: 0,
                    });
                }
            }
            let timeout = timeout.as_ref().map(|timeout| {
                Duration::from_secs(timeout.tv_sec as u64)
                    + Duration::from_micros(timeout.tv_usec as u64)
            });
            Polled::new(&mut fds)?.poll(timeout)?;
            if fds.iter().any(|entry| entry.revents & POLLNVAL != 0) {
                return Err(Refusal::expected(libc::EBADF));
            }
            let mut count = 0;
            for entry in &fds {
                for set in sets.iter().filter(|set| set.has(entry.fd)) {
                    match entry.revents & set.reported {
                        0 => libc::FD_CLR(entry.fd, set.set),
                        _ => count += 1,
                    }
                }
            }
            Ok(count)
        }
    })
}
