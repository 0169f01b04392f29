//! A small and fast random number generator for choosing targets and places.

use adverb_units::Span;

/// xorshift64* (Vigna 2016).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        // Never zero; similar seeds give different streams.
        Random((seed ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws from an exponential distribution: the time between two of many independent events.
    pub fn exponential(&mut self, mean: Span) -> Span {
        // In (0, 1]: the logarithm is finite.
        let share = (self.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        Span::from_secs_f64(-share.ln() * mean.as_secs_f64())
    }

    /// Returns true with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        (self.below(1 << 53) as f64) < share * (1u64 << 53) as f64
    }
}

/// The finalizer of splitmix64 (Steele et al. 2014): each bit of the result depends on all.
#[inline]
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
