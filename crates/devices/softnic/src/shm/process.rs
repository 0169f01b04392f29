//! Copies between this process and another one, by `process_vm_readv` and `process_vm_writev`.
//!
//! Neither side faults: a page that is missing, or must not be accessed, ends the copy with an error. The kernel copies
//! pages in ascending order, and each local piece by instructions of its own. So the last piece of a copy to another
//! process becomes visible after the bytes before it ([`Pieces::split_last`]).

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

/// Maximum number of pieces: the SGEs of a request, with one SGE in two pieces.
const MAX_PIECES: usize = 17;

/// Pieces of memory of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    all: [libc::iovec; MAX_PIECES],
    /// Those before this one are copied.
    next: usize,
    count: usize,
    /// Bytes that are copied.
    pub(crate) copied: u64,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToOwner,
    FromOwner,
}

/// Why bytes were not copied, or not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    /// Memory of this process is missing.
    Local,
    /// Memory of the owner is missing, or must not be accessed.
    Remote,
    /// This process has no descriptors or memory left to reach the owner's memory.
    NoResources,
    /// The owner has ended.
    Gone,
    /// The owner does not respond.
    TimedOut,
    /// The kernel does not let this process access the owner's memory.
    Refused,
}

impl Pieces {
    pub(crate) const fn new() -> Self {
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Pieces {
            all: [none; MAX_PIECES],
            next: 0,
            count: 0,
            copied: 0,
        }
    }

    /// Appends a piece; the caller checked that requests may access it.
    ///
    /// # Panics
    /// If there are more pieces than a request has SGEs, which is an error of ours.
    pub(crate) fn push(&mut self, start: *mut u8, length: usize) {
        self.all[self.count] = libc::iovec {
            iov_base: start.cast(),
            iov_len: length,
        };
        self.count += 1;
    }

    /// Makes the last `length` bytes a piece of their own.
    pub(crate) fn split_last(&mut self, length: usize) {
        let Some(last) = self.all[..self.count].last_mut() else {
            return;
        };
        let Some(before) = last.iov_len.checked_sub(length).filter(|n| *n != 0) else {
            return;
        };
        last.iov_len = before;
        let end = last.iov_base.cast::<u8>().wrapping_add(before);
        self.push(end, length);
    }

    /// Returns the number of bytes that are not copied yet.
    pub(crate) fn left(&self) -> usize {
        let pieces = &self.all[self.next..self.count];
        pieces.iter().map(|piece| piece.iov_len).sum()
    }

    /// Returns the first `most` bytes that are not copied yet, of one piece, and regards them as copied.
    pub(crate) fn take(&mut self, most: usize) -> Option<(*mut u8, usize)> {
        let piece = &mut self.all[self.next..self.count].first_mut()?;
        let start = piece.iov_base.cast::<u8>();
        let count = piece.iov_len.min(most);
        piece.iov_base = start.wrapping_add(count).cast();
        piece.iov_len -= count;
        self.copied += count as u64;
        if piece.iov_len == 0 {
            self.next += 1;
        }
        Some((start, count))
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let Some((_, count)) = self.take(bytes) else {
                return;
            };
            bytes -= count;
        }
    }

    /// Whether the next byte is mapped and readable.
    fn is_readable(&self) -> bool {
        let mut byte = 0u8;
        let into = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let from = libc::iovec {
            iov_len: 1,
            ..self.all[self.next]
        };
        let own = getpid().as_raw_nonzero().get();
        // SAFETY: the kernel writes at most one byte to `byte`; it checks the other range.
        unsafe { libc::process_vm_readv(own, &raw const into, 1, &raw const from, 1, 0) == 1 }
    }
}

/// Copies all pieces to or from the memory of the process `owner` at its address `at`. After an error, the first bytes
/// may have been copied.
///
/// # Safety
/// The pieces may be written (or read, if they are copied to the owner) now, as far as they are mapped; so may the owner's
/// memory.
pub(crate) unsafe fn copy(
    owner: Pid,
    direction: Direction,
    pieces: &mut Pieces,
    mut at: u64,
) -> Result<(), CopyFailure> {
    let call = match direction {
        Direction::ToOwner => libc::process_vm_writev,
        Direction::FromOwner => libc::process_vm_readv,
    };
    let owner = owner.as_raw_nonzero().get();
    let mut left = pieces.left();
    while left > 0 {
        let local = &pieces.all[pieces.next..pieces.count];
        let far = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(at as usize),
            iov_len: left,
        };
        // SAFETY: the kernel checks both sides; that they may be accessed is the caller's promise.
        let done = unsafe {
            let count = local.len() as libc::c_ulong;
            call(owner, local.as_ptr(), count, &raw const far, 1, 0)
        };
        match usize::try_from(done) {
            Ok(done) if done >= left => return Ok(()),
            Ok(done) if done > 0 => {
                pieces.advance(done);
                (at, left) = (at + done as u64, left - done);
            }
            _ => return Err(failure(pieces)),
        }
    }
    Ok(())
}

/// Returns why the system call failed.
#[cold]
fn failure(pieces: &Pieces) -> CopyFailure {
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::FAULT) if pieces.is_readable() => CopyFailure::Remote,
        Some(Errno::FAULT) => CopyFailure::Local,
        Some(Errno::SRCH) => CopyFailure::Gone,
        _ => CopyFailure::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(of: &mut [u8], cuts: &[usize]) -> Pieces {
        let mut pieces = Pieces::new();
        let mut start = of.as_mut_ptr();
        for length in cuts {
            pieces.push(start, *length);
            start = start.wrapping_add(*length);
        }
        pieces
    }

    #[test]
    fn all_pieces_are_copied_in_either_direction_and_the_last_bytes_apart() {
        let mut here: Vec<u8> = (0..100).collect();
        let mut there = vec![0u8; 100];
        let at = there.as_mut_ptr().expose_provenance() as u64;
        let mut from = pieces(&mut here, &[3, 0, 40]);
        from.split_last(8);
        assert_eq!((from.count, from.left()), (4, 43));
        // SAFETY: both vectors are ours; nothing refers to them during the copy.
        let copied = unsafe { copy(getpid(), Direction::ToOwner, &mut from, at + 1) };
        assert_eq!(copied, Ok(()));
        assert_eq!(there[1..44], here[..43]);
        assert_eq!(there[44..], [0; 56]);
        let mut into = pieces(&mut here, &[1, 9]);
        // SAFETY: as above.
        let copied = unsafe { copy(getpid(), Direction::FromOwner, &mut into, at + 90) };
        assert_eq!(copied, Ok(()));
        assert_eq!(here[..10], [0; 10]);
    }

    #[test]
    fn missing_memory_is_told_apart_by_its_side() {
        let mut here = [1u8; 8];
        let mut there = [0u8; 8];
        let at = there.as_mut_ptr().expose_provenance() as u64;
        let mut nothing = Pieces::new();
        nothing.push(std::ptr::without_provenance_mut(8), 8);
        // SAFETY: one side of each copy is ours, the other is not mapped.
        let (local, remote) = unsafe {
            let local = copy(getpid(), Direction::ToOwner, &mut nothing, at);
            let mut pieces = pieces(&mut here, &[8]);
            (local, copy(getpid(), Direction::ToOwner, &mut pieces, 8))
        };
        assert_eq!(local, Err(CopyFailure::Local));
        assert_eq!(remote, Err(CopyFailure::Remote));
    }
}
