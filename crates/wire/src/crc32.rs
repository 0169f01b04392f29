//! CRC-32 (Ethernet's) over long packets: by the processor's own instructions where it has them, else by
//! folding.
//!
//! Without such instructions a table is looked up for each byte. Folding takes 8 bytes in some 20 shifts
//! and sums, without any table: the polynomial divides x^300 + x^155 + x^117 + x^89 + 1, so a bit is as
//! good as four bits that come 145, 183, 211 and 300 bits later. What is left at the end, a few words, goes
//! through the tables. (After S. Russell, *Chorba: A novel CRC32 implementation*, 2024.)

use crc32fast::Hasher;

/// Words that a word's bits may be moved by.
const REACH: usize = 5;
const WORD: usize = size_of::<u64>();
/// Words that are folded at a time.
const STEP: usize = 4;
/// Bytes left over by folding at most.
const LEFT: usize = (REACH + STEP) * WORD;
/// From here on folding is faster.
const LONG: usize = 256;

/// Extends `crc` by `bytes`.
#[inline]
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < LONG || has_instructions() {
        return by_library(crc, bytes);
    }
    by_folding(crc, bytes)
}

/// Whether the processor has CRC or carry-less multiplication instructions that the library uses.
#[inline]
fn has_instructions() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.1")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("crc")
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

#[inline]
fn by_library(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

fn by_folding(crc: u32, bytes: &[u8]) -> u32 {
    let folded = bytes.len().saturating_sub(REACH * WORD) / (STEP * WORD) * (STEP * WORD);
    let (words, rest) = bytes.split_at(folded);
    // What earlier words add to the next five. The first gets the register, as in any CRC.
    let mut sums = [0; REACH];
    sums[0] = u64::from(!crc);
    for step in words.chunks_exact(STEP * WORD) {
        sums = fold(sums, step);
    }
    let mut end = [0; LEFT];
    let end = &mut end[..rest.len()];
    end.copy_from_slice(rest);
    for (i, sum) in sums.into_iter().enumerate() {
        let place = &mut end[i * WORD..][..WORD];
        let word = word(place) ^ sum;
        place.copy_from_slice(&word.to_le_bytes());
    }
    // A register of 0.
    by_library(!0, end)
}

/// Moves the bits of four words on to the five behind them.
#[inline]
fn fold(sums: [u64; REACH], step: &[u8]) -> [u64; REACH] {
    let at = |i: usize| word(&step[i * WORD..]);
    let one = at(0) ^ sums[0];
    let two = at(1) ^ sums[1];
    let three = at(2) ^ sums[2] ^ by_two(one);
    let four = at(3) ^ sums[3] ^ by_three(one) ^ by_two(two);
    [
        sums[4] ^ by_four(one) ^ by_three(two) ^ by_two(three),
        by_five(one) ^ by_four(two) ^ by_three(three) ^ by_two(four),
        by_five(two) ^ by_four(three) ^ by_three(four),
        by_five(three) ^ by_four(four),
        by_five(four),
    ]
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a whole word"))
}

/// A word's bits that move by 145 and 183 bits, as far as they come two words on.
#[inline]
const fn by_two(word: u64) -> u64 {
    (word << 17) ^ (word << 55)
}

/// Their rest, and those that move by 211 bits.
#[inline]
const fn by_three(word: u64) -> u64 {
    (word >> 47) ^ (word >> 9) ^ (word << 19)
}

/// The rest of these, and those that move by 300 bits.
#[inline]
const fn by_four(word: u64) -> u64 {
    (word >> 45) ^ (word << 44)
}

/// The rest.
#[inline]
const fn by_five(word: u64) -> u64 {
    word >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_gives_the_crc_of_all_lengths() {
        let bytes: Vec<u8> = (0..9000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let lengths = (REACH * WORD..700).chain([4096, 4112, 8999]);
        for length in lengths {
            for (from, crc) in [(0, 0), (1, 0xdead_beef), (0, !0)] {
                let bytes = &bytes[from..from + length];
                assert_eq!(by_folding(crc, bytes), by_library(crc, bytes), "{length}");
            }
        }
    }

    #[test]
    fn each_single_bit_counts() {
        for bit in 0..8 * 160 {
            let mut bytes = [0; 160];
            bytes[bit / 8] = 1 << (bit % 8);
            assert_eq!(by_folding(!0, &bytes), by_library(!0, &bytes), "bit {bit}");
        }
    }

    #[test]
    fn what_is_extended_is_the_crc_of_the_whole() {
        let whole = [0x5a; 1000];
        let (front, rest) = whole.split_at(40);
        assert_eq!(extend(extend(0, front), rest), crc32fast::hash(&whole));
    }
}
