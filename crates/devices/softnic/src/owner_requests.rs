//! Owner requests: operations on a program's memory that a peer asks the memory's owner to carry out. They are atomics,
//! which no process can apply to the memory of another, and copies that the kernel refuses the peer.
//!
//! A peer has one entry in the owner's port file. It writes the request there, sets its bit in the header and wakes the
//! owner's engine, which carries it out and marks it as done. Bytes go through a buffer in the peer's port file. If the
//! peer dies, the request is carried out or not; if the owner dies, the peer notices.
//! A thread that waits for its request carries out those for its own port, so two processes do not wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use adverb_verbs::Operation;
use rustix::process::getpid;

use crate::port::{Port, SenderWatch};
use crate::shm::copy::{last_piece, place};
use crate::shm::layout::{OwnerRequestEntry, mr_index};
use crate::shm::peer::{FarPlace, Peer};
use crate::shm::process::{self, CopyFailure, Direction, Pieces};
use crate::shm::sync::lock;

/// Bytes that one request copies.
const ROOM: u64 = 64 << 10;
/// How long to wait for the owner's engine. After that the request fails.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a thread looks at its request before it sleeps between looks.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_micros(50);

// States of an entry.
const ASKED: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 3;

// Kinds of requests.
const WRITE: u32 = 1;
const READ: u32 = 2;
const FETCH_ADD: u32 = 3;
const COMPARE_SWAP: u32 = 4;

/// What the owner is asked for.
#[derive(Clone, Copy, Debug)]
struct OwnerRequest {
    kind: u32,
    place: FarPlace,
    length: u64,
    /// Of an atomic operation.
    operands: [u64; 2],
    /// Offset of the bytes in the peer's port file.
    buffer: u64,
}

/// Lets the owner carry out an atomic operation; returns the old value.
pub(crate) fn atomic(
    port: &Port,
    peer: &Peer,
    place: FarPlace,
    operation: Operation,
) -> Result<u64, CopyFailure> {
    let (kind, operands) = match operation {
        Operation::CompareSwap(_, c) => (COMPARE_SWAP, [c.expected, c.new]),
        Operation::FetchAdd(_, addend) => (FETCH_ADD, [addend, 0]),
        other => unreachable!("{other:?} is not an atomic operation"),
    };
    let _buffer = lock(&port.owner_request_buffer);
    let request = OwnerRequest {
        kind,
        place,
        length: Operation::ATOMIC_SIZE,
        operands,
        buffer: 0,
    };
    ask(port, peer, &request)
}

/// Lets the owner copy all pieces to or from its memory.
pub(crate) fn copy(
    port: &Port,
    peer: &Peer,
    direction: Direction,
    (pieces, mut far): (&mut Pieces, FarPlace),
) -> Result<(), CopyFailure> {
    let mut held = lock(&port.owner_request_buffer);
    let offset = match &*held {
        Some(range) => range.start,
        None => {
            let range = port.take_ring(ROOM).map_err(|_| CopyFailure::Refused)?;
            held.insert(range).start
        }
    };
    loop {
        let length = (pieces.left() as u64).min(ROOM);
        if length == 0 {
            return Ok(());
        }
        let request = |kind| OwnerRequest {
            kind,
            place: far,
            length,
            operands: [0; 2],
            buffer: offset,
        };
        let buffer = port.address(offset);
        let asked = match direction {
            Direction::ToOwner => {
                exchange(pieces, buffer, length, |ours, theirs, count| {
                    // SAFETY: the buffer is this process's while nothing is asked for; the piece was checked.
                    unsafe { std::ptr::copy_nonoverlapping(ours, theirs, count) };
                });
                ask(port, peer, &request(WRITE))
            }
            Direction::FromOwner => ask(port, peer, &request(READ)).inspect(|_| {
                exchange(pieces, buffer, length, |ours, theirs, count| {
                    // SAFETY: as above, after the request is done.
                    unsafe { place(ours, theirs, count) };
                });
            }),
        };
        if asked == Err(CopyFailure::TimedOut) {
            // The owner may still use it.
            *held = None;
        }
        asked?;
        far.addr += length;
    }
}

/// Calls `each` for the next `length` bytes of the pieces, with the address of these bytes and of those in `buffer`.
fn exchange(
    pieces: &mut Pieces,
    mut buffer: *mut u8,
    length: u64,
    each: impl Fn(*mut u8, *mut u8, usize),
) {
    let mut left = length as usize;
    while left > 0
        && let Some((start, count)) = pieces.take(left)
    {
        each(start, buffer, count);
        buffer = buffer.wrapping_add(count);
        left -= count;
    }
}

/// Writes the request to this port's entry in the owner's file, and waits until it is done.
fn ask(port: &Port, peer: &Peer, request: &OwnerRequest) -> Result<u64, CopyFailure> {
    let entry = peer.owner_request(port.slot);
    // An earlier owner of this port's slot, or a request that timed out, may have left one.
    wait(port, peer, entry)?;
    entry.epoch.store(port.epoch, Ordering::Relaxed);
    entry.kind.store(request.kind, Ordering::Relaxed);
    entry.key.store(request.place.key, Ordering::Relaxed);
    entry.addr.store(request.place.addr, Ordering::Relaxed);
    entry.length.store(request.length, Ordering::Relaxed);
    entry.buffer.store(request.buffer, Ordering::Relaxed);
    entry.operands[0].store(request.operands[0], Ordering::Relaxed);
    entry.operands[1].store(request.operands[1], Ordering::Relaxed);
    entry.state.store(ASKED, Ordering::Release);
    wait(port, peer, entry)?;
    match entry.state.load(Ordering::Acquire) {
        DONE => Ok(entry.operands[0].load(Ordering::Relaxed)),
        _ => Err(CopyFailure::Remote),
    }
}

/// Waits until the entry has no request that is not carried out.
fn wait(port: &Port, peer: &Peer, entry: &OwnerRequestEntry) -> Result<(), CopyFailure> {
    if entry.state.load(Ordering::Acquire) != ASKED {
        return Ok(());
    }
    peer.call(port.slot);
    let deadline = Instant::now() + TIMEOUT;
    let mut looks = 0;
    while entry.state.load(Ordering::Acquire) == ASKED {
        if !peer.lives() {
            return Err(CopyFailure::Gone);
        }
        if Instant::now() > deadline {
            return Err(CopyFailure::TimedOut);
        }
        port.carry_out_owner_requests();
        looks += 1;
        match looks {
            ..LOOKS => yield_now(),
            _ => sleep(PAUSE),
        }
    }
    Ok(())
}

impl Port {
    /// Carries out what peers have asked for.
    pub(crate) fn carry_out_owner_requests(&self) {
        for (n, word) in self.owner_request_bits().iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let _one_at_a_time = lock(&self.carrying_out);
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                self.carry_out(n as u32 * u64::BITS + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    fn carry_out(&self, slot: u32) {
        let entry = self.owner_request(slot);
        if entry.state.load(Ordering::Acquire) != ASKED {
            return;
        }
        let direction = match entry.kind.load(Ordering::Relaxed) {
            WRITE => Some(Direction::ToOwner),
            READ => Some(Direction::FromOwner),
            _ => None,
        };
        let outcome = match direction {
            None => self.operate_for(entry),
            Some(direction) => {
                match self.peer_with_epoch(slot, entry.epoch.load(Ordering::Relaxed)) {
                    Ok(peer) => self.copy_for(&peer, entry, direction),
                    // The death of the slot's earlier owner was not noticed yet.
                    Err(SenderWatch::NotYet) => return self.postpone(slot),
                    Err(_) => None,
                }
            }
        };
        let state = if outcome.is_some() { DONE } else { FAILED };
        entry.state.store(state, Ordering::Release);
    }

    /// Lets the engine carry out the request of `slot` when it wakes up again.
    fn postpone(&self, slot: u32) {
        let bits = &self.owner_request_bits()[(slot / u64::BITS) as usize];
        bits.fetch_or(1 << (slot % u64::BITS), Ordering::Relaxed);
    }

    /// Copies between the peer's buffer and a region. `None` if that is not possible.
    fn copy_for(&self, peer: &Peer, entry: &OwnerRequestEntry, direction: Direction) -> Option<()> {
        let length = entry.length.load(Ordering::Relaxed);
        let buffer = entry.buffer.load(Ordering::Relaxed);
        let buffer = peer.address(buffer, length)?;
        let regions = lock(&self.regions);
        let memory = self.owner_request_target(entry, length)?;
        let mut pieces = Pieces::new();
        pieces.push(buffer, length as usize);
        if direction == Direction::ToOwner {
            pieces.split_last(last_piece(memory.addr(), length as usize));
        }
        let at = memory.expose_provenance() as u64;
        // SAFETY: `owner_request_target` checked the region, which stays registered while the table is locked; the buffer is in
        // the peer's file.
        let copied = unsafe { process::copy(getpid(), direction, &mut pieces, at) };
        match (copied, direction) {
            (Ok(()), _) => {}
            // A filter of system calls forbids even this.
            // SAFETY: as above, and the program promised that its memory is mapped.
            (Err(CopyFailure::Refused), Direction::ToOwner) => unsafe {
                place(memory, buffer, length as usize);
            },
            // SAFETY: as above.
            (Err(CopyFailure::Refused), Direction::FromOwner) => unsafe {
                place(buffer, memory, length as usize);
            },
            (Err(_), _) => return None,
        }
        drop(regions);
        Some(())
    }

    /// Carries out an atomic operation, and stores the old value in the entry.
    fn operate_for(&self, entry: &OwnerRequestEntry) -> Option<()> {
        let regions = lock(&self.regions);
        let memory = self.owner_request_target(entry, Operation::ATOMIC_SIZE)?;
        if !memory.addr().is_multiple_of(align_of::<AtomicU64>()) || is_missing(memory) {
            return None;
        }
        // SAFETY: `owner_request_target` checked the region, which stays registered while the table is locked, and is aligned.
        let word = unsafe { &*memory.cast::<AtomicU64>() };
        let [first, second] = &entry.operands;
        let operand = first.load(Ordering::Relaxed);
        let before = if entry.kind.load(Ordering::Relaxed) == FETCH_ADD {
            word.fetch_add(operand, Ordering::SeqCst)
        } else {
            let new = second.load(Ordering::Relaxed);
            word.compare_exchange(operand, new, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found)
        };
        drop(regions);
        first.store(before, Ordering::Relaxed);
        Some(())
    }

    /// Returns the first byte of the entry's place in this process, if it has a region of this key with `length` bytes
    /// there. The peer has checked the rights.
    fn owner_request_target(&self, entry: &OwnerRequestEntry, length: u64) -> Option<*mut u8> {
        let key = entry.key.load(Ordering::Relaxed);
        let region = self.mr_entry(mr_index(key));
        let addr = entry.addr.load(Ordering::Relaxed);
        let offset = addr.wrapping_sub(region.addr.load(Ordering::Relaxed));
        let has = region.length.load(Ordering::Relaxed);
        let fits = offset <= has && length <= has - offset;
        let named = key != 0 && region.key.load(Ordering::Acquire) == key;
        let at = addr.wrapping_add(region.shift.load(Ordering::Relaxed));
        (named && fits).then(|| std::ptr::with_exposed_provenance_mut(at as usize))
    }
}

/// Whether a word of the program's memory is not mapped.
fn is_missing(word: *mut u8) -> bool {
    let mut copy = 0u64;
    let mut pieces = Pieces::new();
    pieces.push((&raw mut copy).cast(), size_of::<u64>());
    let at = word.expose_provenance() as u64;
    // SAFETY: reads the registered memory of this process into a word of ours.
    let read = unsafe { process::copy(getpid(), Direction::FromOwner, &mut pieces, at) };
    matches!(read, Err(CopyFailure::Remote | CopyFailure::Local))
}
