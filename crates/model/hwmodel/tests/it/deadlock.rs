//! Programs that deadlock: the run ends and names the waiting roles and what they wait for.

use adverb_hwmodel::{Cluster, ModelStation, Placement, Preset};
use adverb_sim::{Budget, Outcome};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, CompletionQueue, Context, MemoryRegion, NotifyOn, Operation, QpType, QueuePair,
    RemoteAddress, RetryCount, Rkey, RoleId, SendRequest, Station, WorkCompletion, WrId,
};

use crate::common::two::{Loop, SIGNALED, SOON, alone, init};

/// Runs two roles that deadlock; returns the outcome's text.
fn deadlock(
    client: impl for<'y> FnOnce(&ModelStation<'y>) + 'static,
    server: impl for<'y> FnOnce(&ModelStation<'y>) + 'static,
) -> String {
    let preset = Preset::built_in("cx3").unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached; 2]);
    let machines = [cluster.machine(0), cluster.machine(1)];
    cluster.spawn(machines[0], "client", move |station| client(station));
    cluster.spawn(machines[1], "server", move |station| server(station));
    let outcome = cluster.run(&Budget::NONE);
    assert!(matches!(outcome, Outcome::Deadlock(_)), "{outcome}");
    outcome.to_string()
}

fn wait_for_a_completion(station: &ModelStation<'_>) {
    let cq = station.context().create_cq(4, None).unwrap();
    let mut wc = [WorkCompletion::default()];
    let _ = station.spin(&cq, &mut wc, Span::MAX);
}

fn wait_for_memory(station: &ModelStation<'_>) {
    let context = station.context();
    let pd = context.alloc_pd().unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mr = context.alloc_mr(&pd, Bytes::new(64), access).unwrap();
    assert_eq!(mr.load(63).unwrap(), 0);
    station.compute(Span::from_us(2));
    let _ = station.spin_memory(&mr, 63, 1, Span::MAX);
}

fn wait_for_an_event(station: &ModelStation<'_>) {
    let channel = station.context().create_channel().unwrap();
    let cq = station.context().create_cq(4, Some(&channel)).unwrap();
    cq.req_notify(NotifyOn::Any).unwrap();
    let _ = station.wait_event(&channel, Span::MAX);
}

#[test]
fn a_completion_and_a_change_of_memory_that_never_come() {
    let report = deadlock(wait_for_a_completion, wait_for_memory);
    let begin =
        "deadlock: nothing can happen any more; client waits for a completion in queue 0 since ";
    assert!(report.starts_with(begin), "{report}");
    let (_, server) = report
        .split_once("; server waits for a change of memory at 0x")
        .unwrap();
    // It created its objects and computed before.
    let (_, since) = server.split_once(" since ").unwrap();
    assert!(since.ends_with(" µs"), "{report}");
}

#[test]
fn an_event_that_never_comes() {
    let receive = |station: &ModelStation<'_>| {
        let _ = station.receive(RoleId(0), Span::MAX);
    };
    let report = deadlock(wait_for_an_event, receive);
    for waits in [
        "client waits for an event on completion channel 0 since ",
        "server waits for a message out of band for server since ",
    ] {
        assert!(report.contains(waits), "{report}");
    }
}

/// An error also raises the event of a queue that is armed for solicited completions while the NIC writes it. The role waited
/// indefinitely.
#[test]
fn an_error_raises_the_event_of_a_queue_armed_while_it_is_written() {
    alone(|station| {
        let context = station.context();
        let pd = context.alloc_pd().unwrap();
        let all = AccessFlags::all();
        let mr = context.alloc_mr(&pd, Bytes::new(64), all).unwrap();
        let mut waits = 0;
        for delay in (0..100).map(|n| Span::from_ns(50) * n) {
            let channel = context.create_channel().unwrap();
            let cq = context.create_cq(4, Some(&channel)).unwrap();
            let qps = [0, 1].map(|_| context.create_qp(&pd, &init(&cq, QpType::Rc)).unwrap());
            for (one, other) in [(0, 1), (1, 0)] {
                let way = Loop::of(context);
                way.join(&qps[one], &qps[other], QpType::Rc, RetryCount::MAX);
            }
            let nowhere = RemoteAddress {
                addr: 0,
                rkey: Rkey(0),
            };
            let sges = [mr.sge(0, 8).unwrap()];
            let write = SendRequest::new(WrId(1), Operation::RdmaWrite(nowhere), &sges);
            qps[0].post_send(&[write.with_flags(SIGNALED)]).unwrap();
            station.sleep(delay);
            cq.req_notify(NotifyOn::Solicited).unwrap();
            let mut wc = [WorkCompletion::default()];
            if cq.poll(&mut wc).unwrap() == 0 {
                let event = station.wait_event(&channel, SOON);
                event.unwrap_or_else(|error| panic!("armed after {delay}: {error}"));
                waits += 1;
            }
        }
        assert!((10..90).contains(&waits), "{waits}");
    });
}
