//! The study: which cells fill which figures.
//!
//! [`Plan`] is the cells of MacArthur & Russell's Figures 1 to 6 and the rankings of Russell's
//! tutorial. The programs of the cells are those of [`adverb_workload::pair`].

mod plan;

pub use adverb_workload::pair::*;
pub use plan::{Plan, Ports, Profile};
