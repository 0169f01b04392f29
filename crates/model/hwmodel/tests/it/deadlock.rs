//! Programs that deadlock: the run ends and names the waiting roles and what they wait for.

use adverb_hwmodel::{Cluster, ModelStation, Placement, Preset};
use adverb_sim::{Budget, Outcome};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, CompletionQueue, Context, MemoryRegion, NotifyOn, RoleId, Station, WorkCompletion,
};

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
