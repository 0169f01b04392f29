//! The record of a run: parameters, metrics, device and outcome.
//!
//! One [`Record`] is one *cell* of a study: one program with one set of parameters on one device.
//! Records are written as JSON Lines, one object a line, the moment the cell ends; the names and
//! nesting of the fields are a contract with scripts. A figure that was not measured is `null`,
//! never zero.

mod activity;
mod compare;
mod file;
mod latency;
mod merge;
mod metrics;
mod names;
mod published;
mod record;
pub mod stats;
mod table;
#[cfg(test)]
mod testing;

pub use activity::{
    Activity, CompletionQueueActivity, MemoryActivity, OperationActivity, Posts, QueuePairActivity,
    RUN, Received,
};
pub use adverb_units::CpuTime;
pub use adverb_verbs::{Impairment, LinkRate, Probability};
pub use compare::{Change, CompareError, Comparison, Verdict, compare};
pub use file::{
    CutLine, RESULTS_CSV, RESULTS_JSONL, ReadError, ReadOutcome, WriteError, Writer, read_records,
};
pub use latency::{HistogramError, LatencyRecorder};
pub use merge::{failed_passes, merged};
pub use metrics::{RepetitionSample, Usage};
pub use names::Word;
pub use published::{PublishedPoint, PublishedQuantity};
pub use record::{
    Completion, Counters, Cpu, CpuShare, Delivery, DeviceKind, DeviceRef, Histogram, Latency,
    Metrics, Opcode, Outcome, PairRecord, Params, Posting, Program, Provenance, Record, Repetition,
    RoleRun, SCHEMA, Signaling, Site, Traffic, Transport, Values, swept, word,
};
pub use table::write_csv;
