//! CRC-32 (Ethernet's). `crc32fast` uses the CPU's carry-less multiplication or CRC instructions if it has them.

use crc32fast::Hasher;

/// Extends `crc` by `bytes`.
#[inline]
pub(crate) fn extend(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extending_a_prefix_gives_the_crc_of_the_whole() {
        let whole = [0x5a; 1000];
        let (front, rest) = whole.split_at(40);
        assert_eq!(extend(extend(0, front), rest), crc32fast::hash(&whole));
    }
}
