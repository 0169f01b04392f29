//! Adverb's figures of the same device, from its record.

use adverb_results::{LatencyRecorder, PairRecord, Signaling};
use adverb_units::Bytes;

use super::parameters::Parameters;

/// Returns the parameters of a cell; `None` if it measured nothing, or its signaling has no fixed period.
pub(crate) fn parameters(record: &PairRecord) -> Option<Parameters> {
    let params = &record.params;
    let repetitions = &record.metrics.as_ref()?.repetitions;
    Some(Parameters {
        size: params.size_bytes.get(),
        iterations: repetitions.iter().map(|r| r.iters).sum(),
        in_flight: params.buffers.into(),
        signaled_every: match params.signal {
            Signaling::All => 1,
            Signaling::Every(n) => n.into(),
            Signaling::Periodic | Signaling::WriteUnsignaled => return None,
        },
        path_mtu: params.path_mtu_bytes.map(Bytes::get),
    })
}

/// Returns how many rounds of a latency cell were timed, and the sampling period.
pub(crate) fn samples(record: &PairRecord) -> Option<(u64, u64)> {
    let histogram = record.metrics.as_ref()?.histogram.as_ref()?;
    Some((histogram.samples, histogram.sampled_every))
}

/// A latency cell's figures in µs, of half a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) largest: f64,
    pub(crate) deviation: f64,
}

impl Latency {
    /// Returns the figures of a record; `None` if one was not measured.
    pub(crate) fn of(record: &PairRecord) -> Option<Self> {
        let metrics = record.metrics.as_ref()?;
        let histogram = metrics.histogram.as_ref()?;
        let recorder = LatencyRecorder::from_histogram(histogram).ok()?;
        let latency = metrics.one_way_ns;
        Some(Latency {
            mean: latency.mean? / 1e3,
            median: latency.p50? / 1e3,
            largest: latency.max? / 1e3,
            deviation: recorder.deviation_ns()? / 1e3,
        })
    }

    /// The same of `n` such times: of whole rounds, 2.
    pub(crate) fn times(self, n: f64) -> Self {
        Latency {
            mean: self.mean * n,
            median: self.median * n,
            largest: self.largest * n,
            deviation: self.deviation * n,
        }
    }
}
