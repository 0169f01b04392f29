//! Objects handed to C: a C structure, followed by the Rust object behind it.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::call::Refusal;

/// A C structure and the Rust object behind it. C has a pointer to the structure, at the beginning.
///
/// Programs and inline functions of the headers read and write the structure, so it is only accessed by pointer.
#[repr(C)]
pub(crate) struct Object<C, R> {
    c: UnsafeCell<C>,
    pub(crate) own: R,
    /// The process that created it. A forked child has a copy of the structure, but the object is the parent's.
    creator: u32,
}

impl<C, R> Object<C, R> {
    /// Allocates an object; returns the pointer for C.
    pub(crate) fn create(c: C, own: R) -> *mut C {
        Box::into_raw(Box::new(Object {
            c: UnsafeCell::new(c),
            own,
            creator: std::process::id(),
        }))
        .cast()
    }

    /// Returns the object behind a pointer from C.
    ///
    /// # Safety
    /// `c` was returned by [`Object::create`] of the same type, and the object is not destroyed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(c: *const C) -> &'a Self {
        // SAFETY: the structure is the first member of the object, which lives long enough.
        unsafe { &*c.cast::<Self>() }
    }

    /// Whether the calling process created the object. A forked child has a copy of its parent's.
    pub(crate) fn is_own(&self) -> bool {
        self.creator == std::process::id()
    }

    /// Frees the object. In a forked child this has no effect on the parent's.
    ///
    /// # Safety
    /// As for [`Object::of`]; and nothing uses the object any more.
    pub(crate) unsafe fn destroy(c: *mut C) {
        // SAFETY: `create` made the box, and the caller guarantees that it is freed once.
        let object = unsafe { Box::from_raw(c.cast::<Self>()) };
        if !object.is_own() {
            std::mem::forget(object);
        }
    }
}

/// Number of objects that use this one, so that it cannot be destroyed.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Checks that no object uses this one.
    pub(crate) fn check_none(&self, what: &str) -> Result<(), Refusal> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            n => Err(Refusal::new(
                libc::EBUSY,
                format!("{what}: {n} objects still use it"),
            )),
        }
    }
}

/// Events of an object that the program has taken and not acknowledged. The object is not destroyed before it has.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    none: Condvar,
}

impl Unacknowledged {
    pub(crate) fn taken(&self) {
        *lock(&self.count) += 1;
    }

    pub(crate) fn acknowledge(&self, events: u32) {
        let mut count = lock(&self.count);
        *count = count.saturating_sub(events.into());
        if *count == 0 {
            self.none.notify_all();
        }
    }

    /// Waits until all events are acknowledged.
    pub(crate) fn wait(&self) {
        let mut count = lock(&self.count);
        while *count != 0 {
            count = self
                .none
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Objects of a context by their number in events.
pub(crate) struct Table<C>(HashMap<u32, *mut C>);

// SAFETY: the table has addresses only; the code that follows one upholds the conditions of `Object::of`.
unsafe impl<C> Send for Table<C> {}

impl<C> Default for Table<C> {
    fn default() -> Self {
        Table(HashMap::new())
    }
}

impl<C> Table<C> {
    pub(crate) fn insert(&mut self, number: u32, object: *mut C) {
        self.0.insert(number, object);
    }

    pub(crate) fn remove(&mut self, number: u32) {
        self.0.remove(&number);
    }

    pub(crate) fn get(&self, number: u32) -> Option<*mut C> {
        self.0.get(&number).copied()
    }
}

/// Locks a mutex. A panic while it was locked leaves its data usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
