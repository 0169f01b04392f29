//! Big-endian fields of headers of a fixed length.

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $header:literal, $len:literal) => {
        /// Bytes of the header.
        pub const LEN: usize = $len;

        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a>(&'a [u8; LEN]);

        impl<'a> $name<'a> {
            /// The header at the beginning of `bytes`, and what follows it.
            ///
            /// # Errors
            /// `Truncated` where there are fewer bytes than the header has.
            #[inline]
            pub fn new(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), $crate::WireError> {
                match bytes.split_first_chunk::<LEN>() {
                    Some((header, rest)) => Ok(($name(header), rest)),
                    None => Err($crate::WireError::Truncated {
                        header: $header,
                        need: LEN,
                        have: bytes.len(),
                    }),
                }
            }
        }
    };
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

/// `M` bytes of the header, from `at` on.
#[inline]
pub(crate) fn octets<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|i| b[at + i])
}

/// Puts bytes into the header, at `at`.
#[inline]
pub(crate) fn put<const N: usize, const M: usize>(b: &mut [u8; N], at: usize, value: [u8; M]) {
    b[at..at + M].copy_from_slice(&value);
}

/// Puts the low 24 bits of a number into the header, at `at`.
#[inline]
pub(crate) fn put24<const N: usize>(b: &mut [u8; N], at: usize, value: u32) {
    let [_, high, middle, low] = value.to_be_bytes();
    put(b, at, [high, middle, low]);
}
