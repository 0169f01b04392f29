//! NUMA nodes and the independent load of a server's machine, as programs with both describe them.

use adverb_units::Bytes;
use adverb_verbs::{CpuLoad, LoadWork, NodeChoice, Probability};
use serde_json::{Value, json};

/// Returns a load of threads on `node` that access arrays of `bytes` of their own, on `memory`, at random; `None` for no
/// threads.
pub fn independent(
    threads: u32,
    (bytes, writes): (Bytes, Probability),
    (node, memory): (NodeChoice, NodeChoice),
) -> Option<CpuLoad> {
    let work = LoadWork::Independent {
        bytes,
        writes,
        memory,
    };
    (threads > 0).then_some(CpuLoad {
        threads,
        node,
        work,
    })
}

/// Adds the nodes that are chosen to a program's parameters.
pub(crate) fn add_nodes<const N: usize>(params: &mut Value, nodes: [(&str, NodeChoice); N]) {
    for (name, node) in nodes {
        if node != NodeChoice::Any {
            params[name] = node.to_string().into();
        }
    }
}

/// Adds an independent load, if there is one.
pub(crate) fn add_load(params: &mut Value, load: Option<CpuLoad>) {
    let Some(load) = load else { return };
    add_nodes(params, [("numa_load", load.node)]);
    params["load_threads"] = load.threads.into();
    if let LoadWork::Independent {
        bytes,
        writes,
        memory,
    } = load.work
    {
        add_nodes(params, [("numa_load_memory", memory)]);
        params["load_bytes"] = json!(bytes);
        params["load_writes"] = json!(writes);
    }
}
