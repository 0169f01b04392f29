//! Verifiable payload: a function of seed, message and offset.

use adverb_verbs::{MemoryAccessError, MemoryRegion};

use crate::error::Fault;
use crate::random::mix;

const PIECE: usize = 4096;
const WORD: usize = size_of::<u64>();
/// 2^64 / golden ratio: an odd number whose multiples are evenly distributed.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Payloads of one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(crate) const fn new(seed: u64) -> Self {
        Pattern { seed }
    }

    /// Writes the payload of `message` to `offset`.
    pub(crate) fn fill<M: MemoryRegion>(
        self,
        mr: &M,
        offset: u64,
        length: u64,
        message: u64,
    ) -> Result<(), MemoryAccessError> {
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < length {
            let part = &mut piece[..chunk(length - done)];
            self.generate(message, done, part);
            mr.write(offset + done, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Compares what is at `offset` with the payload of `message`.
    pub(crate) fn check<M: MemoryRegion>(
        self,
        mr: &M,
        offset: u64,
        length: u64,
        message: u64,
    ) -> Result<(), Fault> {
        let (mut expected, mut found) = ([0; PIECE], [0; PIECE]);
        let mut done = 0;
        while done < length {
            let n = chunk(length - done);
            self.generate(message, done, &mut expected[..n]);
            mr.read(offset + done, &mut found[..n])?;
            same(message, done, &expected[..n], &found[..n])?;
            done += n as u64;
        }
        Ok(())
    }

    /// The first `length` bytes of the payload of `message`.
    pub(crate) fn bytes(self, message: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.write(message, &mut bytes);
        bytes
    }

    /// Writes the payload of `message` to `into`.
    pub(crate) fn write(self, message: u64, into: &mut [u8]) {
        self.generate(message, 0, into);
    }

    /// Compares `found` with the payload of `message` from byte `from` on.
    pub(crate) fn compare(self, message: u64, from: usize, found: &[u8]) -> Result<(), Fault> {
        let expected = self.bytes(message, from + found.len());
        same(message, from as u64, &expected[from..], found)
    }

    /// Bytes `from..` of the payload of `message`; `from` is a multiple of the word.
    fn generate(self, message: u64, from: u64, into: &mut [u8]) {
        let base = mix(self.seed ^ mix(message));
        let first = from / WORD as u64;
        let word = |k: u64| {
            let w = base.wrapping_add(first.wrapping_add(k).wrapping_mul(STEP));
            (w ^ (w >> 29)).to_le_bytes()
        };
        let mut words = into.chunks_exact_mut(WORD);
        let mut k = 0;
        for bytes in &mut words {
            bytes.copy_from_slice(&word(k));
            k += 1;
        }
        let rest = words.into_remainder();
        let last = word(k);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Checks bytes of `message` from byte `from` on.
///
/// # Errors
/// The first wrong byte.
pub fn same(message: u64, from: u64, expected: &[u8], found: &[u8]) -> Result<(), Fault> {
    let mut pairs = (from..).zip(expected.iter().zip(found));
    match pairs.find(|(_, (expected, found))| expected != found) {
        None => Ok(()),
        Some((offset, (expected, found))) => Err(Fault::Mismatch {
            message,
            offset,
            expected: *expected,
            found: *found,
        }),
    }
}

fn chunk(left: u64) -> usize {
    left.min(PIECE as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_softnic::SoftDevice;
    use adverb_units::Bytes;
    use adverb_verbs::{AccessFlags, Context, Device};

    #[test]
    fn a_changed_byte_is_found_and_named() {
        let context = SoftDevice::new().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let length = 2 * PIECE as u64 + 13;
        let mr = context
            .alloc_mr(&pd, Bytes::new(64 + length), AccessFlags::LOCAL_WRITE)
            .unwrap();
        let pattern = Pattern::new(5);
        pattern.fill(&mr, 64, length, 7).unwrap();
        pattern.check(&mr, 64, length, 7).unwrap();
        for place in [0, 8, PIECE as u64, length - 1] {
            let mut byte = [0];
            mr.read(64 + place, &mut byte).unwrap();
            mr.write(64 + place, &[!byte[0]]).unwrap();
            match pattern.check(&mr, 64, length, 7) {
                Err(Fault::Mismatch {
                    message: 7,
                    offset,
                    expected,
                    found,
                }) => {
                    assert_eq!((offset, expected, found), (place, byte[0], !byte[0]));
                }
                other => panic!("{other:?}"),
            }
            mr.write(64 + place, &byte).unwrap();
        }
        assert!(pattern.check(&mr, 64, length, 8).is_err());
    }

    fn bytes(seed: u64, message: u64, from: u64, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        Pattern::new(seed).generate(message, from, &mut bytes);
        bytes
    }

    #[test]
    fn pieces_join_to_the_whole() {
        let whole = bytes(1, 2, 0, 3 * PIECE + 5);
        assert_eq!(whole[PIECE..2 * PIECE], bytes(1, 2, PIECE as u64, PIECE));
        assert_eq!(whole[3 * PIECE..], bytes(1, 2, 3 * PIECE as u64, 5));
    }

    #[test]
    fn seed_message_and_place_all_matter() {
        let one = bytes(1, 1, 0, 64);
        let differing = |other: &[u8]| one.iter().zip(other).filter(|(a, b)| a != b).count();
        assert!(differing(&bytes(2, 1, 0, 64)) > 50);
        assert!(differing(&bytes(1, 2, 0, 64)) > 50);
        assert!(differing(&bytes(1, 1, 64, 64)) > 50);
    }
}
