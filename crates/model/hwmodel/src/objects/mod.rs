//! The verbs objects of the model: handles to the state in [`crate::world`].

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
