//! Published measurements against a model's predictions.
//!
//! A row of a data file is a published value with its experiment, or two experiments if the row is a
//! comparison. [`Data`] reads rows, a [`Model`] predicts an [`Experiment`], and [`validate`] runs the rows
//! and returns a [`Report`], which can be scored, listed and written as JSON Lines. This crate does not
//! simulate, open files or print.
//!
//! A row passes through `cells` (text), `row` (typed), `predict` (the model, once or twice), `score`, and
//! `text` or `json`. `data/schema.md` defines columns, units and programs; `data/PROVENANCE.md` lists the
//! sources of the shipped values.
//!
//! ```
//! use adverb_validate::{Budget, Data, Experiment, Limits, Refusal, validate};
//!
//! // A model that knows no hardware.
//! let model = |experiment: &Experiment, _: &Budget| -> Result<f64, Refusal> {
//!     let name = experiment.preset.clone();
//!     Err(Refusal::UnknownPreset { name, near: Vec::new() })
//! };
//! let report = validate(&model, Data::shipped(), &Limits::default(), |_| {});
//! assert_eq!(report.outcomes()[0].reason(), Some("no preset 'mt26428_qdr'"));
//! assert_eq!(report.scores().overall.error, None);
//! ```

/// The definition of columns, programs, metrics and presets, in Markdown.
pub const SCHEMA: &str = include_str!("../data/schema.md");

mod base;
mod cell;
mod cells;
mod columns;
mod data;
mod experiment;
mod fault;
mod headline;
mod intervals;
mod json;
mod model;
mod near;
mod only;
mod predict;
mod published;
mod report;
mod row;
mod run;
mod score;
mod support;
mod text;
mod words;

pub use cell::Share;
pub use columns::Column;
pub use data::{Data, DataError, Entry, IgnoredColumn, Labels};
pub use experiment::{
    CpuLoad, Experiment, HostIo, Network, Operation, Parameters, Parties, Placement, PostList,
    Posting, Queueing, Sample, Store,
};
pub use fault::{Fault, Place, RefusedRow};
pub use headline::{HEADLINES, Headline};
pub use intervals::Intervals;
pub use model::{Budget, Model, OverBudget, Refusal};
pub use near::near;
pub use only::{Only, OnlyError};
pub use published::{Interval, Published};
pub use report::{Outcome, Report};
pub use row::{Grade, Pair, Plan, Row, UnknownProgram};
pub use run::{Limits, Progress, intervals, validate};
pub use score::{Group, Score, Scores, Spread, Tally, WORST_ERROR, error};
pub use words::{
    BufferState, Completion, DcTarget, Ddio, Exactness, Interferer, LabelKind, LoadNode, LoadOp,
    LoadTarget, Metric, Node, Opcode, Program, Quantity, Refill, Side, Status, Transport, Unit,
};
