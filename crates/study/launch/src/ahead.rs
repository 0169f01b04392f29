//! Runs in parallel, results in order.
//!
//! Load does not disturb virtual time, so runs on a model are started ahead on all cores; their results
//! are handed out in the order of the list.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Whether the results are no longer needed.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Returns whether to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets [`Stop`] when `body` has ended, also by a panic.
struct StopAtEnd<'s>(&'s Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Works on `items` ahead while `body` takes the results, one per call, in order.
///
/// # Panics
/// If `work` does, or `body` asks for more results than there are items.
pub fn in_order<I: Sync, R: Send, T>(
    items: &[I],
    work: impl Fn(&I, &Stop) -> R + Sync,
    body: impl FnOnce(&mut dyn FnMut() -> R) -> T,
) -> T {
    let (stop, next) = (Stop::default(), AtomicUsize::new(0));
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let (sender, done) = mpsc::channel();
        for _ in 0..jobs.min(items.len()) {
            let (sender, stop, next, work) = (sender.clone(), &stop, &next, &work);
            scope.spawn(move || {
                while let Some((place, item)) = claim(next, items, stop) {
                    if sender.send((place, work(item, stop))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let _stop = StopAtEnd(&stop);
        let mut results = Ordered::new(done);
        body(&mut || results.next())
    })
}

/// Claims the next item.
fn claim<'i, I>(next: &AtomicUsize, items: &'i [I], stop: &Stop) -> Option<(usize, &'i I)> {
    if stop.is_set() {
        return None;
    }
    let place = next.fetch_add(1, Ordering::Relaxed);
    items.get(place).map(|item| (place, item))
}

/// Puts results in order.
struct Ordered<R> {
    done: Receiver<(usize, R)>,
    early: HashMap<usize, R>,
    taken: usize,
}

impl<R> Ordered<R> {
    fn new(done: Receiver<(usize, R)>) -> Self {
        Ordered {
            done,
            early: HashMap::new(),
            taken: 0,
        }
    }

    fn next(&mut self) -> R {
        let place = self.taken;
        self.taken += 1;
        loop {
            if let Some(result) = self.early.remove(&place) {
                return result;
            }
            let (found, result) = self
                .done
                .recv()
                .expect("each call has an item that a thread works on");
            self.early.insert(found, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (1..=40).collect();
        let work = |item: &u64, _: &Stop| {
            thread::sleep(Duration::from_micros(item * 7919 % 500));
            *item
        };
        let results = in_order(&items, work, |next| {
            items.iter().map(|_| next()).collect::<Vec<_>>()
        });
        assert_eq!(results, items);
    }

    #[test]
    fn no_job_starts_after_the_results_are_dropped() {
        let begun = AtomicUsize::new(0);
        let work = |(): &(), stop: &Stop| {
            begun.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
            stop.is_set()
        };
        in_order(&[(); 10_000], work, |next| next());
        assert!(begun.into_inner() < 1000);
    }
}
