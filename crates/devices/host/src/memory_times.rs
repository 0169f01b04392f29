//! Latency and bandwidth of memory and of cache lines between NUMA nodes, measured on this machine.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use adverb_units::{Bytes, Span};
use adverb_verbs::random::Random;
use adverb_verbs::{Arrays, MemoryTimes, PlacementError};

use crate::memory::available_memory;
use crate::socket::Socket;
use crate::{clock, numa, pin};

/// A cache line, in words of 8 B.
type Line = [u64; 8];
/// Number of repetitions. The fastest counts, because the others were disturbed.
const REPETITIONS: usize = 5;
/// Measured steps of a chain of loads: at least once through a cached array of up to 16 MiB, so few places of a larger one
/// that none is visited twice.
const STEPS: usize = 1 << 18;
/// Round trips of a line.
const ROUNDS: u64 = 20_000;
/// Size of the last-level cache if the kernel does not report it.
const USUAL_CACHE: Bytes = Bytes::mib(16);

/// Returns the sizes of the arrays on this machine: a quarter and four times of the last-level cache, as far as there is
/// memory.
pub fn usual_arrays() -> Arrays {
    let cache = Socket::first().cache.unwrap_or(USUAL_CACHE);
    let most = available_memory().map_or(u64::MAX, |bytes| bytes.get() / 4);
    Arrays {
        cached: Bytes::new(cache.get() / 4),
        large: Bytes::new((cache.get() * 4).clamp(64 << 20, 512 << 20).min(most)),
    }
}

/// Measures a CPU of node `cpus`, one of `usable`, with memory of node `memory`.
///
/// # Errors
/// This process may use no CPU of a node, memory cannot be allocated there, or a thread cannot be started.
pub fn memory_times(
    (cpus, memory): (u32, u32),
    arrays: Arrays,
    usable: &[u32],
) -> Result<MemoryTimes, PlacementError> {
    let core = cores_of(cpus, usable)?[0];
    let others = cores_of(memory, usable)?;
    let other = others.into_iter().find(|other| *other != core);
    let is_only_node = numa::nodes().len() == 1;
    let measure = || {
        pin(core).map_err(|error| refused(core, &error))?;
        if !is_only_node {
            numa::bind_memory(memory)?;
        }
        let (cached_ns, _) = times(arrays.cached);
        let (memory_ns, read_bytes_per_s) = times(arrays.large);
        Ok(MemoryTimes {
            arrays,
            cached_ns,
            memory_ns,
            read_bytes_per_s,
            line_ns: None,
        })
    };
    let measured = thread::scope(|scope| scope.spawn(measure).join());
    let measured = measured.expect("the measuring thread does not panic")?;
    let line_ns = other.map(|other| line_ns(core, other)).transpose()?;
    Ok(MemoryTimes {
        line_ns,
        ..measured
    })
}

fn refused(core: u32, error: &std::io::Error) -> PlacementError {
    PlacementError(format!("cannot run on CPU {core}: {error}"))
}

/// Returns the CPUs of a node that are among `usable`, at least one.
fn cores_of(node: u32, usable: &[u32]) -> Result<Vec<u32>, PlacementError> {
    let nodes = numa::nodes();
    if !nodes.contains(&node) {
        return Err(PlacementError(format!("NUMA node {node} does not exist")));
    }
    let mut usable = usable.to_vec();
    if nodes.len() > 1 {
        let cpus = numa::cpus(node);
        usable.retain(|core| cpus.contains(core));
    }
    match usable.is_empty() {
        false => Ok(usable),
        true => Err(PlacementError(format!(
            "NUMA node {node} has no CPU that this process may use"
        ))),
    }
}

/// Returns the latency of dependent loads from an array, in ns, and the bytes per second of reading it in order.
fn times(bytes: Bytes) -> (f64, f64) {
    let lines = (bytes.as_usize() / size_of::<Line>()).max(2);
    let array = chain(lines);
    let mut at = 0;
    let mut walk = |steps: usize| {
        for _ in 0..steps {
            at = array[at][0] as usize;
        }
        std::hint::black_box(at);
    };
    // Not measured: it loads the cached array, and evicts what making the large one has left in the cache.
    walk(STEPS.max(lines / 4));
    let latency = fastest(|| walk(STEPS));
    let reading = fastest(|| {
        let mut sums = [0u64; 8];
        for line in &array {
            for (sum, word) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(*word);
            }
        }
        std::hint::black_box(sums);
    });
    let read = (lines * size_of::<Line>()) as f64;
    (
        latency.as_ns_f64() / STEPS as f64,
        read / reading.as_secs_f64(),
    )
}

/// Returns lines that contain the number of the next line. They form one cycle in random order (Sattolo's algorithm).
fn chain(lines: usize) -> Vec<Line> {
    let mut random = Random::new(lines as u64);
    let mut chain: Vec<Line> = (0..lines as u64).map(|line| [line; 8]).collect();
    for last in (1..lines).rev() {
        let other = random.below(last as u64) as usize;
        chain.swap(last, other);
    }
    chain
}

fn fastest(mut body: impl FnMut()) -> Span {
    let times = (0..REPETITIONS).map(|_| {
        let begun = clock::now();
        body();
        clock::now() - begun
    });
    times.min().unwrap_or_default()
}

/// Returns half of the round trip of a line between two CPUs, in ns.
fn line_ns(one: u32, other: u32) -> Result<f64, PlacementError> {
    let word = AtomicU64::new(0);
    let (pinned, failed) = (Barrier::new(2), AtomicBool::new(false));
    // Returns whether both threads are pinned: a thread would wait forever for one that has failed.
    let both_pinned = |cpu| {
        let result = pin(cpu).map_err(|error| refused(cpu, &error));
        if result.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        // It orders the store before the other thread's load.
        pinned.wait();
        result.map(|()| !failed.load(Ordering::Relaxed))
    };
    let answer = || {
        if !both_pinned(other)? {
            return Ok(());
        }
        for round in 0..ROUNDS * REPETITIONS as u64 {
            wait_for(&word, 2 * round + 1);
            word.store(2 * round + 2, Ordering::Release);
        }
        Ok(())
    };
    let ask = || {
        if !both_pinned(one)? {
            return Ok(Span::ZERO);
        }
        let mut round = 0;
        Ok(fastest(|| {
            for _ in 0..ROUNDS {
                word.store(2 * round + 1, Ordering::Release);
                wait_for(&word, 2 * round + 2);
                round += 1;
            }
        }))
    };
    let (asked, answered): (Result<Span, PlacementError>, Result<(), PlacementError>) =
        thread::scope(|scope| {
            let answering = scope.spawn(answer);
            let asked = scope.spawn(ask).join();
            let joined = "the threads do not panic";
            (asked.expect(joined), answering.join().expect(joined))
        });
    answered?;
    Ok(asked?.as_ns_f64() / (2 * ROUNDS) as f64)
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usable_cores;

    #[test]
    fn a_chain_visits_every_line_once() {
        for lines in [2, 3, 100, 1000] {
            let chain = chain(lines);
            let (mut at, mut visited) = (0, 0);
            loop {
                at = chain[at][0] as usize;
                visited += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(visited, lines);
        }
    }

    #[test]
    fn memory_and_lines_take_time() {
        let node = numa::nodes()[0];
        let arrays = Arrays {
            cached: Bytes::kib(256),
            large: Bytes::mib(4),
        };
        match memory_times((node, node), arrays, &usable_cores()) {
            Ok(times) => {
                assert!(times.cached_ns > 0.1 && times.memory_ns > 0.1, "{times:?}");
                assert!(times.read_bytes_per_s > 1e6, "{times:?}");
                assert_eq!(times.line_ns.is_some(), usable_cores().len() > 1);
            }
            Err(error) => eprintln!("NOT RUN: memory latency of a NUMA node: {error}"),
        }
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_leaves_none_waiting() {
        let (here, nowhere) = (usable_cores()[0], 1 << 20);
        for (one, other) in [(here, nowhere), (nowhere, here)] {
            let refused = line_ns(one, other).unwrap_err().0;
            assert!(
                refused.starts_with("cannot run on CPU 1048576"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused() {
        let refused = memory_times((999, 999), usual_arrays(), &usable_cores());
        assert_eq!(refused.unwrap_err().0, "NUMA node 999 does not exist");
    }
}
