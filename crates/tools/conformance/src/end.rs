//! One end of a connection, what a case does with it, and how it waits.

use std::ops::Deref;
use std::sync::Arc;

use adverb_units::{Bytes, Span, Time};
use adverb_verbs::{
    AccessFlags, CompletionQueue, Context, CreateError, MemoryRegion, Operation, PostError, QpCaps,
    QpInit, QpState, QpType, QueuePair, RecvRequest, SendFlags, SendRequest, Station, WaitError,
    WcStatus, WorkCompletion, WrId,
};

use crate::pair::{QUIET, Setup, TIMEOUT, pattern};
use crate::{Fixture, NotSupported};

/// A station's completion queues.
pub(crate) type Cq<S> = <<S as Station>::Context as Context>::Cq;
/// A station's queue pairs.
pub(crate) type Qp<S> = <<S as Station>::Context as Context>::Qp;
/// A station's shared receive queues.
pub(crate) type Srq<S> = <<S as Station>::Context as Context>::Srq;
/// A station's address handles.
pub(crate) type Ah<S> = <<S as Station>::Context as Context>::Ah;

/// Timeout of a wait for one of several events before it checks the next one.
pub(crate) const SLICE: Span = Span::from_us(10);
/// How long a wait polls without pause. Longer ones are for timers, and leave the core to others.
const BUSY: Span = Span::from_us(200);
/// The pause between two polls after that.
const PAUSE: Span = Span::from_us(200);

/// The objects of one end of a connection.
pub struct Objects<C: Context> {
    /// Its queue pair.
    pub qp: C::Qp,
    /// Where its sends complete.
    pub send_cq: Arc<C::Cq>,
    /// Where its receives complete.
    pub recv_cq: Arc<C::Cq>,
    /// Its memory.
    pub mr: C::Mr,
    /// Where both completion queues raise events.
    pub channel: C::Channel,
    /// Its protection domain.
    pub pd: C::Pd,
    /// Its context.
    pub context: C,
}

/// Returns what a device has created; [`NotSupported`] if it has no such objects.
#[track_caller]
pub(crate) fn supported<T>(
    created: Result<T, CreateError>,
    what: &'static str,
) -> Result<T, NotSupported> {
    created.map_err(|error| match error {
        CreateError::Unsupported(_) => NotSupported(what),
        error => panic!("create {what}: {error}"),
    })
}

/// One end of a connection, and the station at which its role waits.
pub struct End<'s, S: Station> {
    station: &'s S,
    objects: Arc<Objects<S::Context>>,
}

impl<S: Station> Deref for End<'_, S> {
    type Target = Objects<S::Context>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

impl<'s, S: Station> End<'s, S> {
    /// Opens the device and makes the objects; the queue pair is in RESET.
    pub fn new(fixture: Fixture<'s, S>, setup: &Setup) -> Self {
        let context = fixture.open();
        let pd = context.alloc_pd().expect("allocate a domain");
        let channel = context.create_channel().expect("create a channel");
        let cq = || {
            let cq = context.create_cq(setup.entries, Some(&channel));
            Arc::new(cq.expect("create a completion queue"))
        };
        let send_cq = cq();
        let recv_cq = if setup.one_cq { send_cq.clone() } else { cq() };
        let mr = context
            .alloc_mr(&pd, setup.memory, setup.memory_access)
            .expect("allocate a region");
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: &*send_cq,
            recv_cq: &*recv_cq,
            caps: setup.caps,
        };
        let qp = context.create_qp(&pd, &init).expect("create a queue pair");
        let objects = Objects {
            qp,
            send_cq,
            recv_cq,
            mr,
            channel,
            pd,
            context,
        };
        Self::shared(fixture.station(), Arc::new(objects))
    }

    /// Returns an end with objects that other roles may use, too.
    pub(crate) fn shared(station: &'s S, objects: Arc<Objects<S::Context>>) -> Self {
        End { station, objects }
    }

    /// The objects, for another role.
    pub(crate) fn objects(&self) -> Arc<Objects<S::Context>> {
        Arc::clone(&self.objects)
    }

    /// The objects, which no other role has.
    pub(crate) fn into_objects(self) -> Objects<S::Context> {
        Arc::into_inner(self.objects).expect("no other role has the objects")
    }

    /// The same end with another queue pair.
    pub(crate) fn with_qp(self, qp: Qp<S>) -> Self {
        let station = self.station;
        let objects = self.into_objects();
        Self::shared(station, Arc::new(Objects { qp, ..objects }))
    }

    /// The station, for waits.
    pub(crate) fn station(&self) -> &'s S {
        self.station
    }

    /// The attributes of another queue pair, which completes where the first does.
    pub(crate) fn init(&self, qp_type: QpType, caps: QpCaps) -> QpInit<'_, Cq<S>> {
        QpInit {
            qp_type,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            caps,
        }
    }

    /// Another region of 4 KiB.
    pub(crate) fn region(&self, access: AccessFlags) -> <S::Context as Context>::Mr {
        let region = self.context.alloc_mr(&self.pd, Bytes::kib(4), access);
        region.expect("a region")
    }

    /// Another queue pair of this end, completing where its first does.
    pub fn another_qp(&self, setup: &Setup) -> Qp<S> {
        let init = self.init(QpType::Rc, setup.caps);
        self.context
            .create_qp(&self.pd, &init)
            .expect("create another queue pair")
    }

    /// Posts a request with one SGE of this end's memory, or none if `length` is 0.
    pub fn try_post(
        &self,
        wr_id: u64,
        operation: Operation,
        (offset, length): (u64, u32),
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let sges = [self.mr.sge(offset, length).expect("within the region")];
        let sges = if length == 0 { &[][..] } else { &sges[..] };
        let request = SendRequest::new(WrId(wr_id), operation, sges).with_flags(flags);
        self.qp.post_send(&[request])
    }

    /// Posts one request, which is accepted.
    pub fn post(&self, wr_id: u64, operation: Operation, piece: (u64, u32), flags: SendFlags) {
        self.try_post(wr_id, operation, piece, flags)
            .expect("post a send request");
    }

    /// Posts a receive with one SGE of this end's memory, or none if `length` is 0.
    pub fn try_recv(&self, wr_id: u64, (offset, length): (u64, u32)) -> Result<(), PostError> {
        let sges = [self.mr.sge(offset, length).expect("within the region")];
        let sges = if length == 0 { &[][..] } else { &sges[..] };
        self.qp.post_recv(&[RecvRequest::new(WrId(wr_id), sges)])
    }

    /// Posts one receive, which is accepted.
    pub fn recv(&self, wr_id: u64, piece: (u64, u32)) {
        self.try_recv(wr_id, piece).expect("post a receive");
    }

    /// The next `count` completions of sends.
    pub fn sent(&self, count: usize) -> Vec<WorkCompletion> {
        completions(self.station, &self.send_cq, count)
    }

    /// The next `count` completions of receives.
    pub fn received(&self, count: usize) -> Vec<WorkCompletion> {
        completions(self.station, &self.recv_cq, count)
    }

    /// Checks that the next send completions are `expected`, in this order.
    #[track_caller]
    pub fn expect_sent(&self, expected: &[(u64, WcStatus)]) {
        assert_eq!(outcomes(&self.sent(expected.len())), expected);
    }

    /// Checks that the next receive completions are `expected`, in this order.
    #[track_caller]
    pub fn expect_received(&self, expected: &[(u64, WcStatus)]) {
        assert_eq!(outcomes(&self.received(expected.len())), expected);
    }

    /// Asserts that no further completion arrives, of sends or of receives.
    #[track_caller]
    pub fn expect_quiet(&self) {
        expect_nothing(self.station, &[&self.send_cq, &self.recv_cq]);
    }

    /// Takes what had completed before a RESET, where it is still there, and checks that no
    /// other completion follows.
    #[track_caller]
    pub fn forget_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq] {
            let mut into = [WorkCompletion::default(); 16];
            while cq.poll(&mut into).expect("poll") > 0 {}
        }
        self.expect_quiet();
    }

    /// Waits until the queue pair is in `state`.
    #[track_caller]
    pub fn expect_state(&self, state: QpState) {
        self.wait_for(&format!("the queue pair in {state}"), || {
            self.qp.state() == state
        });
    }

    /// Waits until `is` holds.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is: impl Fn() -> bool) {
        let deadline = self.station.now() + TIMEOUT;
        while !is() {
            let late = self.station.now() > deadline;
            assert!(!late, "timed out after {TIMEOUT} waiting for {what}");
            self.station.sleep(SLICE);
        }
    }

    /// Overwrites all of the memory with `byte`.
    pub fn fill(&self, byte: u8) {
        let bytes = vec![byte; self.mr.length().as_usize()];
        self.mr.write(0, &bytes).expect("fill the region");
    }

    /// Overwrites all of the memory with a pattern that depends on `seed`.
    pub fn fill_pattern(&self, seed: u64) -> Vec<u8> {
        let bytes = pattern(seed, self.mr.length().as_usize());
        self.mr.write(0, &bytes).expect("fill the region");
        bytes
    }

    /// A part of the memory.
    pub fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.mr.read(offset, &mut bytes).expect("read the region");
        bytes
    }

    /// All of the memory.
    pub fn all_bytes(&self) -> Vec<u8> {
        self.bytes(0, self.mr.length().as_usize())
    }

    /// The next event of the channel names `cq`.
    #[track_caller]
    pub fn expect_event(&self, cq: &Cq<S>) {
        let event = self.station.wait_event(&self.channel, TIMEOUT);
        assert_eq!(event.expect("an event"), cq.id());
        cq.ack_events(1);
    }

    /// Asserts that no event arrives.
    #[track_caller]
    pub fn expect_no_event(&self) {
        let event = self.station.wait_event(&self.channel, QUIET);
        let is_none = matches!(event, Err(WaitError::TimedOut { .. }));
        assert!(is_none, "an unexpected event: {event:?}");
    }
}

/// The next `count` completions of `cq`.
#[track_caller]
pub fn completions<S: Station>(station: &S, cq: &Cq<S>, count: usize) -> Vec<WorkCompletion> {
    let mut found = Vec::new();
    while found.len() < count {
        let mut into = [WorkCompletion::default(); 16];
        let wanted = (count - found.len()).min(into.len());
        match spin(station, cq, &mut into[..wanted], TIMEOUT) {
            Ok(n) => found.extend_from_slice(&into[..n]),
            Err(error) => panic!("{error}: expected {count}, came: {found:?}"),
        }
    }
    found
}

/// Pauses if nothing has come since `last` for longer than [`BUSY`].
fn pause<S: Station>(station: &S, last: Time) {
    if station.now() - last > BUSY {
        station.sleep(PAUSE);
    }
}

/// Polls until there are completions, after [`BUSY`] with pauses.
fn spin<S: Station>(
    station: &S,
    cq: &Cq<S>,
    into: &mut [WorkCompletion],
    timeout: Span,
) -> Result<usize, WaitError> {
    let begin = station.now();
    loop {
        match station.spin(cq, into, timeout.min(SLICE)) {
            Err(WaitError::TimedOut { what, .. }) if station.now() - begin >= timeout => {
                return Err(WaitError::TimedOut { what, timeout });
            }
            Err(WaitError::TimedOut { .. }) => pause(station, begin),
            found => return found,
        }
    }
}

/// Polls for at most `timeout`; returns the number of completions.
#[track_caller]
pub(crate) fn poll<S: Station>(
    station: &S,
    cq: &Cq<S>,
    into: &mut [WorkCompletion],
    timeout: Span,
) -> usize {
    match spin(station, cq, into, timeout) {
        Ok(n) => n,
        Err(WaitError::TimedOut { .. }) => 0,
        Err(error) => panic!("poll: {error}"),
    }
}

/// Asserts that request `first` of `end` ends in RETRY_EXC within [`TIMEOUT`], and later ones are flushed.
#[track_caller]
pub(crate) fn retries_exceeded<S: Station>(
    end: &End<'_, S>,
    setup: &Setup,
    first: u64,
    behind: &[u64],
) {
    assert!(setup.retry_time() * 4 < TIMEOUT, "the retries take longer");
    end.expect_sent(&[(first, WcStatus::RetryExcErr)]);
    let flushed: Vec<_> = behind.iter().map(|i| (*i, WcStatus::WrFlushErr)).collect();
    end.expect_sent(&flushed);
    end.expect_state(QpState::Err);
}

/// Asserts that no completion arrives at any of `cqs` for [`QUIET`]. They are polled in turn, as some devices
/// make progress only where they are polled.
#[track_caller]
pub(crate) fn expect_nothing<S: Station>(station: &S, cqs: &[&Cq<S>]) {
    const TURNS: u64 = 4;
    for turn in 0..=TURNS {
        let slice = if turn < TURNS {
            QUIET / TURNS / cqs.len() as u64
        } else {
            Span::ZERO
        };
        for cq in cqs {
            let mut one = [WorkCompletion::default()];
            let n = poll(station, cq, &mut one, slice);
            assert_eq!(n, 0, "an unexpected completion: {one:?}");
        }
    }
}

/// The next completions are those expected, of sends at one end and of receives at the other. Both are
/// polled in turn.
#[track_caller]
pub fn expect_both<S: Station>(
    (from, sent): (&End<'_, S>, &[(u64, WcStatus)]),
    (to, received): (&End<'_, S>, &[(u64, WcStatus)]),
) {
    let station = from.station;
    let deadline = station.now() + TIMEOUT;
    let (mut of_sends, mut of_receives) = (Vec::new(), Vec::new());
    let mut came = station.now();
    while of_sends.len() < sent.len() || of_receives.len() < received.len() {
        let late = station.now() > deadline;
        assert!(!late, "came: sends {of_sends:?}, receives {of_receives:?}");
        for (cq, found) in [
            (&from.send_cq, &mut of_sends),
            (&to.recv_cq, &mut of_receives),
        ] {
            let mut one = [WorkCompletion::default()];
            let n = poll(station, cq, &mut one, SLICE);
            found.extend(outcomes(&one[..n]));
            if n > 0 {
                came = station.now();
            }
        }
        pause(station, came);
    }
    assert_eq!((&of_sends[..], &of_receives[..]), (sent, received));
}

/// Names and statuses of completions.
pub fn outcomes(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.wr_id.0, c.status)).collect()
}
