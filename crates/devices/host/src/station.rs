//! The station of a real device.

use std::cell::{Cell, OnceCell};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_units::{Bytes, CpuTime, Span, Time};
use adverb_verbs::{
    CompletionChannel, CompletionQueue, Context, CpuLoad, CqId, LoadTally, MemoryAccessError,
    MemoryRegion, MemoryTimes, NotCounted, NumaPlacement, OutOfBandError, PlacementError, RoleId,
    Station, WaitError, WorkCompletion,
};

use crate::clock::{self, CpuScope};
use crate::computation;
use crate::hub::HubMail;
use crate::link::{Link, Stream};
use crate::process::usable_cores;
use crate::system_calls::SystemCalls;
use crate::{load, memory_times, numa};

/// Polls between two clock readings. The first ones have no pause, because a message in flight arrives within
/// them; later ones leave the core to its other hardware thread.
const POLLS_PER_LOOK: u32 = 1024;
/// The same for a short timeout, which would end late otherwise.
const POLLS_PER_LOOK_WHEN_SHORT: u32 = 16;
/// The same for a role that yields its core after each poll, on a busy machine for milliseconds each time.
const YIELDS_PER_LOOK: u32 = 16;
/// Timeouts below this are short: many polls take a noticeable part of them.
const SHORT: Span = Span::from_ms(1);

/// The longest region whose pages are looked up although their node was not chosen.
const MOST_LOOKED_AT: Bytes = Bytes::mib(64);

/// How long a sleeping wait may take to notice that the run has ended.
const STOP_LATENCY: Span = Span::from_ms(50);

/// The environment of a role on this machine: a device, the machine's clock, a CPU account and channels to the
/// other roles.
pub struct HostStation<C: Context, T: Stream = UnixStream> {
    context: C,
    mail: Mail<T>,
    clock_cost: Span,
    shares_core: bool,
    scope: CpuScope,
    /// Set when waits should end.
    stop: Option<Arc<AtomicBool>>,
    /// Where its streams listen, and connect from.
    address: SocketAddr,
    /// Counts the system calls of the role's thread, from the first request for their number on.
    calls: OnceCell<Result<SystemCalls, NotCounted>>,
    /// CPUs that the process may use, even if the role's thread is pinned to one of them.
    usable: Vec<u32>,
    /// The node that the role's memory is bound to.
    memory: Cell<Option<u32>>,
}

/// Channels to other roles.
enum Mail<T: Stream> {
    /// A socket to each of them.
    Links(Vec<(RoleId, Link<T>)>),
    /// One socket to a hub, which forwards messages.
    Hub(HubMail),
}

impl<C: Context, T: Stream> HostStation<C, T> {
    /// Returns a station with links to these roles. It measures the cost of its clock, which takes tens of
    /// microseconds.
    pub fn new(context: C, links: impl IntoIterator<Item = (RoleId, Link<T>)>) -> Self {
        Self::with(context, Mail::Links(links.into_iter().collect()))
    }

    fn with(context: C, mail: Mail<T>) -> Self {
        HostStation {
            context,
            mail,
            clock_cost: clock::measure_cost(),
            shares_core: false,
            scope: CpuScope::Process,
            stop: None,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            calls: OnceCell::new(),
            usable: usable_cores(),
            memory: Cell::new(None),
        }
    }

    /// Sets the CPUs that the process may use; by default those that the calling thread may run on.
    #[must_use]
    pub fn of_process_on(self, usable: Vec<u32>) -> Self {
        HostStation { usable, ..self }
    }

    /// Sets which CPU time counts as the role's; by default the whole process's.
    #[must_use]
    pub fn counting(self, scope: CpuScope) -> Self {
        HostStation { scope, ..self }
    }

    /// Ends every wait with [`WaitError::Stopped`] once `stop` is set: a role that is a thread cannot be
    /// killed.
    #[must_use]
    pub fn stopping(self, stop: Arc<AtomicBool>) -> Self {
        let stop = Some(stop);
        HostStation { stop, ..self }
    }

    /// Puts its streams at an address of this host (by default 127.0.0.1); port 0 is any free port.
    #[must_use]
    pub fn at_address(self, address: SocketAddr) -> Self {
        HostStation { address, ..self }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    #[inline]
    pub(crate) fn check_stop(&self) -> Result<(), WaitError> {
        match &self.stop {
            Some(stop) if stop.load(Ordering::Relaxed) => Err(WaitError::Stopped),
            _ => Ok(()),
        }
    }

    /// Calls `wait` with all of `timeout`, or with short parts of it if it may be stopped, until it
    /// returns something.
    pub(crate) fn wait_in_parts<R>(
        &self,
        timeout: Span,
        mut wait: impl FnMut(Span) -> Result<Option<R>, WaitError>,
    ) -> Result<Option<R>, WaitError> {
        let mut left = timeout;
        loop {
            self.check_stop()?;
            let part = match self.stop {
                Some(_) => left.min(STOP_LATENCY),
                None => left,
            };
            let found = wait(part)?;
            left = left.saturating_sub(part);
            if found.is_some() || left == Span::ZERO {
                return Ok(found);
            }
        }
    }

    /// Sets whether another role runs on the same core: if so, each unsuccessful poll yields the core, because
    /// the awaited message cannot arrive before the other role has run.
    ///
    /// A pinned process sees one usable core in either case, so the launcher has to set this.
    #[must_use]
    pub fn sharing_core(self, shares_core: bool) -> Self {
        HostStation {
            shares_core,
            ..self
        }
    }

    /// Calls `poll` until it returns something.
    #[inline]
    pub(crate) fn poll_until<R>(
        &self,
        what: &'static str,
        timeout: Span,
        mut poll: impl FnMut() -> Result<Option<R>, WaitError>,
    ) -> Result<R, WaitError> {
        self.check_stop()?;
        if !self.shares_core && timeout >= SHORT {
            for _ in 0..POLLS_PER_LOOK {
                if let Some(found) = poll()? {
                    return Ok(found);
                }
            }
        }
        self.keep_polling(what, timeout, &mut poll)
    }

    #[cold]
    #[inline(never)]
    fn keep_polling<R>(
        &self,
        what: &'static str,
        timeout: Span,
        poll: &mut impl FnMut() -> Result<Option<R>, WaitError>,
    ) -> Result<R, WaitError> {
        let polls = match self.shares_core {
            true => YIELDS_PER_LOOK,
            false if timeout < SHORT => POLLS_PER_LOOK_WHEN_SHORT,
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
            self.check_stop()?;
            if clock::now() - start >= timeout {
                return Err(WaitError::TimedOut { what, timeout });
            }
        }
    }

    fn receive_within(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        match &self.mail {
            Mail::Links(links) => link(links, from)?.receive(from, timeout),
            Mail::Hub(hub) => hub.receive(from, timeout),
        }
    }
}

impl<C: Context> HostStation<C> {
    /// Returns a station of a role whose process has one socket to its parent.
    pub fn at_hub(context: C, mail: HubMail) -> Self {
        Self::with(context, Mail::Hub(mail))
    }
}

fn link<T: Stream>(links: &[(RoleId, Link<T>)], role: RoleId) -> Result<&Link<T>, OutOfBandError> {
    let link = links.iter().find(|(to, _)| *to == role);
    link.map(|(_, link)| link)
        .ok_or(OutOfBandError::NoSuchRole(role))
}

impl<C: Context, T: Stream> Station for HostStation<C, T> {
    type Context = C;
    type Streams = Self;

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
        clock::cpu(self.scope)
    }

    fn system_calls(&self) -> Result<u64, NotCounted> {
        let calls = self.calls.get_or_init(SystemCalls::of_this_thread);
        calls.as_ref().map_err(NotCounted::clone)?.count()
    }

    fn secret(&self) -> u64 {
        // The standard library's hash maps get their keys from the kernel's random numbers.
        RandomState::new().build_hasher().finish()
    }

    #[inline]
    fn spin(
        &self,
        cq: &C::Cq,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, WaitError> {
        self.poll_until("completion", timeout, || {
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
        timeout: Span,
    ) -> Result<(), WaitError> {
        self.poll_until("change of polled memory", timeout, || {
            Ok((mr.load(offset)? == value).then_some(()))
        })
    }

    #[inline]
    fn spin_on<R>(
        &self,
        _mr: &C::Mr,
        timeout: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        self.poll_until("change of polled memory", timeout, || Ok(look()?))
    }

    fn wait_event(&self, channel: &C::Channel, timeout: Span) -> Result<CqId, WaitError> {
        let event = self.wait_in_parts(timeout, |timeout| {
            channel.get_event(timeout).map_err(WaitError::Channel)
        })?;
        event.ok_or(WaitError::TimedOut {
            what: "completion event",
            timeout,
        })
    }

    fn sleep(&self, span: Span) {
        // An error means the end of the run, which the next wait reports.
        let _ = self.wait_in_parts(span, |part| {
            std::thread::sleep(part.into());
            Ok(None::<()>)
        });
    }

    fn compute(&self, span: Span) {
        let start = clock::now();
        while clock::now() - start < span {
            std::hint::spin_loop();
        }
    }

    fn execute(&self, idle: Span) {
        computation::execute(idle);
    }

    fn bind(&self, numa: NumaPlacement) -> Result<(), PlacementError> {
        let nic = self.context.numa_node();
        if let Some(node) = numa::resolve(numa.threads, nic)? {
            numa::bind_thread(node, &self.usable)?;
        }
        if let Some(node) = numa::resolve(numa.memory, nic)? {
            numa::bind_memory(node)?;
            self.memory.set(Some(node));
        }
        Ok(())
    }

    fn memory_node(&self, mr: &C::Mr) -> Result<Option<u32>, PlacementError> {
        if self.memory.get().is_none() && mr.length() > MOST_LOOKED_AT {
            return Ok(None);
        }
        let found = numa::nodes_of_range(mr.addr(), mr.length().get());
        match (self.memory.get(), found) {
            (None, Err(_)) => Ok(None),
            (Some(node), Err(error)) => Err(PlacementError(format!(
                "cannot query whether memory is on NUMA node {node}: {error}; leave the node out, or allow move_pages (CAP_SYS_NICE in a container)"
            ))),
            (Some(node), Ok(found)) if found.iter().any(|at| *at != node) => {
                Err(PlacementError(format!(
                    "memory is on NUMA nodes {found:?}, not only on node {node}: free memory there"
                )))
            }
            (_, Ok(found)) => Ok(match found[..] {
                [only] => Some(only),
                _ => None,
            }),
        }
    }

    fn under_load<R>(
        &self,
        loads: &[CpuLoad],
        mr: &C::Mr,
        body: impl FnOnce() -> R,
    ) -> Result<(R, LoadTally), PlacementError> {
        let at = (self.context.numa_node(), &self.usable[..]);
        load::under_load(loads, mr.words(), at, body)
    }

    fn memory_times(&self, cpus: u32, memory: u32) -> Result<MemoryTimes, PlacementError> {
        memory_times::memory_times((cpus, memory), memory_times::usual_arrays(), &self.usable)
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        match &self.mail {
            Mail::Links(links) => link(links, to)?.send(to, message),
            Mail::Hub(hub) => hub.send(to, message),
        }
    }

    fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        // Any result of `receive` except a timeout ends the wait.
        let found = self.wait_in_parts(timeout, |part| {
            Ok(match self.receive_within(from, part) {
                Err(OutOfBandError::TimedOut { .. }) => None,
                result => Some(result),
            })
        });
        let role = from;
        match found {
            Ok(Some(result)) => result,
            // The end of the run ends the other roles, too.
            Err(_) => Err(OutOfBandError::PeerGone(role)),
            Ok(None) => Err(OutOfBandError::TimedOut { role, timeout }),
        }
    }

    fn streams(&self) -> &Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_softnic::{SoftContext, SoftDevice};
    use adverb_verbs::{AccessFlags, Device};

    const OTHER: RoleId = RoleId(1);
    const SOON: Span = Span::from_ms(20);

    fn station() -> (HostStation<SoftContext>, Link) {
        let (here, there) = Link::pair().unwrap();
        let context = SoftDevice::new().open().unwrap();
        (HostStation::new(context, [(OTHER, here)]), there)
    }

    /// Returns 8 B of memory and its protection domain.
    fn memory<C: Context>(station: &HostStation<C>) -> (C::Pd, C::Mr) {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let mr = context.alloc_mr(&pd, Bytes::new(8), AccessFlags::LOCAL_WRITE);
        (pd, mr.unwrap())
    }

    /// The first PSN was derived from a memory key.
    #[test]
    fn secrets_of_stations_differ() {
        let (one, other) = (station().0, station().0);
        assert_ne!(one.secret(), other.secret());
    }

    #[test]
    fn waits_time_out() {
        for shares_core in [false, true] {
            let station = station().0.sharing_core(shares_core);
            let channel = station.context().create_channel().unwrap();
            let cq = station.context().create_cq(4, Some(&channel)).unwrap();
            let (_pd, mr) = memory(&station);
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

    /// The clock was read after 1024 polls, however short the timeout was.
    #[test]
    fn a_short_timeout_ends_after_few_polls() {
        let (station, _there) = station();
        let (_pd, mr) = memory(&station);
        let mut polls = 0;
        let nothing = || {
            polls += 1;
            station.compute(Span::from_us(2));
            Ok(None::<()>)
        };
        let short = Span::from_us(20);
        assert!(station.spin_on(&mr, short, nothing).is_err());
        assert!(polls <= 2 * POLLS_PER_LOOK_WHEN_SHORT, "{polls}");
    }

    #[test]
    fn every_wait_ends_when_the_run_is_ended() {
        let stop = Arc::new(AtomicBool::new(false));
        let (station, _there) = station();
        let station = station.stopping(Arc::clone(&stop));
        let channel = station.context().create_channel().unwrap();
        let cq = station.context().create_cq(4, Some(&channel)).unwrap();
        let mut wc = [WorkCompletion::default()];
        let setter = std::thread::spawn(move || {
            std::thread::sleep(SOON.into());
            stop.store(true, Ordering::Relaxed);
        });
        let late = Span::from_secs(60);
        let event = station.wait_event(&channel, late);
        assert!(matches!(event, Err(WaitError::Stopped)), "{event:?}");
        let spin = station.spin(&cq, &mut wc, late);
        assert!(matches!(spin, Err(WaitError::Stopped)), "{spin:?}");
        let message = station.receive(OTHER, late).unwrap_err();
        assert!(matches!(message, OutOfBandError::PeerGone(OTHER)));
        setter.join().unwrap();
    }

    #[test]
    fn polled_memory_is_seen_and_must_be_there() {
        let (station, _there) = station();
        let (_pd, mr) = memory(&station);
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
        assert_eq!(error.to_string(), "role 9 does not exist");
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
