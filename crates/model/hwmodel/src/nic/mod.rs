//! The NIC's state: resources, WQE cache, and queue pairs with their send queue, receive queue and retry
//! logic. The events that change it, and their costs, are in [`crate::world`].

pub(crate) mod atomics;
pub(crate) mod completion;
pub(crate) mod dc;
pub(crate) mod device;
pub(crate) mod long_path;
pub(crate) mod port;
pub(crate) mod queue_pair;
pub(crate) mod receive_queue;
pub(crate) mod retry;
pub(crate) mod send_queue;
pub(crate) mod shared_receive;
pub(crate) mod unit;
pub(crate) mod wqe;
