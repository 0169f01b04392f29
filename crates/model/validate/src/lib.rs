//! Published measurements against a model's predictions.
//!
//! One row of a data file is one published value and one experiment (two, where the row compares).
//! [`Data`] reads rows; a [`Model`] predicts an [`Experiment`]; [`validate`] runs the rows and
//! gives a [`Report`], which can be scored, listed and written as JSON Lines. Nothing here
//! simulates, opens a file or prints.
//!
//! The way of a row: `cells` (text) → `row` (typed) → `predict` (the model, once or twice) → `score`
//! → `text`, `json`. Columns, units and programs are defined in `data/schema.md`, the sources of the
//! shipped values in `data/PROVENANCE.md`.
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

/// What the columns of a data file mean, and what the programs, metrics and presets are: Markdown.
pub const SCHEMA: &str = include_str!("../data/schema.md");

mod base;
mod cell;
mod cells;
mod columns;
mod data;
mod experiment;
mod fault;
mod headline;
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
mod text;
mod words;

pub use cell::Share;
pub use columns::Column;
pub use data::{Data, DataError, Entry, IgnoredColumn, Labels};
pub use experiment::{
    CpuLoad, Experiment, HostIo, Network, Operation, Parameters, Parties, Placement, PostList,
    Posting, Queueing, Store,
};
pub use fault::{Fault, Place, Problem, RefusedRow};
pub use headline::{HEADLINES, Headline};
pub use model::{Budget, Model, OverBudget, Refusal};
pub use near::near;
pub use only::{Only, OnlyError};
pub use published::{Interval, Published};
pub use report::{Outcome, Report, Status};
pub use row::{Grade, Pair, Plan, Row, UnknownProgram};
pub use run::{Limits, Progress, validate};
pub use score::{Group, Score, Scores, Tally, WORST_ERROR, error};
pub use words::{
    BufferState, Completion, DcTarget, Ddio, Exactness, Interferer, LoadNode, LoadOp, LoadTarget,
    Metric, Node, Opcode, Program, Quantity, Refill, Side, Transport, Unit,
};
