//! The station of a real device.

use std::os::unix::net::UnixStream;

use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    CompletionChannel, CompletionQueue, Context, CqId, MemoryRegion, OutOfBandError, RoleId,
    Station, WaitError, WorkCompletion,
};

use crate::link::{Link, Stream};
use crate::{clock, usable_cores};

/// Polls between two looks at the clock. The first so many come without a pause: a message that is
/// under way arrives within them; who waits longer gives the core's other thread room.
const POLLS_PER_LOOK: u32 = 1024;

/// Where a role runs on this machine: a device, the machine's clock, this process' CPU account and
/// the links to the other roles.
pub struct HostStation<C: Context, T: Stream = UnixStream> {
    context: C,
    links: Vec<(RoleId, Link<T>)>,
    clock_cost: Span,
    shares_core: bool,
}

impl<C: Context, T: Stream> HostStation<C, T> {
    /// A station with links to these roles. It measures its clock, which takes some ten
    /// microseconds.
    pub fn new(context: C, links: impl IntoIterator<Item = (RoleId, Link<T>)>) -> Self {
        HostStation {
            context,
            links: links.into_iter().collect(),
            clock_cost: clock::measure_cost(),
            shares_core: false,
        }
    }

    /// Says whether another role runs on the same core: if so, each unsuccessful poll gives the core
    /// away, because what is waited for cannot come before the other role has run.
    ///
    /// A process that is pinned sees one usable core in either case, so who starts the roles says it.
    #[must_use]
    pub fn sharing_core(self, shares_core: bool) -> Self {
        HostStation {
            shares_core,
            ..self
        }
    }

    /// Says that roles share a core if this process may use only one; right for roles that are not
    /// pinned.
    #[must_use]
    pub fn sharing_core_if_only_one(self) -> Self {
        let only_one = usable_cores().len() == 1;
        self.sharing_core(only_one)
    }

    /// Calls `poll` until it gives something.
    #[inline]
    fn poll_until<R>(
        &self,
        what: &'static str,
        patience: Span,
        mut poll: impl FnMut() -> Result<Option<R>, WaitError>,
    ) -> Result<R, WaitError> {
        if !self.shares_core {
            for _ in 0..POLLS_PER_LOOK {
                if let Some(found) = poll()? {
                    return Ok(found);
                }
            }
        }
        self.keep_polling(what, patience, &mut poll)
    }

    #[cold]
    #[inline(never)]
    fn keep_polling<R>(
        &self,
        what: &'static str,
        patience: Span,
        poll: &mut impl FnMut() -> Result<Option<R>, WaitError>,
    ) -> Result<R, WaitError> {
        let start = clock::now();
        loop {
            for _ in 0..POLLS_PER_LOOK {
                if let Some(found) = poll()? {
                    return Ok(found);
                }
                if self.shares_core {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            if clock::now() - start >= patience {
                return Err(WaitError::TimedOut { what, patience });
            }
        }
    }

    fn link(&self, role: RoleId) -> Result<&Link<T>, OutOfBandError> {
        let link = self.links.iter().find(|(to, _)| *to == role);
        link.map(|(_, link)| link)
            .ok_or(OutOfBandError::NoSuchRole(role))
    }
}

impl<C: Context, T: Stream> Station for HostStation<C, T> {
    type Context = C;

    #[inline]
    fn context(&self) -> &C {
        &self.context
    }

    #[inline]
    fn now(&self) -> Time {
        clock::now()
    }

    #[inline]
    fn clock_cost(&self) -> Span {
        self.clock_cost
    }

    fn cpu(&self) -> CpuTime {
        clock::process_cpu()
    }

    #[inline]
    fn spin(
        &self,
        cq: &C::Cq,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, WaitError> {
        self.poll_until("completion", patience, || {
            Ok(match cq.poll(into)? {
                0 => None,
                n => Some(n),
            })
        })
    }

    #[inline]
    fn spin_memory(
        &self,
        mr: &C::Mr,
        offset: u64,
        value: u8,
        patience: Span,
    ) -> Result<(), WaitError> {
        self.poll_until("change of polled memory", patience, || {
            Ok((mr.load(offset)? == value).then_some(()))
        })
    }

    fn wait_event(&self, channel: &C::Channel, patience: Span) -> Result<CqId, WaitError> {
        let event = channel.get_event(patience).map_err(WaitError::Channel)?;
        event.ok_or(WaitError::TimedOut {
            what: "completion event",
            patience,
        })
    }

    fn sleep(&self, span: Span) {
        std::thread::sleep(span.into());
    }

    fn compute(&self, span: Span) {
        let start = clock::now();
        while clock::now() - start < span {
            std::hint::spin_loop();
        }
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        self.link(to)?.send(to, message)
    }

    fn receive(&self, from: RoleId, patience: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.link(from)?.receive(from, patience)
    }
}
