//! Inline payload: copied while the request is posted.

use adverb_verbs::{
    Context, CreateError, Lkey, MemoryRegion, Operation, PostErrorCause, QpCaps, QpType, QueuePair,
    SendFlags, SendRequest, Station, WcStatus, WrId,
};

use crate::pair::{BLANK, End, Pair, SIGNALED, Setup};
use crate::{Fixture, NotSupported, Verdict};

const INLINE: SendFlags = SIGNALED.union(SendFlags::INLINE);

/// A pair that takes inline payload, and how much.
fn with_inline<S: Station>(fixture: Fixture<'_, S>) -> Result<(Pair<'_, S>, u32), NotSupported> {
    let max = fixture.open().caps().max_inline_data;
    if max == 0 {
        return Err(NotSupported("inline data"));
    }
    let setup = Setup {
        caps: QpCaps {
            max_inline_data: max.min(200),
            ..Setup::default().caps
        },
        ..Setup::default()
    };
    let pair = Pair::with(fixture, setup);
    let max = pair.a.qp.caps().max_inline_data;
    Ok((pair, max))
}

/// The buffer of an inline request may be overwritten as soon as the post returns, whatever its
/// length (ibv_post_send(3), IBV_SEND_INLINE).
pub fn an_inline_buffer_is_free_when_the_post_returns<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (pair, max) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    for length in 0..=max {
        b.fill(BLANK);
        let sent = a.fill_pattern(length.into());
        b.recv(9, (1, length));
        a.post(1, Operation::Send, (3, length), INLINE);
        a.post(
            2,
            Operation::RdmaWrite(b.mr.remote(4096)),
            (3, length),
            INLINE,
        );
        a.fill(BLANK);
        a.expect_sent(&[1, 2].map(|i| (i, WcStatus::Success)));
        b.expect_received(&[(9, WcStatus::Success)]);
        let length = length as usize;
        assert_eq!(b.bytes(1, length), sent[3..3 + length]);
        assert_eq!(b.bytes(4096, length), sent[3..3 + length]);
        assert_eq!(b.bytes(4096 + length as u64, 8), [BLANK; 8]);
    }
    Ok(())
}

/// The same where the request has to wait for its receive, alone or behind others
/// (ibv_post_send(3), IBV_SEND_INLINE).
pub fn an_inline_buffer_is_free_while_the_request_waits<S: Station>(
    fixture: Fixture<'_, S>,
) -> Verdict {
    let (pair, max) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    for i in 0..10u8 {
        a.fill(i);
        a.post(i.into(), Operation::Send, (0, max), INLINE);
    }
    a.fill(BLANK);
    for i in 0..10u8 {
        b.recv(i.into(), (0, max));
        a.expect_sent(&[(i.into(), WcStatus::Success)]);
        b.expect_received(&[(i.into(), WcStatus::Success)]);
        assert_eq!(b.bytes(0, max as usize), vec![i; max as usize]);
    }
    Ok(())
}

/// An inline request gathers its pieces like any other, also when it waits (ibv_post_send(3)).
pub fn inline_pieces_are_gathered<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, max) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    if max < 14 {
        return Err(NotSupported("14 B of inline data"));
    }
    let bytes = a.fill_pattern(1);
    let pieces = [(100, 5), (50, 0), (10, 7), (200, 2)];
    let sges = pieces.map(|(at, n)| a.mr.sge(at, n).expect("within the region"));
    let payload = [&bytes[100..105], &bytes[10..17], &bytes[200..202]].concat();
    for waits in [false, true] {
        b.fill(BLANK);
        if !waits {
            b.recv(9, (0, 64));
        }
        let request = SendRequest::new(WrId(1), Operation::Send, &sges).with_flags(INLINE);
        a.qp.post_send(&[request]).expect("post");
        if waits {
            b.recv(9, (0, 64));
        }
        a.expect_sent(&[(1, WcStatus::Success)]);
        assert_eq!(b.received(1)[0].byte_len, 14);
        assert_eq!(b.bytes(0, 14), payload);
        assert_eq!(b.bytes(14, 8), [BLANK; 8]);
    }
    Ok(())
}

/// The program's CPU reads inline payload, so its key is not checked (ibv_post_send(3)).
pub fn inline_needs_no_key<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, _) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    a.fill(1);
    let sges = [a
        .mr
        .sge(0, 8)
        .expect("within the region")
        .with_lkey(Lkey(0))];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges).with_flags(INLINE);
    b.recv(9, (0, 64));
    a.qp.post_send(&[request]).expect("post");
    a.qp.post_send(&[request]).expect("post");
    b.recv(10, (8, 64));
    a.expect_sent(&[1, 1].map(|i| (i, WcStatus::Success)));
    b.expect_received(&[9, 10].map(|i| (i, WcStatus::Success)));
    assert_eq!(b.bytes(0, 16), [1; 16]);
    Ok(())
}

/// A READ cannot be inline: the post is refused (ibv_post_send(3)).
pub fn an_inline_read_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, _) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    let read = Operation::RdmaRead(b.mr.remote(0));
    let refused = a.try_post(1, read, (0, 8), INLINE).unwrap_err();
    assert_eq!(
        (refused.index, refused.cause),
        (0, PostErrorCause::InlineRead)
    );
    a.expect_quiet();
    Ok(())
}

/// Inline payload beyond what the queue pair was made for is refused, and names both lengths
/// (ibv_post_send(3), ibv_create_qp(3)).
pub fn inline_beyond_the_maximum_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (pair, max) = with_inline(fixture)?;
    let (a, b) = (&pair.a, &pair.b);
    b.fill(BLANK);
    let write = Operation::RdmaWrite(b.mr.remote(0));
    let refused = a.try_post(1, write, (0, max + 1), INLINE).unwrap_err();
    let (given, max) = (u64::from(max) + 1, max.into());
    let cause = PostErrorCause::InlineTooLong {
        given: adverb_units::Bytes::new(given),
        max: adverb_units::Bytes::new(max),
    };
    assert_eq!((refused.index, refused.cause), (0, cause));
    a.expect_quiet();
    assert_eq!(b.bytes(0, 8), [BLANK; 8]);
    Ok(())
}

/// A device without inline receive refuses to create such a queue pair (`max_inl_recv` of vendors' verbs).
pub fn inline_receives_are_made_or_refused_by_name<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    let init = end.init(QpType::Rc, Setup::default().caps);
    let make = |max| end.context.create_qp_with_inline_recv(&end.pd, &init, max);
    make(0).expect("no inline receive is what all devices have");
    match make(16) {
        Ok(_) => Ok(()),
        Err(CreateError::Unsupported(missing)) => {
            assert_eq!(missing.feature, "inline receive");
            assert_eq!(missing.device, end.context.name().to_string());
            Ok(())
        }
        Err(other) => panic!("{other}"),
    }
}
