//! Two ends of a connection, and how a case connects them.

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AckTimeout, AddressVector, Context, PortCaps, Psn, QpAttr, QpCaps, QueuePair,
    RetryCount, RnrTimer, SendFlags, Station,
};

use crate::Fixture;
pub use crate::end::{End, Objects, completions, expect_both, outcomes};

/// Timeout for an expected event.
pub const TIMEOUT: Span = Span::from_secs(5);
/// How long a case watches that an event does not arrive.
pub const QUIET: Span = Span::from_ms(20);
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
    pub fn retry_time(&self) -> Span {
        let timeout = AckTimeout::new(self.timeout).and_then(AckTimeout::span);
        timeout.expect("a case waits with a finite timeout") * (u64::from(self.retry_cnt) + 1)
    }

    /// How long a receiver that is not ready is tried at least: timer × retries.
    pub fn rnr_time(&self) -> Span {
        let timer = RnrTimer::new(self.rnr_timer).expect("a 5-bit code").span();
        timer * u64::from(self.rnr_retry)
    }
}

/// Two connected ends, each with a context of its own.
pub struct Pair<'s, S: Station> {
    /// The end that is active in most cases.
    pub a: End<'s, S>,
    /// The other.
    pub b: End<'s, S>,
    /// How it was made.
    pub setup: Setup,
}

impl<'s, S: Station> Pair<'s, S> {
    /// Two ends in RTS, made as by default.
    pub fn new(fixture: Fixture<'s, S>) -> Self {
        Self::with(fixture, Setup::default())
    }

    /// Two ends in RTS.
    pub fn with(fixture: Fixture<'s, S>, setup: Setup) -> Self {
        let pair = Self::unconnected(fixture, setup);
        pair.connect();
        pair
    }

    /// Two ends in RESET.
    pub fn unconnected(fixture: Fixture<'s, S>, setup: Setup) -> Self {
        let (a, b) = (End::new(fixture, &setup), End::new(fixture, &setup));
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
    AddressVector::new(port.gid, port.lid, context.port_num())
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

/// `length` bytes that depend on `seed`; none is [`BLANK`].
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes().map(|byte| match byte {
            BLANK => !BLANK,
            byte => byte,
        }));
    }
    bytes.truncate(length);
    bytes
}
