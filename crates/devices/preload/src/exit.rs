//! What happens when the program exits: the counters of `--stats` and `--record` are written, and the files of contexts
//! that it left open are removed.
//!
//! Files of a process that was killed are removed by the next process that opens the device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use adverb_abi::verbs_context;

use crate::activity;
use crate::context::{Context, ContextObject};
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

/// Runs `action` on the contexts that this process has opened and not closed; on none while a thread is opening or
/// closing one, because that thread never continues if it belongs to the parent of a fork.
pub(crate) fn each_open(mut action: impl FnMut(&Context)) {
    let Ok(open) = OPEN.try_lock() else { return };
    for Open(context) in &*open {
        // SAFETY: contexts are removed from the list before they are closed.
        let object = unsafe { ContextObject::of(*context) };
        if object.is_own() {
            action(&object.own);
        }
    }
}

/// The loader calls it when the process exits, after the program's own handlers.
extern "C" fn at_exit() {
    let _ = catch_unwind(activity::at_exit);
    each_open(|context| {
        let _ = catch_unwind(AssertUnwindSafe(|| context.soft.remove_files()));
    });
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
