//! The bytes of messages, which their receivers check.

use adverb_workload::error::Fault;
use adverb_workload::payload::same;

/// Returns the last byte of message `number`, which differs from the last bytes of the messages before it and from 0.
pub(crate) const fn last_byte(number: u64) -> u8 {
    1 + (number % 255) as u8
}

/// Returns the bytes of message `number`.
pub(crate) fn message(number: u64, length: u32) -> Vec<u8> {
    let byte = |offset: u64| {
        number
            .wrapping_mul(31)
            .wrapping_add(offset * 7 + offset / 256) as u8
    };
    let mut bytes: Vec<u8> = (0..u64::from(length)).map(byte).collect();
    if let Some(last) = bytes.last_mut() {
        *last = last_byte(number);
    }
    bytes
}

/// Checks every byte of message `number`.
///
/// # Errors
/// The first wrong byte.
pub(crate) fn check(number: u64, found: &[u8]) -> Result<(), Fault> {
    same(number, 0, &message(number, found.len() as u32), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found() {
        for length in [1, 2, 1000] {
            let mut bytes = message(7, length);
            assert!(check(7, &bytes).is_ok());
            assert!(check(8, &bytes).is_err());
            bytes[length as usize / 2] ^= 1;
            assert!(check(7, &bytes).is_err());
        }
    }
}
