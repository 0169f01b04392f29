//! Times of operations on the model, in addition to the rules of verbs that the conformance suite checks.

use crate::common::two::{SIGNALED, SOON, Two, alone, init};
use adverb_hwmodel::{Cluster, ModelQp, Placement, Preset};
use adverb_sim::Budget;
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressVector, CompletionQueue, Context, CreateError, Gid, Level, MemoryRegion,
    NodeChoice, NotifyOn, NumaPlacement, Operation, QpAttr, QpState, QpType, QueuePair,
    RecvRequest, RetryCount, SendFlags, SendRequest, SharedReceiveQueue, SrqCaps, Station,
    WaitError, WcOpcode, WcStatus, Work, WorkCompletion, WrId,
};

#[test]
fn an_unsignaled_write_does_not_delay_the_next_read() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        let there = two.mrs[1].remote(0);
        for round in 0..100 {
            let start = station.now();
            two.mrs[0].write(0, &[round]).unwrap();
            two.post(Operation::RdmaWrite(there), 512, SendFlags::empty());
            two.post(Operation::RdmaRead(there), 512, SIGNALED);
            assert_eq!(two.wait(0).opcode, WcOpcode::RdmaRead);
            let took = station.now() - start;
            assert!(took < Span::from_us(10), "round {round}: {took}");
            assert_eq!(two.bytes(1, 0, 1), [round]);
        }
        assert_eq!(station.context().counters()["retransmissions"], 0);
        two.nothing(0);
    });
}

/// It had no price for a core's accesses to the other node's memory.
#[test]
fn a_core_loads_more_slowly_from_memory_of_the_other_node() {
    let took = |threads, memory, from| {
        let preset = Preset::built_in("cx3_fdr_nurdma").unwrap();
        let mut cluster = Cluster::new(&preset, &[Placement::cached_on(memory)]);
        let took = cluster.spawn(cluster.machine(0), "reader", move |station| {
            station.bind(NumaPlacement { threads, memory }).unwrap();
            let start = station.now();
            station.account(Work::Load { lines: 1, from });
            station.now() - start
        });
        assert!(cluster.run(&Budget::NONE).is_finished());
        took.take().unwrap()
    };
    let extra = Preset::built_in("cx3_fdr_nurdma")
        .unwrap()
        .params
        .memory
        .numa_extra_ns;
    for from in [Level::Cache, Level::Memory] {
        for memory in [NodeChoice::Nic, NodeChoice::Other] {
            let near = took(memory, memory, from);
            assert_eq!(took(NodeChoice::Any, memory, from), near);
            let apart = match memory {
                NodeChoice::Nic => NodeChoice::Other,
                _ => NodeChoice::Nic,
            };
            assert_eq!(took(apart, memory, from), near + extra, "{memory}");
        }
    }
}

#[test]
fn rnr_retries_wait_for_the_rnr_timer() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        for qp in &two.qps {
            qp.modify(&QpAttr::to(QpState::Reset)).unwrap();
        }
        let twice = RetryCount::new(2).unwrap();
        two.join(0, QpType::Rc, twice);
        two.join(1, QpType::Rc, twice);
        let start = station.now();
        two.post(Operation::Send, 4, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RnrRetryExcErr);
        let took = station.now() - start;
        // Two RNR timers of 10 µs, and three round trips.
        assert!(
            took > Span::from_us(20) && took < Span::from_us(30),
            "{took}"
        );
    });
}

#[test]
fn an_absent_peer_exhausts_the_retries() {
    alone(|station| {
        let two = Two::new(station, QpType::Rc);
        two.qps[1].modify(&QpAttr::to(QpState::Reset)).unwrap();
        let start = station.now();
        two.post(Operation::RdmaWrite(two.mrs[1].remote(0)), 4, SIGNALED);
        assert_eq!(two.wait(0).status, WcStatus::RetryExcErr);
        // The timeout is 67 ms, with one retry.
        let took = station.now() - start;
        assert!(
            took > Span::from_ms(130) && took < Span::from_ms(140),
            "{took}"
        );
    });
}

#[test]
fn a_wait_for_an_event_times_out_and_waking_up_costs_kernel_time() {
    alone(|station| {
        let context = station.context();
        let two = Two::new(station, QpType::Rc);
        let channel = context.create_channel().unwrap();
        let cq = context.create_cq(8, Some(&channel)).unwrap();
        let pd = context.alloc_pd().unwrap();
        let init = init(&cq, QpType::Rc);
        // A queue pair that is connected with itself.
        let qp = context.create_qp(&pd, &init).unwrap();
        two.way.join(&qp, &qp, QpType::Rc, RetryCount::MAX);
        let start = station.now();
        let unarmed = station.wait_event(&channel, SOON);
        assert!(matches!(unarmed, Err(WaitError::TimedOut { .. })));
        let took = station.now() - start;
        // The timer wakes the thread, as an event does.
        let wake = took.saturating_sub(SOON);
        assert!(wake > Span::from_us(2) && wake < Span::from_us(4), "{took}");
        cq.req_notify(NotifyOn::Any).unwrap();
        let write = Operation::RdmaWrite(two.mrs[1].remote(0));
        let request = SendRequest::new(WrId(1), write, &[]).with_flags(SIGNALED);
        let before = station.cpu();
        qp.post_send(&[request]).unwrap();
        assert_eq!(station.wait_event(&channel, SOON).unwrap(), cq.id());
        let used = station.cpu().since(before);
        let all = used.user + used.system;
        assert!(all > Span::from_us(1) && all < Span::from_us(3), "{used:?}");
        // The program's cache misses after it has slept, and the kernel's part.
        assert!(used.user > Span::from_ns(800) && used.system > Span::from_ns(800));
    });
}

#[test]
fn polling_without_waiting_ends_with_a_message() {
    let preset = Preset::built_in("cx3").unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached]);
    let machine = cluster.machine(0);
    cluster.spawn(machine, "hasty", |station| {
        let cq = station.context().create_cq(8, None).unwrap();
        let mut wc = [WorkCompletion::default()];
        while cq.poll(&mut wc).unwrap() == 0 {}
    });
    let outcome = cluster.run(&Budget::NONE).to_string();
    assert!(outcome.starts_with("hasty panicked: polled"), "{outcome}");
}

#[test]
fn an_unknown_gid_is_refused() {
    alone(|station| {
        let (context, two) = (station.context(), Two::new(station, QpType::Ud));
        let nowhere = AddressVector {
            dgid: Gid([9; 16]),
            ..two.way.address
        };
        let pd = context.alloc_pd().unwrap();
        let refused = context.create_ah(&pd, &nowhere).unwrap_err();
        assert!(matches!(refused, CreateError::System { .. }), "{refused}");
    });
}

/// Lines that the responder's NIC writes for a SEND of `length`, and the time until the receiver sees it.
fn received(two: &Two<'_, '_>, length: u32) -> (u64, Span) {
    let context = two.station.context();
    let lines = || context.counters()["pcie_write_lines"];
    let payload: Vec<u8> = (1..=length as u8).collect();
    two.mrs[0].write(0, &payload).unwrap();
    two.mrs[1].write(0, &[0; 64]).unwrap();
    two.receive(1, 64);
    let before = (lines(), two.station.now());
    let sges = [two.mrs[0].sge(0, length).unwrap()];
    let request = SendRequest::new(WrId(2), Operation::Send, &sges);
    two.qps[0].post_send(&[request]).unwrap();
    let wc = two.wait(1);
    assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, length));
    assert_eq!(two.bytes(1, 0, length as usize), payload);
    (lines() - before.0, two.station.now() - before.1)
}

#[test]
fn completions_carry_inline_receives() {
    alone(|station| {
        let plain = Two::new(station, QpType::Rc);
        let inline = Two::with_inline_recv(station, QpType::Rc, 48);
        // Warm up the context cache.
        for two in [&plain, &inline, &plain, &inline] {
            received(two, 16);
        }
        // Above half a line the completion has another line; above the limit nothing changes.
        for (length, lines) in [(16, 1), (32, 1), (33, 2), (48, 2), (49, 2), (0, 1)] {
            let (ours, theirs) = (received(&inline, length), received(&plain, length));
            assert_eq!(ours.0, lines, "{length} B");
            assert_eq!(theirs.0, if length > 0 { 2 } else { 1 }, "{length} B");
            let is_faster = ours.1 < theirs.1;
            assert_eq!(
                is_faster,
                (1..=48).contains(&length),
                "{length} B: {ours:?}, {theirs:?}"
            );
        }
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let init = init(&plain.cqs[0], QpType::Rc);
        let refused = context.create_qp_with_inline_recv(&pd, &init, 65);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "max_inl_recv 65 is outside this device's range 0..=64"
        );
    });
}

/// The source of a receive makes no difference: the NIC prefetches WQEs of both.
#[test]
fn shared_and_own_receives_take_equal_time() {
    alone(|station| {
        let (context, two) = (station.context(), Two::new(station, QpType::Rc));
        two.receive(1, 64);
        let begin = station.now();
        two.post(Operation::Send, 8, SIGNALED);
        two.wait(1);
        let own = station.now() - begin;
        let other = Two::new(station, QpType::Rc);
        let sizes = SrqCaps {
            max_wr: 4,
            max_sge: 1,
        };
        let pd = context.alloc_pd().unwrap();
        let srq = context.create_srq(&pd, &sizes).unwrap();
        let init = init(&other.cqs[1], QpType::Rc);
        let to: ModelQp = context.create_qp_with_srq(&pd, &init, &srq).unwrap();
        let from = &other.qps[0];
        from.modify(&QpAttr::to(QpState::Reset)).unwrap();
        other.way.join(from, &to, QpType::Rc, RetryCount::MAX);
        other.way.join(&to, from, QpType::Rc, RetryCount::MAX);
        let mr = context.alloc_mr(&pd, Bytes::new(64), AccessFlags::all());
        let mr = mr.unwrap();
        let sges = [mr.sge(0, 64).unwrap()];
        srq.post_recv(&[RecvRequest::new(WrId(1), &sges)]).unwrap();
        let begin = station.now();
        other.post(Operation::Send, 8, SIGNALED);
        other.wait(1);
        let shared = station.now() - begin;
        let little = Span::from_ns(60);
        assert!(shared < own + little && own < shared + little);
    });
}
