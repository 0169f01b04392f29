//! Removes the files of contexts that a program leaves open when it exits.
//!
//! Files of a process that was killed are removed by the next process that opens the device.

use std::sync::Mutex;

use adverb_abi::verbs_context;

use crate::context::ContextObject;
use crate::object::lock;

/// An open context.
struct Open(*mut verbs_context);

// SAFETY: the list has addresses of contexts, which all threads may use.
unsafe impl Send for Open {}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

pub(crate) fn remember(context: *mut verbs_context) {
    lock(&OPEN).push(Open(context));
}

pub(crate) fn forget(context: *mut verbs_context) {
    lock(&OPEN).retain(|open| open.0 != context);
}

/// The loader calls it when the process exits, after the program's own handlers.
extern "C" fn remove_files() {
    // A thread that is opening or closing a device never continues if it belongs to the parent of a fork.
    let Ok(open) = OPEN.try_lock() else { return };
    for Open(context) in &*open {
        // SAFETY: contexts are removed from the list before they are closed.
        let object = unsafe { ContextObject::of(*context) };
        if object.is_own() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                object.own.soft.remove_files();
            }));
        }
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = remove_files;
