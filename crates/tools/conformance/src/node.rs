//! Ends that exchange unreliable datagrams, and what cases about them have in common.

use adverb_verbs::{
    AddressHandle, Context, Destination, Gid, MemoryRegion, Operation, PostError, Psn, QpAttr,
    QpState, QpType, Qpn, QueuePair, SendFlags, SendRequest, Station, WcStatus, WorkCompletion,
    WrId,
};

use crate::end::{Ah, Qp, supported};
use crate::pair::{End, SIGNALED, Setup, address_of, pattern, port_of};
use crate::{Fixture, NotSupported, Verdict};

pub(crate) const QKEY: u32 = 0x1122_3344;
pub(crate) const OTHER_QKEY: u32 = 0x1122_3345;
/// A request's queue key with this bit means the queue key of the sender's queue pair (IBTA vol. 1, 3.5.3).
pub(crate) const OWN_QKEY: u32 = 1 << 31;
/// What a receive begins with.
pub(crate) const GRH: u64 = 40;

/// An end whose queue pair is UD, with the queue key [`QKEY`], and handles to others.
pub(crate) struct Node<'s, S: Station> {
    pub(crate) end: End<'s, S>,
    pub(crate) mtu: u32,
}

impl<'s, S: Station> Node<'s, S> {
    /// A node in RTS.
    pub(crate) fn new(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        let node = Self::unconnected(fixture)?;
        to_rts(&node.end.context, &node.end.qp, QKEY);
        Ok(node)
    }

    /// A node in RESET.
    pub(crate) fn unconnected(fixture: Fixture<'s, S>) -> Result<Self, NotSupported> {
        let setup = Setup::default();
        let end = End::new(fixture, &setup);
        let qp = datagram_qp(&end, &setup)?;
        Ok(Self::of(end.with_qp(qp)))
    }

    fn of(end: End<'s, S>) -> Self {
        let mtu = port_of(&end.context).active_mtu.bytes();
        let mtu = u32::try_from(mtu.get()).expect("an MTU");
        Node { end, mtu }
    }

    /// The way to another node's port.
    pub(crate) fn ah(&self, to: &Self) -> Result<Ah<S>, NotSupported> {
        self.ah_of(&to.end.context)
    }

    /// The way to the port of a context.
    pub(crate) fn ah_of(&self, to: &S::Context) -> Result<Ah<S>, NotSupported> {
        let address = address_of(to);
        let ah = self.end.context.create_ah(&self.end.pd, &address);
        supported(ah, "address handles")
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.end.qp.qpn()
    }

    /// Sends a piece of memory, which is accepted.
    pub(crate) fn send(
        &self,
        wr_id: u64,
        operation: Operation,
        piece: (u64, u32),
        to: Destination<'_>,
    ) {
        let request = (wr_id, operation, piece, SIGNALED);
        self.try_send(request, to).expect("post a datagram");
    }

    pub(crate) fn try_send(
        &self,
        (wr_id, operation, piece, flags): (u64, Operation, (u64, u32), SendFlags),
        to: Destination<'_>,
    ) -> Result<(), PostError> {
        let sges = [self
            .end
            .mr
            .sge(piece.0, piece.1)
            .expect("within the region")];
        let sges = if piece.1 == 0 { &[][..] } else { &sges[..] };
        let request = SendRequest::new(WrId(wr_id), operation, sges);
        self.end.qp.post_send(&[request.with_flags(flags).to(to)])
    }

    /// Asserts that a datagram is sent successfully, but does not arrive at `there`.
    #[track_caller]
    pub(crate) fn loses(&self, to: Destination<'_>, there: &Self) {
        self.send(1, Operation::Send, (0, 64), to);
        self.end.expect_sent(&[(1, WcStatus::Success)]);
        there.end.expect_quiet();
        self.end.expect_state(QpState::Rts);
        there.end.expect_state(QpState::Rts);
    }

    /// A datagram of 64 bytes is sent, and arrives in receive `wr_id` at offset 0 of `there`.
    #[track_caller]
    pub(crate) fn reaches(&self, to: Destination<'_>, there: &Self, wr_id: u64) {
        let content = pattern(wr_id, 64);
        self.end.mr.write(0, &content).expect("within the region");
        self.send(1, Operation::Send, (0, 64), to);
        self.end.expect_sent(&[(1, WcStatus::Success)]);
        there.end.expect_received(&[(wr_id, WcStatus::Success)]);
        assert_eq!(there.end.bytes(GRH, 64), content);
    }
}

pub(crate) fn datagram_qp<S: Station>(
    end: &End<'_, S>,
    setup: &Setup,
) -> Result<Qp<S>, NotSupported> {
    let init = end.init(QpType::Ud, setup.caps);
    supported(end.context.create_qp(&end.pd, &init), "UD queue pairs")
}

pub(crate) fn to<A: AddressHandle>(ah: &A, qpn: Qpn, qkey: u32) -> Destination<'_> {
    let ah = ah.handle();
    Destination { ah, qpn, qkey }
}

/// Takes a UD queue pair from RESET to RTS.
pub(crate) fn to_rts<C: Context>(context: &C, qp: &C::Qp, qkey: u32) {
    let mut init = QpAttr::to(QpState::Init);
    init.pkey_index = Some(0);
    init.port = Some(context.port_num());
    init.qkey = Some(qkey);
    qp.modify(&init).expect("to INIT");
    qp.modify(&QpAttr::to(QpState::Rtr)).expect("to RTR");
    let mut rts = QpAttr::to(QpState::Rts);
    rts.sq_psn = Some(Psn::new(5));
    qp.modify(&rts).expect("to RTS");
}

/// Source and destination of a header, distinguished as libibverbs does (ibv_init_ah_from_wc): an IPv4
/// header in the last 20 bytes is one, if not all 40 look like a header of IPv6 and its checksum is
/// wrong. (Within a host Soft-RoCE makes none.)
pub(crate) fn named_ports(header: &[u8]) -> (Gid, Gid) {
    let words = header[20..].chunks_exact(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let (looks_like_v6, looks_like_v4) = (header[0] >> 4 == 6, header[20] == 0x45);
    if looks_like_v4 && (!looks_like_v6 || sum.is_multiple_of(0xffff)) {
        let at = |i: usize| <[u8; 4]>::try_from(&header[i..i + 4]).expect("4 bytes");
        return (Gid::from_ipv4(at(32).into()), Gid::from_ipv4(at(36).into()));
    }
    assert!(looks_like_v6, "neither header: {header:x?}");
    let at = |i: usize| Gid(header[i..i + 16].try_into().expect("16 bytes"));
    (at(8), at(24))
}

pub(crate) const SENDERS: u32 = 4;
pub(crate) const ROUNDS: u64 = 200;
/// Most outstanding messages of a sender.
pub(crate) const WINDOW: u64 = 8;
pub(crate) const ROOM: u64 = 256;

/// Message `n` of client `number`.
fn numbered(number: u64, n: u64) -> Vec<u8> {
    let mut message = vec![0; 16];
    message[..8].copy_from_slice(&number.to_ne_bytes());
    message[8..].copy_from_slice(&n.to_ne_bytes());
    let length = (number * 7 + n * 13) % 150;
    message.extend(pattern(number << 32 | n, length as usize));
    message
}

/// The helper's part: in each round it sends [`WINDOW`] messages to the queue pair that the main role
/// names.
pub(crate) fn send_windows<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let [own, server] = fixture.given()?;
    let node = Node::of(own);
    let ah = node.ah_of(&server.context)?;
    for _ in 0..ROUNDS {
        let mut words = fixture.hear_main()?;
        let first = words.split_off(16);
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        let [qpn, number, first] = [&words[..8], &words[8..], &first].map(word);
        let there = Qpn::new(qpn as u32).expect("24 bits");
        for i in 0..WINDOW {
            let message = numbered(number, first + i);
            let mr = &node.end.mr;
            mr.write(i * ROOM, &message).expect("within the region");
            let piece = (i * ROOM, message.len() as u32);
            node.send(i, Operation::Send, piece, to(&ah, there, QKEY));
        }
        let done = node.end.sent(WINDOW as usize);
        assert!(done.iter().all(|c| c.status.is_success()), "{done:?}");
    }
    fixture.done()
}

/// Lets helper `number` send the next messages of a round to `qpn`.
pub(crate) fn next_window<S: Station>(
    fixture: Fixture<'_, S>,
    number: u32,
    (qpn, round): (Qpn, u64),
) {
    let words = [qpn.get().into(), number.into(), round * WINDOW];
    fixture.tell(number, &words.map(u64::to_ne_bytes).concat());
}

/// The messages of a round, as (client, number).
///
/// They may arrive in any order: UD promises none, and on the kernel's Soft-RoCE one run saw a message before an
/// earlier one of its sender. The likely cause is a sending thread that moves to another CPU, with another backlog of
/// packets; it was not reproduced.
pub(crate) fn messages_of(round: u64) -> Vec<(u64, u64)> {
    let of_client = |number| (round * WINDOW..(round + 1) * WINDOW).map(move |n| (number, n));
    (0..SENDERS.into()).flat_map(of_client).collect()
}

/// Asserts that the message at `place` is complete, and returns its client and number.
pub(crate) fn check_message<S: Station>(
    server: &End<'_, S>,
    completion: &WorkCompletion,
    place: u64,
) -> (u64, u64) {
    assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
    let length = completion.byte_len as usize - GRH as usize;
    let message = server.bytes(place + GRH, length);
    let word = |at: usize| {
        let bytes = message[at..at + 8].try_into().expect("8 bytes");
        u64::from_ne_bytes(bytes)
    };
    let (number, n) = (word(0), word(8));
    assert!(message == numbered(number, n), "a message is torn");
    (number, n)
}
