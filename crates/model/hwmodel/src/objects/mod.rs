//! The verbs objects of the model: handles to the state in [`crate::world`].

/// Implements `Debug` of a handle by its name and number.
macro_rules! debug_as {
    ($handle:ident, $text:literal, $($number:tt).+) => {
        impl std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, $text, self.$($number).+)
            }
        }
    };
}

mod completion;
mod context;
mod memory;
mod queue_pair;
mod shared_receive;

pub use completion::{ModelChannel, ModelCq};
pub use context::{ModelAh, ModelContext, ModelPd};
pub use memory::ModelMr;
pub use queue_pair::ModelQp;
pub use shared_receive::ModelSrq;
