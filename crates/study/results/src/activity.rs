//! What an unmodified program did with the user-space device: the metrics of a record of `adverb run`.
//!
//! The record's program is `run`; its parameters are the program's name, arguments and process id. The counters
//! are of the UDP ports. Units: bytes, seconds; sizes are counted by the power of two that is at least the size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Record, Values};

/// The record's program.
pub const RUN: &str = "run";

/// What a process did until the record was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Why the record was written: `exit`, `signal N`, or `interval` while the process runs.
    pub written_at: String,
    /// Time since the process opened its first device.
    pub elapsed_s: f64,
    /// Registered memory.
    pub memory: MemoryActivity,
    /// The queue pairs, in the order of their creation.
    pub queue_pairs: Vec<QueuePairActivity>,
    /// The completion queues, likewise; queue pairs name them by index.
    pub completion_queues: Vec<CompletionQueueActivity>,
    /// Receives posted to shared receive queues.
    pub shared_receives: Posts,
}

impl Activity {
    /// Returns what the program of a record did; `None` for a record of another program than [`RUN`].
    pub fn of(record: &Record) -> Option<Self> {
        if record.program != RUN {
            return None;
        }
        let metrics = record.metrics.clone()?;
        serde_json::from_value(metrics.into()).ok()
    }

    /// Returns the metrics of a record.
    pub fn metrics(&self) -> Values {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(values)) => values,
            _ => Values::new(),
        }
    }
}

/// Registered memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryActivity {
    /// Calls that registered memory.
    pub registrations: u64,
    /// Memory that is registered now.
    pub registered_bytes: u64,
    /// The most that was registered at a time.
    pub max_registered_bytes: u64,
}

/// What happened on a queue pair, or on several that were created after the record was full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePairActivity {
    /// Name of the device; empty for several queue pairs.
    pub device: String,
    /// Its number; `None` for several queue pairs.
    pub qp_num: Option<u32>,
    /// `RC`, `UC` or `UD`.
    #[serde(rename = "type")]
    pub qp_type: String,
    /// Number of queue pairs.
    pub queue_pairs: u64,
    /// Connections (RC, UC) or messages (UD) by path: `shared memory`, or `UDP: ` and the reason.
    pub paths: BTreeMap<String, u64>,
    /// Index of the completion queue of send requests.
    pub send_cq: usize,
    /// Index of the completion queue of receives.
    pub recv_cq: usize,
    /// Whether it takes receives from a shared receive queue.
    pub srq: bool,
    /// Largest payload that may be inline.
    pub max_inline_data: u32,
    /// Calls that posted send requests.
    pub sends: Posts,
    /// How many of these calls were batches of `ibv_wr_*`, rather than `ibv_post_send`.
    #[serde(default)]
    pub wr_batches: u64,
    /// Send requests by operation, in the words of `ibv_wr_opcode` without prefix.
    pub operations: BTreeMap<String, OperationActivity>,
    /// Calls that posted receives.
    pub receives: Posts,
    /// The most send requests that were posted and not known to be completed.
    pub max_outstanding: u64,
    /// Completions by status, of send requests and of receives.
    pub completions: BTreeMap<String, u64>,
    /// Received messages and their bytes.
    pub received: Received,
}

/// Calls that posted requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posts {
    /// Calls: doorbells of a hardware NIC.
    pub calls: u64,
    /// Requests that were accepted.
    pub requests: u64,
    /// Calls by the number of their requests.
    pub lengths: BTreeMap<u64, u64>,
}

/// Send requests of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationActivity {
    /// Requests that were accepted.
    pub requests: u64,
    /// Their payload.
    pub bytes: u64,
    /// Requests with inline data.
    pub inline: u64,
    /// Requests that ask for a completion.
    pub signaled: u64,
    /// Requests by size.
    pub sizes: BTreeMap<u64, u64>,
}

/// Messages that completed receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Messages.
    pub messages: u64,
    /// Their bytes, with the GRH of a datagram.
    pub bytes: u64,
}

/// How a program waited for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionQueueActivity {
    /// Polls.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Completions that polls found.
    pub completions: u64,
    /// Requests for an event (`ibv_req_notify_cq`).
    pub notify_requests: u64,
    /// Events that the program took from the channel.
    pub events: u64,
}
