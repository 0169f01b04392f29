//! Measures: runs programs on a device or model, makes their records, and keeps them in folders.
//!
//! * [`Backend`]: the hosts of real devices, or a model, on which programs run;
//! * [`Recorder`]: runs cells of `ping` and `blast`; [`AllPairs`]: the same between every two of several hosts;
//!   [`JobRecorder`]: runs programs with several members;
//! * [`Folder`]: a folder of records, with the parameters of a study ([`Meta`]) and its report ([`render`]);
//! * [`Tally`], [`Pass`]: which runs of a study are done, and which remain.
//!
//! Nothing is printed here: the user gets [`Event`](adverb_launch::Event)s.

mod all_pairs;
mod backend;
mod folder;
mod jobs;
mod pairs;
mod passes;

pub use all_pairs::{AllPairs, Host, Hosts, PairCell};
pub use backend::Backend;
pub use folder::{
    Ending, Folder, Meta, Rendered, pair_records, read, render, render_together, replace,
};
pub use jobs::{JobCell, JobRecorder, Unfinished, path_words};
pub use pairs::{Measured, Recorder, asked_values, kept};
pub use passes::{Cut, Done, Pass, Tally};

/// Version of Adverb, with the source revision if it was known at build time.
pub const VERSION: &str = env!("ADVERB_VERSION");
/// The source revision.
const REVISION: Option<&str> = option_env!("ADVERB_REVISION");
