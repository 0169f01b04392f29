//! Services in memory, on threads over the user-space device and on the model: every number once, every
//! record whole, every lock freed.

use crate::common::{on_model, on_threads};
use adverb_patterns::{
    Items, NumberSet, OneSided, OneSidedClients, Posting, Puts, Remote, Schedule, ServiceTally,
    Timing, run_onesided,
};
use adverb_results::LatencyRecorder;
use adverb_units::Span;
use adverb_verbs::{PathOptions, RoleId};

fn program(remote: Remote, posting: Posting) -> OneSided {
    OneSided {
        remote,
        clients: OneSidedClients {
            threads: 3,
            machines: 2,
            qps: 2,
            outstanding: 10,
            posting,
            rd_atomic: 16,
            timing: Timing::Each,
            seed: 3,
        },
        path: PathOptions::default(),
    }
}

fn items(records: &[u32], mean_reads: f64, put_ratio: f64) -> Remote {
    Remote::Items(Items {
        items: 200,
        records: records.to_vec(),
        mean_reads,
        put_ratio,
        puts: Puts::Lock,
    })
}

fn on_connect_ib(program: &OneSided, schedule: Schedule) -> Vec<ServiceTally> {
    let machines: Vec<u32> = (0..program.members())
        .map(|role| program.machine(RoleId(role)))
        .collect();
    let program = program.clone();
    let (tallies, _) = on_model("connect_ib", &machines, move |station, role| {
        run_onesided(station, &program, role, schedule).unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    tallies
}

fn everywhere(program: &OneSided) -> [Vec<ServiceTally>; 2] {
    let schedule = Schedule {
        warm_up: Span::from_ms(1),
        measured: Span::from_ms(30),
    };
    let soft = on_threads(program.members(), |station, role| {
        run_onesided(station, program, role, schedule).unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    let schedule = Schedule {
        warm_up: Span::from_us(30),
        measured: Span::from_us(200),
    };
    [soft, on_connect_ib(program, schedule)]
}

#[test]
fn a_counter_in_memory_hands_out_every_number_once() {
    for posting in [Posting::Single, Posting::List(4), Posting::List(16)] {
        let [soft, model] = everywhere(&program(Remote::Counter, posting));
        for tally in &model[1..] {
            // The list that ends after the measured time is counted in part. On threads that may be any number.
            let timed = tally.waits.as_ref().unwrap().len();
            assert!(timed > 0 && timed + 16 >= tally.requests);
        }
        for tallies in [soft, model] {
            let mut all = NumberSet::default();
            let clients = &tallies[1..];
            clients.iter().for_each(|tally| all.merge(tally.handed));
            // A thread may get no time while requests are timed.
            let timed = clients.iter().filter_map(|tally| tally.waits.as_ref());
            assert!(timed.map(LatencyRecorder::len).sum::<u64>() > 0);
            assert!(all.is_exactly_once_from(0), "{posting:?}");
        }
    }
}

/// One of the NIC's two ports always got the counter: half of the clients got no answer, and the latency looked half as
/// long as it was.
#[test]
fn clients_of_both_ports_share_a_counter() {
    let mut program = program(Remote::Counter, Posting::Single);
    (program.clients.threads, program.clients.machines) = (20, 1);
    (program.clients.qps, program.clients.outstanding) = (1, 8);
    let schedule = Schedule {
        warm_up: Span::from_us(500),
        measured: Span::from_ms(2),
    };
    let in_flight = |tally: &ServiceTally| {
        let waits = tally.waits.as_ref().unwrap();
        tally.per_second().unwrap() * waits.mean_ns().unwrap() / 1e9
    };
    for tally in &on_connect_ib(&program, schedule)[1..] {
        let law = in_flight(tally);
        assert!((law / 8.0 - 1.0).abs() < 0.03, "{law} in flight");
    }
}

/// Each end sent a message for each queue pair before it received any: from 280 on, both waited for room.
#[test]
fn a_client_connects_1024_queue_pairs_to_each_owner() {
    for remote in [Remote::Counter, items(&[64], 1.0, 0.5)] {
        let mut program = program(remote, Posting::List(4));
        (program.clients.threads, program.clients.qps) = (1, 1024);
        for tallies in everywhere(&program) {
            let client = &tallies[1];
            let done = client.handed.count + client.values_checked + client.locked;
            assert!(done > 0, "{:?}", program.remote);
        }
    }
}

#[test]
fn items_are_read_by_dependent_reads_and_locked_by_two_additions() {
    for (records, mean_reads, put_ratio) in [
        (&[64][..], 1.0, 0.0),
        (&[64, 1024], 1.6, 0.0),
        (&[8, 8, 100], 3.0, 0.5),
        (&[64], 1.0, 1.0),
    ] {
        let remote = items(records, mean_reads, put_ratio);
        for tallies in everywhere(&program(remote, Posting::List(4))) {
            let (owner, clients) = tallies.split_first().unwrap();
            let locked: u64 = clients.iter().map(|tally| tally.locked).sum();
            assert_eq!(owner.locked, locked, "{records:?}");
            assert_eq!(locked > 0, put_ratio > 0.0);
            for tally in clients {
                // How much is done in the measured time depends on the machine; something is done.
                assert!(tally.values_checked + tally.locked > 0, "{records:?}");
                assert!(tally.locked == 0 || put_ratio > 0.0);
                assert!(tally.values_checked == 0 || put_ratio < 1.0);
            }
        }
    }
}

#[test]
fn items_are_renewed_by_the_cores_that_own_them_when_asked() {
    for (cores, value, put_ratio, list) in [(1, 32, 0.5, 4), (2, 8, 1.0, 1), (2, 900, 0.3, 16)] {
        let remote = Remote::Items(Items {
            items: 200,
            records: vec![32, 64],
            mean_reads: 1.6,
            put_ratio,
            puts: Puts::Ask { cores, value },
        });
        for tallies in everywhere(&program(remote, Posting::List(list))) {
            let (owners, clients) = tallies.split_at(cores as usize);
            let renewed: u64 = owners.iter().map(|tally| tally.locked).sum();
            let asked: u64 = clients.iter().map(|tally| tally.locked).sum();
            assert_eq!(renewed, asked, "{cores} cores, values of {value} B");
            assert!(asked > 0);
            for tally in clients {
                assert!(tally.values_checked == 0 || put_ratio < 1.0);
            }
        }
    }
}

#[test]
fn invalid_memory_parameters_are_refused() {
    for (remote, reason) in [
        (
            items(&[4], 1.0, 0.0),
            "a record of 4 B: expected 8 to 1048576 B",
        ),
        (items(&[64], 1.5, 0.0), "2 READs of a GET: expected 1 to 1"),
    ] {
        let program = program(remote, Posting::Single);
        let (ended, _) = on_model("cx3", &[0], move |station, role| {
            let schedule = Schedule {
                warm_up: Span::ZERO,
                measured: Span::from_us(1),
            };
            run_onesided(station, &program, role, schedule).map_err(|e| e.to_string())
        });
        assert_eq!(ended[0].as_ref().unwrap_err(), reason);
    }
}
