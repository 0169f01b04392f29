//! Memory and caches between NUMA nodes of the machine that starts the program.

use adverb_verbs::{MemoryTimes, PathOptions};
use adverb_workload::{Role, RoleLoad};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::{Outcome, RoleOutcome};

/// The program: one role, which uses no queue pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nodes {
    /// The node of the CPU.
    pub cpu_node: u32,
    /// The node of the memory.
    pub memory_node: u32,
    /// Options of a path, as every program has them. It uses none.
    pub path: PathOptions,
}

impl Nodes {
    /// Returns the program for these nodes.
    pub fn new(cpu_node: u32, memory_node: u32) -> Self {
        Nodes {
            cpu_node,
            memory_node,
            path: PathOptions::default(),
        }
    }

    /// Returns the parameters, as records have them.
    pub fn parameters(&self) -> Value {
        json!({ "cpu_node": self.cpu_node, "memory_node": self.memory_node })
    }

    pub(crate) fn roles() -> Vec<Role> {
        let role = Role {
            name: "CPU".to_owned(),
            host: 0,
            process: 0,
            load: RoleLoad::Busy,
        };
        vec![role]
    }
}

/// Returns the times as metrics.
pub(crate) fn outcome(times: &MemoryTimes) -> Outcome {
    let metrics = serde_json::to_value(times).unwrap_or_default();
    Outcome {
        metrics: metrics.as_object().cloned().unwrap_or_default(),
        roles: vec![RoleOutcome::default()],
    }
}
