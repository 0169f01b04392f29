//! Cells in parallel, results in order.
//!
//! Load does not disturb virtual time, so cells are run ahead on all cores; who asks for results
//! gets them in the order of the cells.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use adverb_studies::CellSpec;

/// Whether the results are wanted no more.
#[derive(Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    /// Whether to end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets it when `body` has ended, however it did.
struct StopAtEnd<'s>(&'s Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Works on `cells` ahead while `body` takes the results, one a call, in order.
///
/// # Panics
/// If `work` does, or `body` asks for more results than there are cells.
pub(crate) fn in_order<R: Send, T>(
    cells: &[CellSpec],
    work: impl Fn(&CellSpec, &Stop) -> R + Sync,
    body: impl FnOnce(&mut dyn FnMut() -> R) -> T,
) -> T {
    let (stop, next) = (Stop::default(), AtomicUsize::new(0));
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let (sender, done) = mpsc::channel();
        for _ in 0..jobs.min(cells.len()) {
            let (sender, stop, next, work) = (sender.clone(), &stop, &next, &work);
            scope.spawn(move || {
                while let Some((place, cell)) = claim(next, cells, stop) {
                    if sender.send((place, work(cell, stop))).is_err() {
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

/// The next cell that no thread has.
fn claim<'c>(
    next: &AtomicUsize,
    cells: &'c [CellSpec],
    stop: &Stop,
) -> Option<(usize, &'c CellSpec)> {
    if stop.is_set() {
        return None;
    }
    let place = next.fetch_add(1, Ordering::Relaxed);
    cells.get(place).map(|cell| (place, cell))
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
            let (found, result) = self.done.recv().expect("a cell for each call, worked on");
            self.early.insert(found, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use adverb_results::Opcode;
    use adverb_studies::Request;
    use adverb_units::Bytes;

    use super::*;

    fn cells(n: u64) -> Vec<CellSpec> {
        let cell = |size| CellSpec::ping(Request::new(Opcode::Send, Bytes::new(size)));
        (1..=n).map(cell).collect()
    }

    #[test]
    fn results_come_in_the_order_of_the_cells() {
        let cells = cells(40);
        let work = |cell: &CellSpec, _: &Stop| {
            let size = cell.params.size.get();
            thread::sleep(Duration::from_micros(size * 7919 % 500));
            size
        };
        let sizes = in_order(&cells, work, |next| {
            (0..cells.len()).map(|_| next()).collect::<Vec<_>>()
        });
        assert!(sizes.into_iter().eq(1..=40));
    }

    #[test]
    fn nothing_is_begun_once_the_results_are_not_wanted() {
        let cells = cells(10_000);
        let begun = AtomicUsize::new(0);
        let work = |_: &CellSpec, stop: &Stop| {
            begun.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1));
            stop.is_set()
        };
        in_order(&cells, work, |next| next());
        assert!(begun.into_inner() < 1000);
    }
}
