//! The station of a real device.

use std::os::unix::net::UnixStream;

use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    CompletionChannel, CompletionQueue, Context, CqId, MemoryAccessError, MemoryRegion,
    OutOfBandError, RoleId, Station, WaitError, WorkCompletion,
};

use crate::clock;
use crate::link::{Link, Stream};

/// Polls between two looks at the clock. The first so many come without a pause: a message that is
/// under way arrives within them; who waits longer gives the core's other thread room.
const POLLS_PER_LOOK: u32 = 1024;
/// The same of a role that gives its core away between them, on a busy machine for milliseconds each time.
const YIELDS_PER_LOOK: u32 = 16;

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
        let polls = match self.shares_core {
            true => YIELDS_PER_LOOK,
            false => POLLS_PER_LOOK,
        };
        let start = clock::now();
        loop {
            for _ in 0..polls {
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

    #[inline]
    fn spin_on<R>(
        &self,
        _mr: &C::Mr,
        patience: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.poll_until("change of polled memory", patience, || Ok(look()?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_softnic::{SoftContext, SoftDevice};
    use adverb_units::Bytes;
    use adverb_verbs::{AccessFlags, Device};

    const OTHER: RoleId = RoleId(1);
    const SOON: Span = Span::from_ms(20);

    fn station() -> (HostStation<SoftContext>, Link) {
        let (here, there) = Link::pair().unwrap();
        let context = SoftDevice::new().open().unwrap();
        (HostStation::new(context, [(OTHER, here)]), there)
    }

    #[test]
    fn waits_end_when_patience_does() {
        for shares_core in [false, true] {
            let station = station().0.sharing_core(shares_core);
            let channel = station.context().create_channel().unwrap();
            let cq = station.context().create_cq(4, Some(&channel)).unwrap();
            let pd = station.context().alloc_pd().unwrap();
            let access = AccessFlags::LOCAL_WRITE;
            let mr = station
                .context()
                .alloc_mr(&pd, Bytes::new(8), access)
                .unwrap();
            let start = station.now();
            let mut wc = [WorkCompletion::default()];
            for (error, what) in [
                (
                    station.spin(&cq, &mut wc, SOON).unwrap_err(),
                    "no completion within 20.0 ms",
                ),
                (
                    station.spin_memory(&mr, 7, 1, SOON).unwrap_err(),
                    "no change of polled memory within 20.0 ms",
                ),
                (
                    station.wait_event(&channel, SOON).unwrap_err(),
                    "no completion event within 20.0 ms",
                ),
            ] {
                assert_eq!(error.to_string(), what);
            }
            assert!(station.now() - start >= SOON * 3);
        }
    }

    #[test]
    fn polled_memory_is_seen_and_must_be_there() {
        let (station, _there) = station();
        let pd = station.context().alloc_pd().unwrap();
        let access = AccessFlags::LOCAL_WRITE;
        let mr = station
            .context()
            .alloc_mr(&pd, Bytes::new(8), access)
            .unwrap();
        mr.write(7, &[5]).unwrap();
        station.spin_memory(&mr, 7, 5, SOON).unwrap();
        let error = station.spin_memory(&mr, 1 << 20, 0, SOON).unwrap_err();
        assert!(matches!(error, WaitError::Memory(_)), "{error}");
    }

    #[test]
    fn roles_talk_and_unknown_roles_are_named() {
        let (station, there) = station();
        station.send(OTHER, b"ready").unwrap();
        assert_eq!(there.receive(RoleId(0), SOON).unwrap(), b"ready");
        there.send(RoleId(0), b"go").unwrap();
        assert_eq!(station.receive(OTHER, SOON).unwrap(), b"go");
        let error = station.send(RoleId(9), b"x").unwrap_err();
        assert_eq!(error.to_string(), "this program has no role 9");
    }

    #[test]
    fn sleeping_takes_time_and_computing_also_takes_cpu() {
        let (station, _there) = station();
        assert!(station.clock_cost() > Span::ZERO);
        let start = station.now();
        station.sleep(SOON);
        assert!(station.now() - start >= SOON);
        let (start, before) = (station.now(), station.cpu());
        station.compute(SOON);
        assert!(station.now() - start >= SOON);
        let used = station.cpu().since(before);
        assert!(used.user + used.system > Span::ZERO);
    }
}
