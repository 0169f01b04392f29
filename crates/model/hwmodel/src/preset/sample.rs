//! Presets with other values of the parameters that are estimates.

use adverb_sim::Seed;

use super::{Preset, contradiction};
use crate::params::{Field, Numbers};

/// How the source of an estimate begins. Other values are published, or fitted to published figures.
const ESTIMATE: &str = "mechanism estimate";

/// An estimate may be wrong by this factor, in either direction. It is a convention: nothing published bounds them.
const FACTOR: f64 = 1.5;

impl Preset {
    /// Whether the value of a parameter is an estimate from its mechanism, which no publication gives.
    pub fn is_estimate(&self, field: &Field) -> bool {
        self.source(field.path)
            .is_some_and(|source| source.starts_with(ESTIMATE))
    }

    /// Returns sample `number` of `of` samples, in which each estimate is multiplied by a factor of 1/1.5 to 1.5. A size in
    /// bytes, which is a power of two, is halved, kept or doubled.
    ///
    /// The samples are a Latin hypercube (McKay, Beckman and Conover, 1979): the range of each factor is divided into `of`
    /// parts of equal ratio, each sample has a factor in another part, and the orders of the parts are random and
    /// independent. The same number gives the same preset. Lanes stay as they are: the number is known of each card.
    /// A value that would exceed another one which limits it is lowered to that.
    #[must_use]
    pub fn sample(&self, number: u32, of: u32) -> Self {
        let mut sample = self.clone();
        for (n, field) in self.fields().enumerate() {
            let is_lanes = field.path == "pcie.lanes";
            if !self.is_estimate(field) || is_lanes {
                continue;
            }
            let mut random = Seed(0).stream("sample", n as u64);
            let mut parts: Vec<u32> = (0..of).collect();
            for last in (1..parts.len()).rev() {
                parts.swap(last, random.below(last as u64 + 1) as usize);
            }
            let part = parts[number as usize];
            // The middle of a part, between -1 and 1.
            let place = (2.0 * f64::from(part) + 1.0) / f64::from(of) - 1.0;
            let value = (field.get)(&self.params);
            let value = if field.path.ends_with("_bytes") {
                value * 2_f64.powf((1.5 * place).round())
            } else if field.numbers == Numbers::All {
                value * FACTOR.powf(place)
            } else {
                (value * FACTOR.powf(place)).round()
            };
            (field.set)(&mut sample.params, value.clamp(field.min, field.max));
        }
        contradiction::remove(&mut sample.params);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::FIELDS;

    fn value(preset: &Preset, path: &str) -> f64 {
        let field = FIELDS.iter().find(|field| field.path == path);
        (field.expect("there is such a parameter").get)(&preset.params)
    }

    #[test]
    fn samples_cover_the_range_of_each_estimate_and_leave_the_rest() {
        let preset = Preset::built_in("connect_ib").unwrap();
        let samples: Vec<Preset> = (0..20).map(|number| preset.sample(number, 20)).collect();
        for path in ["nic.unit_wqe_ns", "nic.send_mops", "pcie.lanes"] {
            let kept = |sample: &Preset| value(sample, path) == value(&preset, path);
            assert!(samples.iter().all(kept), "{path}");
        }
        for size in [256.0, 512.0, 1024.0] {
            let of_size = |sample: &&Preset| value(sample, "nic.wqe_read_bytes") == size;
            let count = samples.iter().filter(of_size).count();
            assert!((6..=8).contains(&count), "{size}: {count}");
        }
        let mut ratios: Vec<f64> = samples
            .iter()
            .map(|sample| value(sample, "nic.response_mops") / value(&preset, "nic.response_mops"))
            .collect();
        assert!(!ratios.is_sorted());
        ratios.sort_by(f64::total_cmp);
        for (part, ratio) in ratios.iter().enumerate() {
            let expected = 1.5_f64.powf((2.0 * part as f64 + 1.0) / 20.0 - 1.0);
            assert!((ratio / expected - 1.0).abs() < 1e-12, "{ratios:?}");
        }
        assert_eq!(preset.sample(3, 20).params, samples[3].params);
    }
}
