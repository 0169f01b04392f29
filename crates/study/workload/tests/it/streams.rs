//! `ping` and `blast` over the streams of a station.

use adverb_host::{TcpDevice, threads};
use adverb_results::{Completion, Opcode, Transport};
use adverb_units::{Bytes, Span};
use adverb_workload::Program as _;
use adverb_workload::pair::{CellResult, CellSpec, Length, Request};

fn run(spec: &CellSpec) -> CellResult {
    let reports = threads(&TcpDevice, 2, |station, role| spec.run(station, role, &()));
    let reports: Result<Vec<_>, _> = reports.unwrap().into_iter().collect();
    let result = reports.unwrap_or_else(|error| panic!("{}: {error}", spec.id));
    result.into_iter().flatten().next().unwrap()
}

fn cells(change: impl Fn(&mut Request)) -> [CellSpec; 2] {
    let mut request = Request::new(Opcode::Send, Bytes::new(64));
    request.traffic.transport = Transport::Tcp;
    (request.length, request.repetitions) = (Length::Iters(200), 2);
    change(&mut request);
    let ping = CellSpec::ping(request.clone());
    request.buffers = 3;
    [ping, CellSpec::blast(request)]
}

#[test]
fn every_byte_arrives_whatever_the_size() {
    for size in [1, 2, 63, 64, 4097, (64 << 10) + 1, 1 << 20] {
        for completion in [Completion::Poll, Completion::Event] {
            for spec in cells(|p| {
                (p.size, p.completion, p.verify) = (Bytes::new(size), completion, true);
                p.length = Length::Iters(20);
            }) {
                run(&spec);
            }
        }
    }
}

#[test]
fn a_reader_of_short_messages_counts_them_all() {
    for size in [1, 5, 64, 65_535] {
        for spec in cells(|p| p.size = Bytes::new(size)) {
            let result = run(&spec);
            let repetitions = &result.metrics.repetitions;
            assert_eq!(repetitions.len(), 2);
            assert!(repetitions.iter().all(|r| r.iters == 200), "{}", spec.id);
            assert_eq!(result.params.path_mtu_bytes, None);
            assert_eq!(result.params.ack_timeout, None);
        }
    }
}

#[test]
fn a_run_that_ends_by_the_clock_ends_on_both_sides() {
    let length = Length::Duration(Span::from_ms(40));
    for spec in cells(|p| (p.length, p.verify) = (length, true)) {
        let result = run(&spec);
        assert!(result.metrics.repetitions.iter().all(|r| r.iters > 0));
    }
}
