//! Big-endian fields of headers of a fixed length.

use adverb_verbs::Qpn;

use crate::WireError;

/// Splits `bytes` into the header `name` of `N` bytes and what follows it.
///
/// # Errors
/// There are fewer bytes.
#[inline]
pub(crate) fn split<'a, const N: usize>(
    name: &'static str,
    bytes: &'a [u8],
) -> Result<(&'a [u8; N], &'a [u8]), WireError> {
    bytes.split_first_chunk().ok_or(WireError::Truncated {
        header: name,
        need: N,
        have: bytes.len(),
    })
}

#[inline]
pub(crate) const fn be16<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline]
pub(crate) const fn be24<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([0, b[at], b[at + 1], b[at + 2]])
}

#[inline]
pub(crate) const fn be32<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline]
pub(crate) const fn be64<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    (be32(b, at) as u64) << 32 | be32(b, at + 4) as u64
}

/// Returns the `M` bytes from offset `at` on.
#[inline]
pub(crate) fn octets<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| b[at + i])
}

/// Returns the 24-bit queue pair number at offset `at`.
#[inline]
pub(crate) fn qpn<const N: usize>(b: &[u8; N], at: usize) -> Qpn {
    Qpn::new(be24(b, at)).expect("24 bits make a QPN")
}

/// Writes bytes at offset `at`.
#[inline]
pub(crate) fn put<const N: usize, const M: usize>(b: &mut [u8; N], at: usize, value: [u8; M]) {
    b[at..at + M].copy_from_slice(&value);
}

/// Writes the low 24 bits of a number at offset `at`.
#[inline]
pub(crate) fn put24<const N: usize>(b: &mut [u8; N], at: usize, value: u32) {
    let [_, high, middle, low] = value.to_be_bytes();
    put(b, at, [high, middle, low]);
}
