//! The program's memory in a call: a partly copied list of pieces.

use libc::iovec;

/// The rest of a list of pieces.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    list: &'a [iovec],
    /// Bytes of the first piece that were copied.
    at: usize,
    left: usize,
}

impl<'a> Pieces<'a> {
    /// # Safety
    /// While it exists, the pieces are memory that `copy_to` may read if it is called, and that `copy_from` may write.
    pub(super) unsafe fn new(list: &'a [iovec]) -> Self {
        let left = list.iter().map(|piece| piece.iov_len).sum();
        Pieces { list, at: 0, left }
    }

    /// Number of bytes that were not copied.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Returns the address of the next `length` bytes if they are in one piece.
    pub(super) fn contiguous(&mut self, length: usize) -> Option<*const u8> {
        let (next, room) = self.next()?;
        (room >= length).then_some(next.cast_const())
    }

    /// Returns the next piece that is not empty.
    fn next(&mut self) -> Option<(*mut u8, usize)> {
        loop {
            let first = self.list.first()?;
            if self.at < first.iov_len {
                let next = first.iov_base.cast::<u8>().wrapping_add(self.at);
                return Some((next, first.iov_len - self.at));
            }
            self.list = &self.list[1..];
            self.at = 0;
        }
    }

    /// Skips bytes that were copied.
    pub(super) fn skip(&mut self, length: usize) {
        self.at += length;
        self.left -= length;
    }

    /// Copies the next `length` bytes to `to`. At least `length` bytes are left.
    ///
    /// # Safety
    /// `to` has room for them.
    pub(super) unsafe fn copy_to(&mut self, mut to: *mut u8, mut length: usize) {
        while length > 0
            && let Some((from, room)) = self.next()
        {
            let count = room.min(length);
            // SAFETY: the caller's, and `new`'s.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, count);
                to = to.add(count);
            }
            self.skip(count);
            length -= count;
        }
    }

    /// Copies `length` bytes from `from` to the next places. At least `length` places are left.
    ///
    /// # Safety
    /// `from` has them.
    pub(super) unsafe fn copy_from(&mut self, mut from: *const u8, mut length: usize) {
        while length > 0
            && let Some((to, room)) = self.next()
        {
            let count = room.min(length);
            // SAFETY: the caller's, and `new`'s.
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, count);
                from = from.add(count);
            }
            self.skip(count);
            length -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_copied_across_their_ends() {
        let mut bytes = *b"abcdefgh";
        let base = bytes.as_mut_ptr();
        let piece = |at: usize, iov_len| iovec {
            iov_base: base.wrapping_add(at).cast(),
            iov_len,
        };
        let list = [piece(0, 3), piece(3, 0), piece(4, 4)];
        // SAFETY: the pieces are in `bytes`.
        let mut pieces = unsafe { Pieces::new(&list) };
        let mut out = [0; 5];
        // SAFETY: there is room for 5 bytes.
        unsafe { pieces.copy_to(out.as_mut_ptr(), 5) };
        assert_eq!(&out, b"abcef");
        assert_eq!(pieces.left(), 2);
        assert!(pieces.contiguous(2).is_some() && pieces.contiguous(3).is_none());
        // SAFETY: there are 2 bytes.
        unsafe { pieces.copy_from(b"XY".as_ptr(), 2) };
        assert_eq!(pieces.left(), 0);
        assert_eq!(pieces.contiguous(1), None);
        assert_eq!(&bytes, b"abcdefXY");
    }
}
