//! CRC-32 (Ethernet's): the processor's carry-less multiplication or CRC instructions where it has them,
//! else tables of eight bytes at a time (`crc32fast` chooses).

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
