//! The store on threads over the user-space device, and on the model: every value whole and of its key.

use crate::common::{on_model, on_threads};
use adverb_patterns::store::{Store, run_store};
use adverb_patterns::{Job, JobReport, ServiceTally, Timing};
use adverb_units::Bytes;
use adverb_verbs::{NodeChoice, NumaPlacement, PathOptions, RoleId};

fn store(memory: Bytes) -> Store {
    Store {
        server: None,
        workers: 1,
        memory,
        items: 500,
        value: 67,
        put_ratio: 0.3,
        clients: 3,
        machines: 2,
        connections: 4,
        requests: 300,
        timing: Timing::Each,
        numa_client: NodeChoice::Any,
        numa_server: NumaPlacement::default(),
        load: None,
        seed: 3,
        path: PathOptions::default(),
    }
}

fn everywhere(store: &Store) -> [Vec<ServiceTally>; 2] {
    let soft = on_threads(store.members(), |station, role| {
        run_store(station, store, role).unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    let machines: Vec<u32> = (0..store.members())
        .map(|role| store.machine(RoleId(role)))
        .collect();
    let store = store.clone();
    let (model, _) = on_model("cx3_fdr_nurdma", &machines, move |station, role| {
        run_store(station, &store, role).unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    [soft, model]
}

#[test]
fn every_value_is_whole_and_of_its_key() {
    let store = store(Bytes::mib(1));
    for tallies in everywhere(&store) {
        for client in &tallies[1..] {
            assert_eq!(client.requests, 4 * 300);
            assert!(client.values_checked > 0 && client.misses == 0);
            assert_eq!(client.waits.as_ref().unwrap().len(), 4 * 300);
        }
        assert_eq!(tallies[0].requests, 3 * 4 * 300);
        let reports: Vec<_> = tallies.into_iter().map(JobReport::Service).collect();
        let outcome = Job::Store(store.clone()).outcome(&reports).unwrap();
        assert_eq!(outcome.metrics["requests"], 3 * 4 * 300);
    }
}

/// Blocks are reused at once, while other clients may be reading them.
#[test]
fn a_store_that_evicts_returns_no_value_of_another_key() {
    let mut store = store(Bytes::kib(16));
    (store.put_ratio, store.value) = (0.5, 300);
    for tallies in everywhere(&store) {
        let misses: u64 = tallies[1..].iter().map(|tally| tally.misses).sum();
        let values: u64 = tallies[1..].iter().map(|tally| tally.values_checked).sum();
        assert!(tallies[0].evicted > 500 && misses > 0 && values > 0);
    }
}

#[test]
fn a_large_value_is_read_whole() {
    let mut store = store(Bytes::mib(16));
    (store.items, store.value, store.requests) = (4, 1 << 20, 20);
    for tallies in everywhere(&store) {
        assert!(tallies[1..].iter().all(|tally| tally.values_checked > 0));
    }
}

#[test]
fn workers_share_the_items_and_their_load() {
    let store = Store {
        workers: 3,
        ..store(Bytes::mib(1))
    };
    for tallies in everywhere(&store) {
        let (workers, clients) = tallies.split_at(3);
        let answered: u64 = workers.iter().map(|worker| worker.requests).sum();
        assert_eq!(answered, 3 * 4 * 300);
        for worker in workers {
            assert_eq!(worker.requests, 4 * 300);
        }
        for client in clients {
            assert_eq!((client.requests, client.misses), (4 * 300, 0));
        }
    }
}

/// Each client has a connection to one worker only, and yet all of them begin together.
#[test]
fn clients_of_different_workers_meet() {
    let mut store = Store {
        workers: 3,
        connections: 1,
        ..store(Bytes::mib(1))
    };
    for clients in [3, 4] {
        store.clients = clients;
        for tallies in everywhere(&store) {
            let sum = |tallies: &[ServiceTally]| tallies.iter().map(|t| t.requests).sum::<u64>();
            let (workers, clients) = tallies.split_at(3);
            assert_eq!(sum(workers), sum(clients));
            assert!(clients.iter().all(|client| client.misses == 0));
        }
    }
}
