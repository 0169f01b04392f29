//! Threads that load this machine's CPUs and memory while a program is measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use adverb_units::{Bytes, Span};
use adverb_verbs::random::Random;
use adverb_verbs::{Access, CpuLoad, LoadTally, LoadWork, PlacementError, Probability, WordCount};

use crate::computation::execute;
use crate::memory::available_memory;
use crate::numa;

/// Bytes of a word, and of a cache line.
const WORD: u64 = 8;
const LINE: u64 = 64;
/// Accesses between two looks at whether to stop.
const BATCH: u32 = 1024;

/// Calls `body` while the threads of `loads` run, which access `words` if they access a buffer. `nic` is the node of the
/// device, `usable` the CPUs that this process may use.
///
/// # Errors
/// There is no such node, more workers than CPUs, too little memory, or a thread cannot be started.
pub(crate) fn under_load<R>(
    loads: &[CpuLoad],
    words: Option<&[AtomicU64]>,
    (nic, usable): (Option<u32>, &[u32]),
    body: impl FnOnce() -> R,
) -> Result<(R, LoadTally), PlacementError> {
    if loads.is_empty() {
        return Ok((body(), LoadTally::default()));
    }
    check(loads, usable)?;
    let mut threads = Vec::new();
    for load in loads {
        let node = numa::resolve(load.node, nic)?;
        let (memory, think) = match load.work {
            LoadWork::Independent { memory, .. } => (numa::resolve(memory, nic)?, Span::ZERO),
            LoadWork::Buffer { think, .. } => (None, think),
            _ => (None, Span::ZERO),
        };
        let work = (Work::new(load.work, words)?, think);
        threads.extend((0..load.threads).map(|_| ((node, memory.or(node)), work)));
    }
    let stop = AtomicBool::new(false);
    let (placed, refusals) = mpsc::channel();
    thread::scope(|scope| {
        let mut started = Vec::new();
        let (count, mut failed) = (threads.len(), None);
        for (number, (nodes, (work, think))) in (1..).zip(threads) {
            let (stop, placed) = (&stop, placed.clone());
            let run = move || {
                let bound = bind(nodes, usable);
                // Before the body is called: writing a large array takes a while.
                let array = bound.is_ok().then(|| work.array(number));
                // If nobody receives it, another thread has failed.
                let _ = placed.send(bound);
                match array {
                    Some(array) => work.run((number, think), array, stop),
                    None => LoadTally::default(),
                }
            };
            let builder = thread::Builder::new().name("adverb-load".to_owned());
            match builder.spawn_scoped(scope, run) {
                Ok(thread) => started.push(thread),
                Err(error) => {
                    failed = Some(PlacementError(format!(
                        "cannot start {count} threads: {error}"
                    )));
                    break;
                }
            }
        }
        let bound = match failed {
            Some(error) => Err(error),
            None => refusals.iter().take(count).collect(),
        };
        let stopping = Stop(&stop);
        let result: Result<R, PlacementError> = bound.map(|()| body());
        drop(stopping);
        let mut all = LoadTally::default();
        for thread in started {
            let tally = thread.join().expect("threads of a load do not panic");
            all.accesses += tally.accesses;
            all.words.add(tally.words);
        }
        Ok((result?, all))
    })
}

/// Stops the threads when it is dropped, also if the body panics: the scope would wait for them forever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Binds the calling thread, and what it allocates, each to a node or to none.
fn bind((node, memory): (Option<u32>, Option<u32>), usable: &[u32]) -> Result<(), PlacementError> {
    match node {
        Some(node) => numa::bind_thread(node, usable)?,
        None => numa::unbind_thread(usable),
    }
    memory.map_or(Ok(()), numa::bind_memory)
}

fn check(loads: &[CpuLoad], usable: &[u32]) -> Result<(), PlacementError> {
    let mut needed = 0;
    for load in loads {
        match load.work {
            LoadWork::Buffer { .. } if load.threads as usize > usable.len() => {
                let plural = if usable.len() == 1 { "" } else { "s" };
                return Err(PlacementError(format!(
                    "{} workers exceed the {} CPU{plural} that this process may use; use fewer",
                    load.threads,
                    usable.len()
                )));
            }
            LoadWork::Independent { bytes, .. } => {
                needed += bytes.get().saturating_mul(load.threads.into());
            }
            _ => {}
        }
    }
    match available_memory() {
        Some(available) if needed > available.get() / 2 => Err(PlacementError(format!(
            "arrays of {} for the load exceed half of the available {}; use fewer threads or smaller arrays",
            Bytes::new(needed),
            available.rounded()
        ))),
        _ => Ok(()),
    }
}

/// What a thread does, with the words of the region that it accesses.
#[derive(Clone, Copy)]
enum Work<'w> {
    Compute,
    Independent {
        words: u64,
        writes: Probability,
    },
    Walk {
        words: &'w [AtomicU64],
        writes: Probability,
    },
    CompareSwap {
        words: &'w [AtomicU64],
    },
    Add {
        words: &'w [AtomicU64],
        is_atomic: bool,
    },
    Flush {
        words: &'w [AtomicU64],
    },
}

impl<'w> Work<'w> {
    fn new(work: LoadWork, words: Option<&'w [AtomicU64]>) -> Result<Self, PlacementError> {
        let part = |bytes: Bytes| {
            let words = words.and_then(|words| words.get(..(bytes.get() / WORD).max(1) as usize));
            words.ok_or_else(|| {
                PlacementError(
                    "CPUs cannot access the region of this device in words of 8 B".to_owned(),
                )
            })
        };
        Ok(match work {
            LoadWork::Compute => Work::Compute,
            LoadWork::Independent { bytes, writes, .. } => Work::Independent {
                words: (bytes.get() / WORD).max(1),
                writes,
            },
            LoadWork::Buffer {
                bytes,
                access: Access::Mixed { writes },
                ..
            } => Work::Walk {
                words: part(bytes)?,
                writes,
            },
            LoadWork::Buffer {
                bytes,
                access: Access::CompareSwap,
                ..
            } => Work::CompareSwap {
                words: part(bytes)?,
            },
            LoadWork::Buffer { bytes, access, .. } => Work::Add {
                words: part(bytes)?,
                is_atomic: access == Access::FetchAdd,
            },
            LoadWork::Flush { bytes } if cfg!(target_arch = "x86_64") => Work::Flush {
                words: part(bytes)?,
            },
            LoadWork::Flush { .. } => {
                return Err(PlacementError(
                    "flushing lines from the caches needs an x86-64 CPU".to_owned(),
                ));
            }
        })
    }

    /// Returns the array of thread `number`; empty if it needs none.
    fn array(self, number: u64) -> Vec<u64> {
        match self {
            // Written, so that its pages are allocated here and now.
            Work::Independent { words, .. } => vec![own_word(number); words as usize],
            _ => Vec::new(),
        }
    }

    /// Works until `stop`, and computes for `think` after each access. A thread writes words whose bytes are all its
    /// `number`, so that a mixture of two writes is seen as torn.
    fn run(
        self,
        (number, think): (u64, Span),
        mut array: Vec<u64>,
        stop: &AtomicBool,
    ) -> LoadTally {
        let batch = if think > Span::ZERO { 1 } else { BATCH };
        let own = own_word(number);
        let mut random = Random::new(number);
        let mut tally = LoadTally::default();
        let mut place = 0;
        while !stop.load(Ordering::Relaxed) {
            match self {
                Work::Compute => {
                    (0..BATCH).for_each(|_| std::hint::spin_loop());
                    continue;
                }
                Work::Independent { words, writes } => {
                    for _ in 0..BATCH {
                        let at = random.below(words) as usize;
                        if writes.happens(random.bits()) {
                            array[at] = own;
                        } else {
                            std::hint::black_box(array[at]);
                        }
                    }
                }
                Work::Walk { words, writes } => {
                    walk(words, (&mut place, batch), &mut tally.words, || {
                        writes.happens(random.bits()).then_some(own)
                    });
                }
                Work::CompareSwap { words } => {
                    for _ in 0..batch {
                        place = (place + 1) % words.len() as u64;
                        let word = &words[place as usize];
                        let swap = |old| Some(if old == own { 0 } else { own });
                        let old = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, swap);
                        tally.words.check(old.unwrap_or(0));
                    }
                }
                Work::Add { words, is_atomic } => {
                    for _ in 0..batch {
                        place = (place + 1) % words.len() as u64;
                        let word = &words[place as usize];
                        if is_atomic {
                            word.fetch_add(1, Ordering::Relaxed);
                        } else {
                            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                    }
                }
                Work::Flush { words } => words.chunks((LINE / WORD) as usize).for_each(flush),
            }
            tally.accesses += u64::from(batch);
            if think > Span::ZERO {
                execute(think);
            }
        }
        tally
    }
}

/// Returns the word that thread `number` writes.
fn own_word(number: u64) -> u64 {
    u64::from_ne_bytes([(number % 127 + 1) as u8; 8])
}

/// Accesses the words of `batch` bytes one after the other, and checks those that it reads.
#[inline]
fn walk(
    words: &[AtomicU64],
    (place, batch): (&mut u64, u32),
    count: &mut WordCount,
    mut writes: impl FnMut() -> Option<u64>,
) {
    let bytes = words.len() as u64 * WORD;
    for _ in 0..batch {
        let word = &words[(*place / WORD) as usize];
        match writes() {
            Some(own) => word.store(own, Ordering::Relaxed),
            None => count.check(word.load(Ordering::Relaxed)),
        }
        *place += 1;
        if *place >= bytes {
            *place = 0;
        }
    }
}

/// Flushes the line of these words.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn flush(line: &[AtomicU64]) {
    // SAFETY: the address is of a mapped word, and every CPU of x86-64 has the instruction.
    unsafe { std::arch::x86_64::_mm_clflush(line.as_ptr().cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
fn flush(_line: &[AtomicU64]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_verbs::NodeChoice;

    fn load(threads: u32, work: LoadWork) -> CpuLoad {
        CpuLoad {
            threads,
            node: NodeChoice::Any,
            work,
        }
    }

    fn words() -> Vec<AtomicU64> {
        (0..8).map(|_| AtomicU64::new(0)).collect()
    }

    fn mixed() -> LoadWork {
        LoadWork::Buffer {
            bytes: Bytes::new(64),
            access: Access::Mixed {
                writes: Probability::per_million(500_000),
            },
            think: Span::ZERO,
        }
    }

    #[test]
    fn threads_access_the_words_and_see_none_torn() {
        let (words, usable) = (words(), crate::usable_cores());
        let loads = [
            load(1, mixed()),
            load(
                1,
                LoadWork::Buffer {
                    bytes: Bytes::new(64),
                    access: Access::CompareSwap,
                    think: Span::from_us(1),
                },
            ),
            load(
                1,
                LoadWork::Flush {
                    bytes: Bytes::new(64),
                },
            ),
            load(
                1,
                LoadWork::Independent {
                    bytes: Bytes::kib(8),
                    writes: Probability::ZERO,
                    memory: NodeChoice::Any,
                },
            ),
        ];
        let changed = || {
            while words.iter().any(|word| word.load(Ordering::Relaxed) == 0) {
                thread::yield_now();
            }
        };
        let (_, tally) = under_load(&loads, Some(&words), (None, &usable), changed).unwrap();
        assert_eq!(tally.words.torn, 0);
        assert!(tally.words.checked > 0 && tally.accesses >= tally.words.checked);
    }

    #[test]
    fn arrays_are_written_before_the_body_is_called() {
        const ARRAY: Bytes = Bytes::mib(256);
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
            pages * rustix::param::page_size() as u64
        };
        let work = LoadWork::Independent {
            bytes: ARRAY,
            writes: Probability::ZERO,
            memory: NodeChoice::Any,
        };
        let before = resident();
        let usable = crate::usable_cores();
        let (during, _) = under_load(&[load(1, work)], None, (None, &usable), resident).unwrap();
        assert!(during > before + ARRAY.get() * 3 / 4, "{before}, {during}");
    }

    #[test]
    fn words_count_the_accesses_that_add_to_them() {
        let usable = crate::usable_cores();
        let words = [AtomicU64::new(0)];
        let work = LoadWork::Buffer {
            bytes: Bytes::new(8),
            access: Access::FetchAdd,
            think: Span::ZERO,
        };
        let changed = || {
            while words[0].load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
        };
        let loads = [load(usable.len() as u32, work)];
        let (_, tally) = under_load(&loads, Some(&words), (None, &usable), changed).unwrap();
        assert_eq!(words[0].load(Ordering::Relaxed), tally.accesses);
    }

    #[test]
    fn a_body_that_panics_ends_the_threads() {
        let (words, usable) = (words(), crate::usable_cores());
        let loads = [load(1, mixed())];
        let run = || {
            under_load(&loads, Some(&words), (None, &usable), || {
                assert!(words.is_empty());
            })
        };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert!(caught.is_err());
    }

    #[test]
    fn a_torn_word_is_counted() {
        let words = words();
        words[3].store(0x0101_0101_0202_0202, Ordering::Relaxed);
        let (mut place, mut count) = (0, WordCount::default());
        walk(&words, (&mut place, BATCH), &mut count, || None);
        let rounds = u64::from(BATCH) / 64;
        assert_eq!((count.checked, count.torn), (u64::from(BATCH), rounds * 8));
    }

    #[test]
    fn what_cannot_run_is_refused_before_the_body() {
        let (words, usable) = (words(), crate::usable_cores());
        let cpus = usable.len() as u32;
        let refused = |load: CpuLoad| {
            let body = || unreachable!("it is refused");
            let refused = under_load(&[load], Some(&words), (None, &usable), body);
            refused.unwrap_err().to_string()
        };
        let many = refused(load(cpus + 1, mixed()));
        assert!(
            many.starts_with(&format!("{} workers exceed", cpus + 1)),
            "{many}"
        );
        let huge = LoadWork::Independent {
            bytes: Bytes::mib(1 << 30),
            writes: Probability::ZERO,
            memory: NodeChoice::Any,
        };
        assert!(refused(load(1, huge)).starts_with("arrays of "));
        let far = CpuLoad {
            node: NodeChoice::Number(99),
            ..load(1, mixed())
        };
        let far_array = LoadWork::Independent {
            bytes: Bytes::kib(8),
            writes: Probability::ZERO,
            memory: NodeChoice::Number(99),
        };
        for far in [far, load(1, far_array)] {
            assert!(refused(far).starts_with("NUMA node 99 does not exist"));
        }
    }
}
