//! Datagrams that do not arrive: their sender is not notified.

use adverb_units::Bytes;
use adverb_verbs::{
    CompletionQueue, Operation, PostErrorCause, QpAttr, QpState, QueuePair, Station, WcStatus,
    WorkCompletion, WrId,
};

use crate::node::{Node, OTHER_QKEY, OWN_QKEY, QKEY, datagram_qp, to, to_rts};
use crate::pair::{BLANK, SIGNALED, Setup};
use crate::{Fixture, Verdict};

/// A datagram that finds no receive is lost, and the next one arrives (IBTA vol. 1, 9.8.3.1).
pub fn a_datagram_without_a_receive_is_dropped<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let there = to(&ah, b.qpn(), QKEY);
    for i in 0..3 {
        a.loses(there, &b);
        b.end.recv(i, (0, 256));
        b.end.expect_quiet();
        a.reaches(there, &b, i);
    }
    Ok(())
}

/// A datagram with another queue key is dropped and takes no receive (IBTA vol. 1, 10.2.5).
pub fn a_datagram_with_another_queue_key_is_dropped<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    b.end.recv(7, (0, 256));
    for qkey in [OTHER_QKEY, 0, !OWN_QKEY] {
        a.loses(to(&ah, b.qpn(), qkey), &b);
    }
    a.reaches(to(&ah, b.qpn(), QKEY), &b, 7);
    // The key counts that the receiver has now.
    let mut attr = QpAttr::default();
    attr.qkey = Some(OTHER_QKEY);
    b.end.qp.modify(&attr).expect("change the queue key");
    b.end.recv(8, (0, 256));
    a.loses(to(&ah, b.qpn(), QKEY), &b);
    a.reaches(to(&ah, b.qpn(), OTHER_QKEY), &b, 8);
    Ok(())
}

/// A request's queue key with its highest bit set means the queue key of the sender's queue pair (IBTA
/// vol. 1, 3.5.3).
pub fn a_queue_key_with_the_high_bit_is_the_senders_own<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    b.end.recv(7, (0, 256));
    b.end.recv(8, (0, 256));
    a.reaches(to(&ah, b.qpn(), OWN_QKEY), &b, 7);
    let mut attr = QpAttr::default();
    attr.qkey = Some(OTHER_QKEY);
    a.end.qp.modify(&attr).expect("change the queue key");
    a.loses(to(&ah, b.qpn(), OWN_QKEY | QKEY), &b);
    a.reaches(to(&ah, b.qpn(), QKEY), &b, 8);
    Ok(())
}

/// A datagram to a destroyed queue pair, or to one that is not UD, is dropped.
pub fn a_datagram_to_no_queue_pair_is_dropped<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    let setup = Setup::default();
    let gone = datagram_qp(&b.end, &setup)?;
    to_rts(&b.end.context, &gone, QKEY);
    let number = gone.qpn();
    drop(gone);
    b.end.recv(7, (0, 256));
    a.loses(to(&ah, number, QKEY), &b);
    let connection = b.end.another_qp(&setup);
    a.loses(to(&ah, connection.qpn(), QKEY), &b);
    a.reaches(to(&ah, b.qpn(), QKEY), &b, 7);
    Ok(())
}

/// A peer that is gone is not missed.
pub fn a_datagram_to_a_port_that_is_gone_is_dropped<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let (ah, number) = (a.ah(&b)?, b.qpn());
    b.end.recv(7, (0, 256));
    a.reaches(to(&ah, number, QKEY), &b, 7);
    drop(b);
    for i in 0..3 {
        a.send(i, Operation::Send, (0, 64), to(&ah, number, QKEY));
        a.end.expect_sent(&[(i, WcStatus::Success)]);
    }
    a.end.expect_quiet();
    a.end.expect_state(QpState::Rts);
    Ok(())
}

/// A message of more than the port's MTU never arrives: it is refused, fails or is not sent (IBTA
/// vol. 1, 9.8.3: a datagram is one packet; by C10-93.1.1 it vanishes).
pub fn a_datagram_beyond_the_mtu_never_arrives<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
    let ah = a.ah(&b)?;
    b.end.recv(7, (0, 2 * a.mtu));
    let request = (1, Operation::Send, (0, a.mtu + 1), SIGNALED);
    match a.try_send(request, to(&ah, b.qpn(), QKEY)) {
        Ok(()) => {
            let status = a.end.sent(1)[0].status;
            let fits = matches!(status, WcStatus::LocLenErr | WcStatus::Success);
            assert!(fits, "{status}");
        }
        Err(e) => {
            let (given, max) = (u64::from(a.mtu) + 1, u64::from(a.mtu));
            let too_long = PostErrorCause::MessageTooLong {
                given: Bytes::new(given),
                max: Bytes::new(max),
            };
            assert_eq!(e.cause, too_long);
        }
    }
    b.end.expect_quiet();
    Ok(())
}

/// A receive that is too small for header and payload: the sender succeeds. The receiver drops the
/// message, or completes the receive with a local length error (IBTA vol. 1, 11.6.2) and fails;
/// nothing beyond the receive is written.
pub fn a_receive_too_small_for_its_datagram_fails_the_receiver_alone<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    for room in [39, 40, 103] {
        let (a, b) = (Node::new(fixture)?, Node::new(fixture)?);
        let ah = a.ah(&b)?;
        a.end.fill(1);
        b.end.fill(BLANK);
        b.end.recv(7, (0, room));
        b.end.recv(8, (1024, 256));
        a.send(1, Operation::Send, (0, 64), to(&ah, b.qpn(), QKEY));
        a.end.expect_sent(&[(1, WcStatus::Success)]);
        a.end.expect_quiet();
        let mut got = [WorkCompletion::default(); 2];
        let count = b.end.recv_cq.poll(&mut got).expect("poll");
        if count > 0 {
            assert_eq!(
                (got[0].wr_id, got[0].status),
                (WrId(7), WcStatus::LocLenErr)
            );
            b.end.expect_state(QpState::Err);
        }
        let beyond = b.end.all_bytes();
        assert!(beyond[room as usize..].iter().all(|byte| *byte == BLANK));
        a.end.expect_state(QpState::Rts);
    }
    Ok(())
}
