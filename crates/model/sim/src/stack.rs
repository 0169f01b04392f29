//! A pool of coroutine stacks.
//!
//! Creating a stack costs an `mmap`, an `mprotect` for its guard page, and a page fault for each page that
//! the role touches. Roles of one run take over the stacks of the run before, so only the first run pays.

use std::cell::RefCell;

use corosensei::stack::DefaultStack;

/// Size of a stack. Only touched pages use memory. Overflow hits the guard page: the process is killed
/// instead of overwriting its neighbour's memory.
const SIZE: usize = 256 << 10;
/// Largest number of unused stacks that a thread keeps.
const MAX_POOLED: usize = 1024;

thread_local! {
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Takes a stack from the pool, or maps a new one.
///
/// # Panics
/// If the system has no memory for a stack.
pub(crate) fn take() -> DefaultStack {
    let pooled = POOL.with(|pool| pool.borrow_mut().pop());
    pooled.unwrap_or_else(|| DefaultStack::new(SIZE).expect("the system has memory for a stack"))
}

/// Returns a stack to the pool. Its coroutine must have ended: the next role overwrites the stack.
pub(crate) fn give(stack: DefaultStack) {
    // While the thread ends, the pool may already be destroyed: then the stack is unmapped.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.len() < MAX_POOLED {
            pool.push(stack);
        }
    });
}
