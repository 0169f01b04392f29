//! The rsockets of the process, by descriptor for the program, and by key for the events of their ids.
//!
//! A connection gets its descriptor when it is accepted, as with TCP. librspreload.so of rdma-core 44 opens a descriptor
//! of its own before it accepts, and expects that to be the lower one.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::socket::Socket;
use crate::call::Refusal;
use crate::object::lock;

static BY_FD: RwLock<Vec<Option<Arc<Socket>>>> = RwLock::new(Vec::new());
static BY_KEY: Mutex<BTreeMap<usize, Arc<Socket>>> = Mutex::new(BTreeMap::new());

/// The process is the child of one that has used rsockets.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Notices when a child process begins.
pub(super) fn watch_forks() {
    extern "C" fn begin_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler stores a flag. If there is no memory for it, children are not told that rsockets do not work.
    unsafe { libc::pthread_atfork(None, None, Some(begin_child)) };
}

/// Checks that the process has not inherited its rsockets.
pub(super) fn check_not_child() -> Result<(), Refusal> {
    match IS_CHILD.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Refusal::unsupported(
            "rsockets do not work in the child of a process that has used them: fork before the first, or set \
             RDMAV_FORK_SAFE=1 for librspreload.so",
        )),
    }
}

/// Returns a key that no rsocket has had.
pub(super) fn new_key() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Enters an rsocket by its key.
pub(super) fn enter(socket: &Arc<Socket>) {
    lock(&BY_KEY).insert(socket.key, socket.clone());
}

/// Removes an rsocket, to which no events belong any more.
pub(super) fn leave(key: usize) {
    lock(&BY_KEY).remove(&key);
}

pub(super) fn by_key(key: usize) -> Option<Arc<Socket>> {
    lock(&BY_KEY).get(&key).cloned()
}

/// Returns all rsockets.
pub(super) fn all() -> Vec<Arc<Socket>> {
    lock(&BY_KEY).values().cloned().collect()
}

/// Returns an rsocket; `None` if the descriptor is of something else.
pub(super) fn find(fd: c_int) -> Option<Arc<Socket>> {
    let index = usize::try_from(fd).ok()?;
    let sockets = BY_FD.read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(index)?.clone()
}

/// Returns an rsocket for a call.
pub(super) fn get(fd: c_int) -> Result<Arc<Socket>, Refusal> {
    let found = find(fd).ok_or_else(|| not_one(fd))?;
    check_not_child()?;
    Ok(found)
}

pub(super) fn not_one(fd: c_int) -> Refusal {
    Refusal::new(libc::EBADF, format!("descriptor {fd} is not an rsocket"))
}

/// Lets the program find an rsocket by a descriptor.
pub(super) fn name(socket: &Arc<Socket>, fd: c_int) {
    let index = fd as usize;
    let mut sockets = BY_FD.write().unwrap_or_else(PoisonError::into_inner);
    if sockets.len() <= index {
        sockets.resize(index + 1, None);
    }
    sockets[index] = Some(socket.clone());
}

/// Removes an rsocket, which no call finds any more.
pub(super) fn remove(fd: c_int) -> Option<Arc<Socket>> {
    let index = usize::try_from(fd).ok()?;
    let mut sockets = BY_FD.write().unwrap_or_else(PoisonError::into_inner);
    sockets.get_mut(index)?.take()
}
