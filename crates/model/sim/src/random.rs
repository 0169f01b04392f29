//! Seeded random numbers: one stream per component.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The seed of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the stream of component number `index` of kind `name`.
    ///
    /// A stream depends only on seed, name and index, so adding a component does not change the others.
    pub fn stream(self, name: &str, index: u64) -> Random {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.0.to_le_bytes());
        key[8..16].copy_from_slice(&index.to_le_bytes());
        key[16..24].copy_from_slice(&fnv1a(name.as_bytes()).to_le_bytes());
        key[24..].copy_from_slice(&(name.len() as u64).to_le_bytes());
        Random(ChaCha8Rng::from_seed(key))
    }
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`, uniform to within 2^-64 × bound.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below 0");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_seed_name_and_index_alone() {
        let first = |seed: u64, name, index| Seed(seed).stream(name, index).bits();
        assert_eq!(first(1, "nic", 0), first(1, "nic", 0));
        assert_ne!(first(1, "nic", 0), first(2, "nic", 0));
        assert_ne!(first(1, "nic", 0), first(1, "nic", 1));
        assert_ne!(first(1, "nic", 0), first(1, "cpu", 0));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = Seed(7).stream("test", 0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert_eq!(seen, [true; 5]);
    }
}
