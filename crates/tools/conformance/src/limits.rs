//! Sizes, and objects that do not belong together.

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, CompletionQueue, Context, CreateError, MemoryRegion, PortNum, PostErrorCause,
    QpCaps, QpInit, QpType, QueuePair, RecvRequest, RegisterError, Station, WcStatus, WrId,
};

use crate::end::Qp;
use crate::pair::{ALL, End, Pair, SIGNALED, Setup, connect};
use crate::{Fixture, Verdict};

fn create<S: Station>(end: &End<'_, S>, caps: QpCaps) -> Result<Qp<S>, CreateError> {
    let init = end.init(QpType::Rc, caps);
    end.context.create_qp(&end.pd, &init)
}

/// `error` names the value and the range that it is outside of.
#[track_caller]
fn assert_out_of_range(error: &CreateError, asked: u64) {
    match error {
        CreateError::OutOfRange {
            value, min, max, ..
        } => {
            assert_eq!(*value, asked);
            assert!(!(min..=max).contains(&value), "{error}");
        }
        other => panic!("{other}"),
    }
}

/// A completion queue has 1 to max_cqe entries (ibv_create_cq(3)).
pub fn completion_queue_sizes_are_checked<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let context = fixture.open();
    let max = context.caps().max_cqe;
    for entries in [0, max + 1] {
        let error = context
            .create_cq(entries, None)
            .err()
            .expect("a size out of range");
        assert_out_of_range(&error, entries.into());
    }
    let smallest = context.create_cq(1, None).expect("one entry");
    assert!(smallest.entries() >= 1);
    let large = context
        .create_cq(max.min(1 << 16), None)
        .expect("many entries");
    assert!(large.entries() >= max.min(1 << 16) && large.id() != smallest.id());
    Ok(())
}

/// One of the sizes of a queue pair.
type Size = fn(&mut QpCaps) -> &mut u32;

/// Sizes of a queue pair beyond the device's limits are refused, one by one (ibv_create_qp(3)).
pub fn queue_pair_sizes_are_checked<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    let limits = end.context.caps().clone();
    let (wr, sge) = (limits.max_qp_wr + 1, limits.max_sge + 1);
    let cases: [(Size, u32); 5] = [
        (|caps| &mut caps.max_send_wr, wr),
        (|caps| &mut caps.max_recv_wr, wr),
        (|caps| &mut caps.max_send_sge, sge),
        (|caps| &mut caps.max_recv_sge, sge),
        (|caps| &mut caps.max_inline_data, limits.max_inline_data + 1),
    ];
    for (size, asked) in cases {
        let mut caps = Setup::default().caps;
        *size(&mut caps) = asked;
        let error = create(&end, caps).err().expect("a size out of range");
        assert_out_of_range(&error, asked.into());
    }
    // Limits hold one by one, and only as far as there is memory.
    let long = limits.max_qp_wr.min(1 << 13);
    create(&end, QpCaps::new(long, long)).expect("long queues");
    Ok(())
}

/// A region has 1 byte to max_mr_size (ibv_reg_mr(3)).
pub fn region_sizes_are_checked<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    let max = end.context.caps().max_mr_size;
    for length in [Bytes::new(0), Bytes::new(max.get() + 1)] {
        let error = end
            .context
            .alloc_mr(&end.pd, length, ALL)
            .err()
            .expect("out of range");
        let is_named = matches!(
            error,
            RegisterError::Length { length: l, max: m } if (l, m) == (length, max)
        );
        assert!(is_named, "{error}");
    }
    let one = end
        .context
        .alloc_mr(&end.pd, Bytes::new(1), ALL)
        .expect("one byte");
    assert_eq!(one.length(), Bytes::new(1));
    assert!(one.load(0) == Ok(0) && one.load(1).is_err());
    Ok(())
}

/// Remote writing without local writing is refused (IBTA vol. 1, 10.6.3; ibv_reg_mr(3)).
pub fn inconsistent_access_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let error = end.context.alloc_mr(&end.pd, Bytes::new(64), access);
        let error = error.err().expect("inconsistent access");
        assert!(
            matches!(error, RegisterError::Access { access: a } if a == access),
            "{error}"
        );
    }
    Ok(())
}

/// A queue pair's sizes are at least those asked for (ibv_create_qp(3)).
pub fn a_queue_pair_has_at_least_what_was_asked<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    let limits = end.context.caps().clone();
    for (wr, sge) in [(1, 1), (3, 2), (100, 5)] {
        let asked = QpCaps {
            max_send_wr: wr,
            max_recv_wr: wr,
            max_send_sge: sge.min(limits.max_sge),
            max_recv_sge: sge.min(limits.max_sge),
            max_inline_data: wr.min(limits.max_inline_data),
        };
        let got = create(&end, asked).expect("a queue pair").caps();
        assert!(got.max_send_wr >= asked.max_send_wr && got.max_recv_wr >= asked.max_recv_wr);
        assert!(got.max_send_sge >= asked.max_send_sge && got.max_recv_sge >= asked.max_recv_sge);
        assert!(got.max_inline_data >= asked.max_inline_data);
    }
    Ok(())
}

/// A request with more pieces than the queue pair was made for is refused (ibv_post_send(3),
/// ibv_post_recv(3)).
pub fn more_pieces_than_asked_are_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let pair = Pair::new(fixture);
    let (a, b) = (&pair.a, &pair.b);
    let max = b.qp.caps().max_recv_sge;
    let sges = vec![b.mr.sge(0, 1).expect("within the region"); max as usize + 1];
    let refused =
        b.qp.post_recv(&[RecvRequest::new(WrId(1), &sges)])
            .unwrap_err();
    let given = sges.len();
    assert_eq!(refused.cause, PostErrorCause::TooManySges { given, max });
    let all = &sges[1..];
    b.qp.post_recv(&[RecvRequest::new(WrId(2), all)])
        .expect("as many as asked");
    a.post(1, adverb_verbs::Operation::Send, (0, 1), SIGNALED);
    b.expect_received(&[(2, WcStatus::Success)]);
    Ok(())
}

/// A queue pair may lack a queue; posting to it is refused (ibv_create_qp(3)).
pub fn empty_queues_take_nothing<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let setup = Setup {
        caps: QpCaps {
            max_send_wr: 0,
            max_recv_wr: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline_data: 0,
        },
        ..Setup::default()
    };
    let end = End::new(fixture, &Setup::default());
    let (Ok(one), Ok(other)) = (create(&end, setup.caps), create(&end, setup.caps)) else {
        return Err(crate::NotSupported("queue pairs without queues"));
    };
    connect((&end.context, &one), (&end.context, &other), &setup);
    if one.caps() == setup.caps {
        let send = adverb_verbs::SendRequest::new(WrId(1), adverb_verbs::Operation::Send, &[]);
        let refused = one.post_send(&[send]).unwrap_err();
        assert!(
            matches!(refused.cause, PostErrorCause::QueueFull { depth: 0, .. }),
            "{refused}"
        );
        let refused = one
            .post_recv(&[RecvRequest::new(WrId(1), &[])])
            .unwrap_err();
        assert!(
            matches!(refused.cause, PostErrorCause::QueueFull { depth: 0, .. }),
            "{refused}"
        );
    }
    Ok(())
}

/// Objects of two contexts cannot be combined; the error names the foreign one
/// ([`CreateError::Foreign`]).
pub fn objects_of_another_context_are_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let (mine, other) = (
        End::new(fixture, &Setup::default()),
        End::new(fixture, &Setup::default()),
    );
    let init = |send_cq, recv_cq| QpInit {
        qp_type: QpType::Rc,
        send_cq,
        recv_cq,
        caps: Setup::default().caps,
    };
    let refused = [
        mine.context
            .create_qp(&other.pd, &init(&*mine.send_cq, &*mine.recv_cq))
            .err(),
        mine.context
            .create_qp(&mine.pd, &init(&*other.send_cq, &*mine.recv_cq))
            .err(),
        mine.context
            .create_qp(&mine.pd, &init(&*mine.send_cq, &*other.recv_cq))
            .err(),
        mine.context.create_cq(1, Some(&other.channel)).err(),
    ];
    for (i, error) in refused.into_iter().enumerate() {
        assert!(
            matches!(error, Some(CreateError::Foreign { .. })),
            "{i}: {error:?}"
        );
    }
    let region = mine.context.alloc_mr(&other.pd, Bytes::new(64), ALL);
    assert!(
        region.is_err(),
        "a region in another context's protection domain"
    );
    Ok(())
}

/// A port that the device does not have is refused (ibv_query_port(3)).
pub fn another_port_is_refused<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let context = fixture.open();
    context.port(context.port_num()).expect("the port in use");
    assert!(context.port(PortNum(0)).is_err() && context.port(PortNum(200)).is_err());
    Ok(())
}

/// Allocated memory is zeroed, and its owner cannot reach beyond it (the seam's rules for
/// [`Context::alloc_mr`] and [`MemoryRegion`]).
pub fn a_region_is_zeroed_and_bounded<S: Station>(fixture: Fixture<'_, S>) -> Verdict {
    let end = End::new(fixture, &Setup::default());
    for length in [1, 4095, 4096, 100_000] {
        let mr = end
            .context
            .alloc_mr(&end.pd, Bytes::new(length), ALL)
            .expect("a region");
        let mut bytes = vec![1; length as usize];
        mr.read(0, &mut bytes).expect("within the region");
        assert!(bytes.iter().all(|byte| *byte == 0));
        mr.write(length - 1, &[9]).expect("within the region");
        assert_eq!(mr.load(length - 1), Ok(9));
        assert!(mr.read(1, &mut bytes).is_err() && mr.write(length, &[1]).is_err());
        assert!(mr.load(u64::MAX).is_err() && mr.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(mr.sge(0, length as u32).is_ok() && mr.sge(1, length as u32).is_err());
        assert!(mr.sge(length, 0).is_ok() && mr.sge(length + 1, 0).is_err());
        assert_ne!((mr.lkey().0, mr.rkey().0), (0, 0));
    }
    Ok(())
}
