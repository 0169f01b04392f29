//! Recorder of single latencies, and their histogram in a record.
//!
//! Values are picoseconds with three significant digits, so that 50 ns and 50 ms have the same relative
//! resolution. The range ends at 100 s, where longer values saturate.

use adverb_units::Span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::{Histogram, Latency};

/// The unit of the values in a [`Histogram`].
const UNIT: &str = "ps";
/// The longest latency that is resolved.
const LONGEST: Span = Span::from_secs(100);
const SIGNIFICANT_DIGITS: u8 = 3;

/// Counts latencies. Recording neither allocates nor fails.
///
/// It is serialized as its [`Histogram`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Histogram", try_from = "Histogram")]
pub struct LatencyRecorder {
    counts: hdrhistogram::Histogram<u64>,
}

/// Why a record's histogram cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistogramError {
    /// Recorded in another unit.
    #[error("histogram in '{0}': only '{UNIT}' is known")]
    Unit(String),
    /// The text is not base64, or the bytes are not a histogram.
    #[error("damaged histogram: {0}")]
    Damaged(String),
    /// The counts do not add up.
    #[error("damaged histogram: {found} latencies instead of {declared}")]
    Count {
        /// Recorded next to the histogram.
        declared: u64,
        /// Counted in it.
        found: u64,
    },
}

impl LatencyRecorder {
    /// An empty recorder, all its memory allocated (about 300 KiB).
    pub fn new() -> Self {
        let counts =
            hdrhistogram::Histogram::new_with_bounds(1, LONGEST.as_ps(), SIGNIFICANT_DIGITS)
                .expect("1 ps to 100 s with three digits are legal bounds");
        LatencyRecorder { counts }
    }

    /// Counts one latency.
    pub fn record(&mut self, one_way: Span) {
        self.counts
            .saturating_record(one_way.as_ps().min(LONGEST.as_ps()));
    }

    /// Returns the number of latencies.
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Whether there are no latencies.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Removes all latencies.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .add(&other.counts)
            .expect("all recorders have the same bounds");
    }

    /// Returns the merged counts, if there are any latencies.
    pub fn merged<'r>(recorders: impl IntoIterator<Item = &'r Self>) -> Option<Self> {
        let mut all = LatencyRecorder::new();
        recorders.into_iter().for_each(|other| all.merge(other));
        (!all.is_empty()).then_some(all)
    }

    /// Returns the latency, in ns, that a share `p` (0 to 1) of the messages did not exceed; `None` if empty.
    pub fn quantile_ns(&self, p: f64) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.value_at_quantile(p) as f64 / 1e3)
    }

    /// Returns the mean in ns; `None` if empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.mean() / 1e3)
    }

    /// Returns the standard deviation in ns; `None` if empty.
    pub fn deviation_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.stdev() / 1e3)
    }

    /// Returns the percentiles for a record. `mean` and `ci95` stay empty: they are computed from elapsed time.
    pub fn percentiles(&self) -> Latency {
        Latency {
            mean: None,
            ci95: None,
            sd: self.deviation_ns(),
            p50: self.quantile_ns(0.5),
            p99: self.quantile_ns(0.99),
            p999: self.quantile_ns(0.999),
            max: self.quantile_ns(1.0),
        }
    }

    /// Returns the counts as a record stores them.
    pub fn to_histogram(&self, sampled_every: u64) -> Histogram {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.counts, &mut bytes)
            .expect("writing to memory does not fail, and the counts fit the encoding");
        Histogram {
            unit: UNIT.to_owned(),
            samples: self.len(),
            sampled_every,
            hdr_v2: BASE64.encode(bytes),
        }
    }

    /// Reads the counts from a record.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, HistogramError> {
        if histogram.unit != UNIT {
            return Err(HistogramError::Unit(histogram.unit.clone()));
        }
        let damaged = |e: &dyn std::fmt::Display| HistogramError::Damaged(e.to_string());
        let bytes = BASE64.decode(&histogram.hdr_v2).map_err(|e| damaged(&e))?;
        let counts: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| damaged(&e))?;
        let mut recorder = LatencyRecorder::new();
        recorder.counts.add(&counts).map_err(|e| damaged(&e))?;
        match recorder.len() {
            found if found == histogram.samples => Ok(recorder),
            found => Err(HistogramError::Count {
                declared: histogram.samples,
                found,
            }),
        }
    }
}

impl From<LatencyRecorder> for Histogram {
    fn from(recorder: LatencyRecorder) -> Self {
        recorder.to_histogram(1)
    }
}

impl TryFrom<Histogram> for LatencyRecorder {
    type Error = HistogramError;

    fn try_from(histogram: Histogram) -> Result<Self, HistogramError> {
        LatencyRecorder::from_histogram(&histogram)
    }
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        LatencyRecorder::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_recorder_has_no_statistics() {
        assert_eq!(LatencyRecorder::new().percentiles(), Latency::default());
    }

    #[test]
    fn fifty_nanoseconds_are_resolved() {
        let p50 = recorder(&[50_100, 50_200]).quantile_ns(0.5).unwrap();
        assert!((p50 - 50.1).abs() < 0.05, "{p50}");
    }

    #[test]
    fn beyond_the_range_it_saturates() {
        let mut recorder = LatencyRecorder::new();
        recorder.record(Span::MAX);
        assert_eq!(recorder.len(), 1);
        let max = recorder.quantile_ns(1.0).unwrap();
        assert!((max / 1e11 - 1.0).abs() < 1e-3, "{max}");
        let read = LatencyRecorder::from_histogram(&recorder.to_histogram(1));
        assert_eq!(read, Ok(recorder));
    }

    #[test]
    fn a_damaged_histogram_is_refused() {
        let good = recorder(&[1000]).to_histogram(1);
        let read = |h: Histogram| LatencyRecorder::from_histogram(&h);
        let mut other = good.clone();
        other.unit = "ns".into();
        assert_eq!(read(other), Err(HistogramError::Unit("ns".into())));
        let (declared, found) = (7, 1);
        let mut other = good.clone();
        other.samples = declared;
        assert_eq!(read(other), Err(HistogramError::Count { declared, found }));
        for bad in ["", "!", "AAAA"] {
            let mut other = good.clone();
            other.hdr_v2 = bad.into();
            assert!(matches!(read(other), Err(HistogramError::Damaged(_))));
        }
    }

    fn recorder(values: &[u64]) -> LatencyRecorder {
        let mut recorder = LatencyRecorder::new();
        for ps in values {
            recorder.record(Span::from_ps(*ps));
        }
        recorder
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn histograms_are_read_as_written(values in prop::collection::vec(0..200_000_000_000_000_u64, 0..200)) {
            let written = recorder(&values);
            let read = LatencyRecorder::from_histogram(&written.to_histogram(3)).unwrap();
            prop_assert_eq!(written, read);
        }

        #[test]
        fn merged_is_as_if_recorded_at_once(
            a in prop::collection::vec(0..1_000_000_u64, 0..50),
            b in prop::collection::vec(0..1_000_000_u64, 0..50),
        ) {
            let mut merged = recorder(&a);
            merged.merge(&recorder(&b));
            prop_assert_eq!(merged, recorder(&[a, b].concat()));
        }

        #[test]
        fn percentiles_keep_three_digits(mut values in prop::collection::vec(1_000..10_000_000_000_u64, 1..300), p in 0.01..=1.0_f64) {
            let recorded = recorder(&values).quantile_ns(p).unwrap();
            values.sort_unstable();
            let rank = ((p * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let naive = values[rank - 1] as f64 / 1e3;
            prop_assert!((recorded / naive - 1.0).abs() <= 1.1e-3, "{recorded} {naive}");
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let histogram = Histogram { unit: UNIT.into(), samples: 1, sampled_every: 1, hdr_v2: BASE64.encode(bytes) };
            let _ = LatencyRecorder::from_histogram(&histogram);
        }
    }
}
