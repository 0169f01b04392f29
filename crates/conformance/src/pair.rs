//! Two ends of a connection, and what a case does with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AckTimeout, AddressVector, CompletionChannel, CompletionQueue, Context, Device,
    MemoryRegion, Operation, PortCaps, PostError, Psn, QpAttr, QpCaps, QpInit, QpState, QpType,
    QueuePair, RecvRequest, RetryCount, RnrTimer, SendFlags, SendRequest, WcStatus, WorkCompletion,
    WrId,
};

/// How long a case waits for what has to come.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long a case watches that something does not come.
pub const QUIET: Duration = Duration::from_millis(20);
/// What target memory holds before an operation.
pub const BLANK: u8 = 0xa5;
/// All access.
pub const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ);
/// No flags.
pub const UNSIGNALED: SendFlags = SendFlags::empty();
/// The flag that nearly all requests of the suite carry.
pub const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// How a pair is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Sizes of the queue pairs.
    pub caps: QpCaps,
    /// Entries of each completion queue.
    pub entries: u32,
    /// Memory of each end.
    pub memory: Bytes,
    /// What each memory region allows.
    pub memory_access: AccessFlags,
    /// What each queue pair allows.
    pub access: AccessFlags,
    /// Sends and receives of an end complete into one queue.
    pub one_cq: bool,
    /// Told to the peer that finds no receive.
    pub rnr_timer: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Local ACK timeout.
    pub timeout: u8,
    /// Retries after a timeout.
    pub retry_cnt: u8,
    /// First packets of A and B.
    pub psn: (Psn, Psn),
}

impl Default for Setup {
    /// A peer may be slow: 7 retries of 67 ms. RNR: 0.64 ms, without end.
    fn default() -> Self {
        Setup {
            caps: QpCaps {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 0,
            },
            entries: 256,
            memory: Bytes::kib(64),
            memory_access: ALL,
            access: ALL,
            one_cq: false,
            rnr_timer: 12,
            rnr_retry: 7,
            timeout: 14,
            retry_cnt: 7,
            psn: (Psn::new(0xff_fff0), Psn::new(7)),
        }
    }
}

impl Setup {
    /// For cases in which the peer is lost: 6 retries of 8.4 ms.
    pub fn losing() -> Self {
        Setup {
            timeout: 11,
            retry_cnt: 6,
            ..Setup::default()
        }
    }

    /// How long a request to a peer that does not answer is tried: timeout × (retries + 1).
    /// InfiniBand lets a requester take up to four times the timeout (IBTA vol. 1, 9.7.6.1.3).
    pub fn retry_time(&self) -> Duration {
        let timeout = AckTimeout::new(self.timeout).and_then(AckTimeout::span);
        let timeout = Duration::from(timeout.expect("a case waits with a finite timeout"));
        timeout * (u32::from(self.retry_cnt) + 1)
    }

    /// How long a receiver that is not ready is tried at least: timer × retries.
    pub fn rnr_time(&self) -> Duration {
        let timer = RnrTimer::new(self.rnr_timer).expect("a 5-bit code").span();
        Duration::from(timer) * u32::from(self.rnr_retry)
    }
}

/// One end of a connection, with objects of its own.
pub struct End<C: Context> {
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

impl<C: Context> End<C> {
    /// Opens the device and makes the objects; the queue pair is in RESET.
    pub fn new<D: Device<Context = C>>(device: &D, setup: &Setup) -> Self {
        let context = device.open().expect("open the device");
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
        End {
            qp,
            send_cq,
            recv_cq,
            mr,
            channel,
            pd,
            context,
        }
    }

    /// Another queue pair of this end, completing where its first does.
    pub fn another_qp(&self, setup: &Setup) -> C::Qp {
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: &*self.send_cq,
            recv_cq: &*self.recv_cq,
            caps: setup.caps,
        };
        self.context
            .create_qp(&self.pd, &init)
            .expect("create another queue pair")
    }

    /// Posts one request with one piece of this end's memory (none where `length` is 0).
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

    /// Posts one receive into one piece of this end's memory (none where `length` is 0).
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
        completions(&*self.send_cq, count)
    }

    /// The next `count` completions of receives.
    pub fn received(&self, count: usize) -> Vec<WorkCompletion> {
        completions(&*self.recv_cq, count)
    }

    /// The next completions of sends are those of `expected`, in this order.
    #[track_caller]
    pub fn expect_sent(&self, expected: &[(u64, WcStatus)]) {
        assert_eq!(outcomes(&self.sent(expected.len())), expected);
    }

    /// The next completions of receives are those of `expected`, in this order.
    #[track_caller]
    pub fn expect_received(&self, expected: &[(u64, WcStatus)]) {
        assert_eq!(outcomes(&self.received(expected.len())), expected);
    }

    /// No further completion comes, of sends or of receives.
    #[track_caller]
    pub fn expect_quiet(&self) {
        let until = Instant::now() + QUIET;
        while Instant::now() < until {
            for cq in [&self.send_cq, &self.recv_cq] {
                let mut one = [WorkCompletion::default()];
                assert_eq!(
                    cq.poll(&mut one),
                    Ok(0),
                    "an unexpected completion: {one:?}"
                );
            }
        }
    }

    /// Takes what had completed before a RESET, where it is still there, and sees that nothing
    /// more comes.
    #[track_caller]
    pub fn forget_completions(&self) {
        for cq in [&self.send_cq, &self.recv_cq] {
            let mut into = [WorkCompletion::default(); 16];
            while cq.poll(&mut into).expect("poll") > 0 {}
        }
        self.expect_quiet();
    }

    /// The queue pair comes to `state`.
    #[track_caller]
    pub fn expect_state(&self, state: QpState) {
        wait_for(&format!("the queue pair in {state}"), || {
            self.qp.state() == state
        });
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

    /// The next event of the channel within [`PATIENCE`] names `cq`.
    #[track_caller]
    pub fn expect_event(&self, cq: &C::Cq) {
        let event = self
            .channel
            .get_event(span(PATIENCE))
            .expect("the channel works");
        assert_eq!(event, Some(cq.id()), "the event that had to come");
        cq.ack_events(1);
    }

    /// No event comes.
    #[track_caller]
    pub fn expect_no_event(&self) {
        let event = self
            .channel
            .get_event(span(QUIET))
            .expect("the channel works");
        assert_eq!(event, None, "an unexpected event");
    }
}

/// Two connected ends, each with a context of its own.
pub struct Pair<C: Context> {
    /// The end that is active in most cases.
    pub a: End<C>,
    /// The other.
    pub b: End<C>,
    /// How it was made.
    pub setup: Setup,
}

impl<C: Context> Pair<C> {
    /// Two ends in RTS, made as by default.
    pub fn new<D: Device<Context = C>>(device: &D) -> Self {
        Self::with(device, Setup::default())
    }

    /// Two ends in RTS.
    pub fn with<D: Device<Context = C>>(device: &D, setup: Setup) -> Self {
        let pair = Self::unconnected(device, setup);
        pair.connect();
        pair
    }

    /// Two ends in RESET.
    pub fn unconnected<D: Device<Context = C>>(device: &D, setup: Setup) -> Self {
        let (a, b) = (End::new(device, &setup), End::new(device, &setup));
        Pair { a, b, setup }
    }

    /// Takes both ends from RESET to RTS.
    pub fn connect(&self) {
        connect(
            (&self.a.context, &self.a.qp),
            (&self.b.context, &self.b.qp),
            &self.setup,
        );
    }

    /// A takes from RESET to RTS, to B.
    pub fn connect_a(&self) {
        to_init(&self.a.context, &self.a.qp, &self.setup);
        self.a_to_rtr();
        to_rts(&self.a.qp, self.setup.psn.0, &self.setup);
    }

    /// A takes from INIT to RTR, to B.
    pub fn a_to_rtr(&self) {
        let address = address_of(&self.b.context);
        to_rtr(
            &self.a.qp,
            (address, &self.b.qp, self.setup.psn.1),
            &self.setup,
            &self.a.context,
        );
    }
}

/// Takes two queue pairs from RESET to RTS, to each other.
pub fn connect<C: Context>(a: (&C, &C::Qp), b: (&C, &C::Qp), setup: &Setup) {
    let (psn_a, psn_b) = setup.psn;
    to_init(a.0, a.1, setup);
    to_init(b.0, b.1, setup);
    to_rtr(a.1, (address_of(b.0), b.1, psn_b), setup, a.0);
    to_rtr(b.1, (address_of(a.0), a.1, psn_a), setup, b.0);
    to_rts(a.1, psn_a, setup);
    to_rts(b.1, psn_b, setup);
}

/// The way to the port that a context uses.
pub fn address_of<C: Context>(context: &C) -> AddressVector {
    let port = port_of(context);
    AddressVector {
        dgid: port.gid,
        dlid: port.lid,
        port: context.port_num(),
    }
}

/// The port that a context uses.
pub fn port_of<C: Context>(context: &C) -> PortCaps {
    context.port(context.port_num()).expect("query the port")
}

/// RESET to INIT.
pub fn to_init<C: Context>(context: &C, qp: &C::Qp, setup: &Setup) {
    qp.modify(&QpAttr::to_init(context.port_num(), setup.access))
        .expect("to INIT");
}

/// INIT to RTR, to the queue pair at an address whose first packet is given.
pub fn to_rtr<C: Context>(
    qp: &C::Qp,
    (address, peer, psn): (AddressVector, &C::Qp, Psn),
    setup: &Setup,
    context: &C,
) {
    let mtu = port_of(context).active_mtu;
    let mut attr = QpAttr::to_rtr(address, peer.qpn(), psn, mtu);
    attr.min_rnr_timer = RnrTimer::new(setup.rnr_timer);
    qp.modify(&attr).expect("to RTR");
}

/// RTR to RTS.
pub fn to_rts<Q: QueuePair>(qp: &Q, psn: Psn, setup: &Setup) {
    let mut attr = QpAttr::to_rts(psn);
    attr.timeout = AckTimeout::new(setup.timeout);
    attr.retry_cnt = RetryCount::new(setup.retry_cnt);
    attr.rnr_retry = RetryCount::new(setup.rnr_retry);
    qp.modify(&attr).expect("to RTS");
}

/// The next `count` completions of `cq`.
#[track_caller]
pub fn completions<Q: CompletionQueue>(cq: &Q, count: usize) -> Vec<WorkCompletion> {
    let mut found = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while found.len() < count {
        let mut into = [WorkCompletion::default(); 16];
        let wanted = (count - found.len()).min(into.len());
        let n = cq.poll(&mut into[..wanted]).expect("poll");
        found.extend_from_slice(&into[..n]);
        if n == 0 {
            let late = Instant::now() > deadline;
            assert!(!late, "{count} completions had to come, came: {found:?}");
            std::thread::yield_now();
        }
    }
    found
}

/// The next completions are those expected, of sends at one end and of receives at the other. Both are
/// polled in turn.
#[track_caller]
pub fn expect_both<C: Context>(
    (from, sent): (&End<C>, &[(u64, WcStatus)]),
    (to, received): (&End<C>, &[(u64, WcStatus)]),
) {
    let deadline = Instant::now() + PATIENCE;
    let (mut of_sends, mut of_receives) = (Vec::new(), Vec::new());
    while of_sends.len() < sent.len() || of_receives.len() < received.len() {
        let late = Instant::now() > deadline;
        assert!(!late, "came: sends {of_sends:?}, receives {of_receives:?}");
        for (cq, found) in [
            (&from.send_cq, &mut of_sends),
            (&to.recv_cq, &mut of_receives),
        ] {
            let mut one = [WorkCompletion::default()];
            let n = cq.poll(&mut one).expect("poll");
            found.extend(outcomes(&one[..n]));
        }
    }
    assert_eq!((&of_sends[..], &of_receives[..]), (sent, received));
}

/// Names and statuses of completions.
pub fn outcomes(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.wr_id.0, c.status)).collect()
}

/// Waits until `is` holds.
#[track_caller]
pub fn wait_for(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// A time, in the seam's words.
pub fn span(duration: Duration) -> Span {
    duration.into()
}

/// `length` bytes that depend on `seed`; neighbours differ, and none is [`BLANK`].
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length)
        .map(|_| match next() {
            BLANK => !BLANK,
            byte => byte,
        })
        .collect()
}
