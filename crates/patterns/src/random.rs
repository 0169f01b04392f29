//! A small random generator: where requests go must cost no more than choosing does.

/// xorshift64* (Vigna 2016).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Never zero; neighbouring seeds give unlike streams.
        Random((seed ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`; 0 for a bound of 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(bits) * u128::from(bound)) >> 64) as u64
    }
}
