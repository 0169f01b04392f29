//! Completion channels: FIFOs to which completion events are written.
//!
//! A FIFO has a name, so a producer in another process can open it without a daemon that passes descriptors;
//! and it has a descriptor, which a program can `epoll`.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use adverb_units::Span;
use adverb_verbs::{CompletionChannel, CqId, CreateError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl};
use rustix::io::Errno;

use crate::port::{Port, remedy};
use crate::udp::Udp;

#[derive(Debug)]
pub(crate) struct ChannelInner {
    port: Arc<Port>,
    pub(crate) number: u32,
    fifo: File,
    /// Events in a row for which nobody slept here: the program sleeps elsewhere, in `poll`, before it takes an event.
    ready_in_row: AtomicU32,
}

/// A completion channel of the user-space NIC.
#[derive(Clone, Debug)]
pub struct SoftChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

impl SoftChannel {
    pub(crate) fn new(port: &Arc<Port>) -> Result<Self, CreateError> {
        let number = port.next_serial();
        let fifo = port
            .dir
            .create_fifo(port.slot, &format!("c{number}"))
            .or_else(|refusal| match port.check_user() {
                true => Err(refusal),
                // No peer writes to the channel, because none shares memory with this process.
                false => nameless_fifo().map_err(|_| refusal),
            })
            .map_err(|source| {
                let action = format!(
                    "create a completion channel in {}",
                    port.dir.path().display()
                );
                CreateError::System {
                    action,
                    remedy: remedy(&port.dir, &source),
                    source,
                }
            })?;
        Ok(SoftChannel {
            inner: Arc::new(ChannelInner {
                port: port.clone(),
                number,
                fifo,
                ready_in_row: AtomicU32::new(0),
            }),
        })
    }
}

fn nameless_fifo() -> io::Result<File> {
    let (end, _) = io::pipe()?;
    reopen(end.as_fd())
}

/// Opens a FIFO again, for reading and writing, with flags of its own.
fn reopen(fifo: BorrowedFd<'_>) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", fifo.as_raw_fd());
    let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, how, Mode::empty())?.into())
}

/// How long a blocking read of events waits before it looks again.
const LONG: Duration = Duration::from_secs(3600);
/// [`ChannelInner::ready_in_row`] of a program that waits in a loop of its own. A program that takes events while many
/// packets arrive may also find several in a row.
const READY_IN_ROW: u32 = 16;

impl SoftChannel {
    /// Opens a descriptor for the program, which is readable while there are events, and blocks unless the program
    /// sets `O_NONBLOCK`.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn open_events(&self) -> io::Result<OwnedFd> {
        let ChannelInner { port, number, .. } = &*self.inner;
        let named = port.dir.open_fifo(port.slot, &format!("c{number}"));
        let fifo = named.or_else(|_| reopen(self.as_fd()))?;
        rustix::fs::fcntl_setfl(&fifo, OFlags::empty())?;
        Ok(fifo.into())
    }

    /// A queue was armed whose event a program waits for in a loop of its own, if it has set `O_NONBLOCK` on `events`, or has
    /// found the last events ready: until then nobody drives the UDP port but the engine.
    pub fn note_armed(&self, events: BorrowedFd<'_>) {
        let port = &self.inner.port;
        if let Some(udp) = port.udp.as_ref().filter(|udp| udp.is_used())
            && (self.inner.ready_in_row.load(Ordering::Relaxed) >= READY_IN_ROW
                || fcntl_getfl(events).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK)))
            && udp.announce_sleep()
        {
            port.wake.wake();
        }
    }

    /// Takes the oldest event as a read of `events` would, a descriptor from [`SoftChannel::open_events`].
    ///
    /// # Errors
    /// `WouldBlock` if there is no event and the program has set `O_NONBLOCK`; `Interrupted` if a signal arrived.
    pub fn read_event(&self, events: BorrowedFd<'_>) -> io::Result<CqId> {
        while let Some(waited) = self.wait_at_port(events, LONG)? {
            if let Some(event) = waited {
                return Ok(event);
            }
        }
        let mut event = [0; 4];
        // Events are written and read whole, because a pipe does not divide a write of this size.
        rustix::io::read(events, &mut event)?;
        Ok(CqId(u32::from_ne_bytes(event)))
    }

    /// Prepares a read of `events`. Returns `None` if the caller may read; otherwise it has waited at the UDP port, for at most
    /// `limit`, and returns the event, if there was one.
    ///
    /// # Errors
    /// As for [`SoftChannel::read_event`].
    pub fn wait_at_port(
        &self,
        events: BorrowedFd<'_>,
        limit: Duration,
    ) -> io::Result<Option<Option<CqId>>> {
        let port = &self.inner.port;
        port.prepare_to_sleep();
        match port.udp.as_ref().filter(|udp| udp.is_used()) {
            Some(udp) if !fcntl_getfl(events)?.contains(OFlags::NONBLOCK) => {
                self.inner.wait_at(udp, Instant::now() + limit).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Removes the events of a completion queue that is being destroyed.
    pub fn discard_events(&self, of: CqId) {
        let mut others = Vec::new();
        while let Ok(Some(event)) = self.inner.take() {
            if event != of {
                others.push(event);
            }
        }
        others.into_iter().for_each(|event| self.inner.raise(event));
    }
}

impl ChannelInner {
    /// Writes an event of a completion that this process produced.
    pub(crate) fn raise(&self, cq: CqId) {
        // A FIFO holds 16384 events. If it is full, the channel is readable anyway.
        // A thread cannot be cancelled in it, unlike in the C library's write.
        let _ = rustix::io::write(&self.fifo, &cq.0.to_ne_bytes());
    }

    pub(crate) fn belongs_to(&self, port: &Arc<Port>) -> bool {
        Arc::ptr_eq(&self.port, port)
    }

    fn take(&self) -> io::Result<Option<CqId>> {
        let mut event = [0; 4];
        match (&self.fifo).read_exact(&mut event) {
            Ok(()) => Ok(Some(CqId(u32::from_ne_bytes(event)))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl ChannelInner {
    /// Waits for an event, and receives packets while it waits, so that the engine need not wake up for them first.
    ///
    /// # Errors
    /// The kernel's; `Interrupted` if a signal arrived, which programs use to end a wait, unless all handlers of signals
    /// have `SA_RESTART`.
    fn wait_at(&self, udp: &Udp, deadline: Instant) -> io::Result<Option<CqId>> {
        let _waiting = udp.wait();
        loop {
            udp.drive(&*self.port);
            if let Some(event) = self.take()? {
                self.ready_in_row.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(event));
            }
            self.ready_in_row.store(0, Ordering::Relaxed);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let left = udp.timeout().map_or(left, |timeout| timeout.min(left));
            let timeout = Timespec::try_from(left).ok();
            let [socket, groups] = udp.arrivals();
            let mut fds = [PollFd::new(&self.fifo, PollFlags::IN), socket, groups];
            match poll(&mut fds, timeout.as_ref()) {
                // Unlike the `read` that programs expect here, `poll` does not restart by itself.
                Err(Errno::INTR) if crate::signals::all_handlers_restart() => {}
                polled => drop(polled?),
            }
        }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        if self.port.is_inherited() {
            return;
        }
        let name = format!("c{}", self.number);
        self.port.dir.remove(self.port.slot, &name);
    }
}

impl AsFd for SoftChannel {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fifo.as_fd()
    }
}

impl CompletionChannel for SoftChannel {
    fn get_event(&self, timeout: Span) -> io::Result<Option<CqId>> {
        let port = &self.inner.port;
        port.prepare_to_sleep();
        let deadline = Instant::now() + timeout.into();
        if let Some(udp) = port.udp.as_ref().filter(|udp| udp.is_used()) {
            loop {
                match self.inner.wait_at(udp, deadline) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    waited => return waited,
                }
            }
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(&self.inner.fifo, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if let Some(event) = self.inner.take()? {
                return Ok(Some(event));
            }
        }
    }
}
