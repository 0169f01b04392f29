//! Stacks of roles, used again.

use std::cell::RefCell;

use corosensei::stack::DefaultStack;

/// Size of a role's stack. Only pages that are touched take memory; a guard page is below it.
const SIZE: usize = 256 << 10;
/// Stacks that a thread keeps.
const KEPT: usize = 1024;

thread_local! {
    static POOL: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack: one that was given back, or a new one.
///
/// # Panics
/// If the system has no memory for one.
pub(crate) fn take() -> DefaultStack {
    let pooled = POOL.with(|pool| pool.borrow_mut().pop());
    pooled.unwrap_or_else(|| DefaultStack::new(SIZE).expect("the system has memory for a stack"))
}

/// Gives a stack back.
pub(crate) fn give(stack: DefaultStack) {
    // The pool is gone when the thread ends.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.len() < KEPT {
            pool.push(stack);
        }
    });
}
