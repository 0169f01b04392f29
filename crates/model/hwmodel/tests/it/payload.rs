//! The data of long messages are those that their memory had when the NIC read it.

use adverb_hwmodel::{Cluster, ModelMr, ModelStation, Placement, Preset};
use adverb_sim::{Budget, Outcome};
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, Context, MemoryRegion, Operation, QpType, QueuePair, RetryCount, SendRequest, Sge,
    Station, WcStatus, WorkCompletion, WrId,
};

use crate::common::two::{Loop, SIGNALED, init};

const SIZE: usize = 1 << 16;
/// The NIC has read the memory, and most of the data are still in flight.
const IN_FLIGHT: Span = Span::from_us(5);

/// What happens to the source while its data are in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    /// The program writes its second half.
    Write,
    /// An atomic operation changes its last word.
    Add,
    /// It is deregistered.
    Deregister,
}

fn run(machines: usize, is_read: bool, change: Change) {
    let preset = Preset::built_in("cx3").unwrap();
    let mut cluster = Cluster::new(&preset, &vec![Placement::Cached; machines]);
    let (here, there) = (cluster.machine(0), cluster.machine(machines as u32 - 1));
    cluster.spawn(here, "alone", move |station: &ModelStation<'_>| {
        let all = AccessFlags::all();
        let contexts = [station.open(here), station.open(there)];
        let pds = [0, 1].map(|end| contexts[end].alloc_pd().unwrap());
        let cqs = [0, 1].map(|end: usize| contexts[end].create_cq(64, None).unwrap());
        let make = |end: usize| {
            let init = init(&cqs[end], QpType::Rc);
            contexts[end].create_qp(&pds[end], &init).unwrap()
        };
        let qps = [make(0), make(1)];
        for end in [0, 1] {
            let way = Loop::of(&contexts[1 - end]);
            way.join(&qps[end], &qps[1 - end], QpType::Rc, RetryCount::MAX);
        }
        let region = |end: usize| {
            let length = Bytes::new(SIZE as u64);
            contexts[end].alloc_mr(&pds[end], length, all).unwrap()
        };
        let mrs: [ModelMr; 2] = [region(0), region(1)];
        let (source, target) = if is_read { (1, 0) } else { (0, 1) };
        // Registering takes longer than the transfer.
        let adder = 1 - source;
        let result = region(adder);
        mrs[source].write(0, &[1; SIZE]).unwrap();
        let remote = mrs[1].remote(0);
        let operation = match is_read {
            true => Operation::RdmaRead(remote),
            false => Operation::RdmaWrite(remote),
        };
        let post = |end: usize, operation, sge: Sge<'_>| {
            let sges = [sge];
            let request = SendRequest::new(WrId(7), operation, &sges).with_flags(SIGNALED);
            qps[end].post_send(&[request]).unwrap();
        };
        post(0, operation, mrs[0].sge(0, SIZE as u32).unwrap());
        if change == Change::Add {
            let word = mrs[source].remote(SIZE as u64 - 8);
            post(
                adder,
                Operation::FetchAdd(word, 1),
                result.sge(0, 8).unwrap(),
            );
        }
        station.sleep(IN_FLIGHT);
        let mut mrs = mrs.map(Some);
        match change {
            Change::Nothing | Change::Add => {}
            Change::Write => {
                let source = mrs[source].as_ref().unwrap();
                source.write(SIZE as u64 / 2, &[2; SIZE / 2]).unwrap();
            }
            Change::Deregister => drop(mrs[source].take()),
        }
        let mut wc = [WorkCompletion::default()];
        let waited = station.spin(&cqs[0], &mut wc, Span::from_ms(1));
        assert_eq!((waited.unwrap(), wc[0].status), (1, WcStatus::Success));
        let mut found = vec![0; SIZE];
        mrs[target].as_ref().unwrap().read(0, &mut found).unwrap();
        let whole = found.iter().all(|byte| *byte == 1);
        assert!(whole, "{machines} machines, READ {is_read}, {change:?}");
    });
    let outcome = cluster.run(&Budget::NONE);
    assert_eq!(outcome, Outcome::Finished, "{outcome}");
}

#[test]
fn changes_of_the_source_in_flight_do_not_reach_the_target() {
    use Change::{Add, Deregister, Nothing, Write};
    for machines in [1, 2] {
        for is_read in [false, true] {
            for change in [Nothing, Write, Add, Deregister] {
                run(machines, is_read, change);
            }
        }
    }
}
