//! The bytes of requests, replies and records.

use adverb_workload::random::mix;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// 2^64 / golden ratio: an odd number whose multiples are evenly distributed.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the words of the content of `seed`.
fn words(seed: u64) -> impl Iterator<Item = [u8; WORD]> {
    let first = mix(seed);
    (0..).map(move |place: u64| first.wrapping_add(place.wrapping_mul(STEP)).to_le_bytes())
}

/// Fills `bytes` with the content of `seed`.
pub(super) fn fill(bytes: &mut [u8], seed: u64) {
    for (piece, word) in bytes.chunks_mut(WORD).zip(words(seed)) {
        piece.copy_from_slice(&word[..piece.len()]);
    }
}

/// Whether `bytes` are the content of `seed`.
pub(super) fn is_of(bytes: &[u8], seed: u64) -> bool {
    let mut pieces = bytes.chunks(WORD).zip(words(seed));
    pieces.all(|(piece, word)| *piece == word[..piece.len()])
}

/// Returns a digest of all bytes of a request: the seed of its reply.
pub(super) fn digest(request: &[u8]) -> u64 {
    request.chunks(WORD).fold(0, |digest, piece| {
        let mut word = [0; WORD];
        word[..piece.len()].copy_from_slice(piece);
        mix(digest ^ u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_of_request_or_reply_is_noticed() {
        for length in [8, 9, 64, 1000] {
            let mut bytes = vec![0; length];
            fill(&mut bytes, 7);
            let right = digest(&bytes);
            assert!(is_of(&bytes, 7) && !is_of(&bytes, 8), "{length}");
            for place in [0, length / 2, length - 1] {
                bytes[place] ^= 1;
                assert!(!is_of(&bytes, 7), "byte {place} of {length}");
                assert_ne!(digest(&bytes), right, "byte {place} of {length}");
                bytes[place] ^= 1;
            }
        }
    }
}
