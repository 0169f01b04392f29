//! Parameters that contradict each other.

use crate::params::{Field, Params, field};

/// Pairs of parameters, and the reason why the first cannot exceed the second.
const LIMITS: [(&str, &str, &str); 8] = [
    (
        "cpu.smt_gain",
        "cpu.threads_per_core",
        "no hyper-thread is faster than one alone",
    ),
    ("cpu.wake_cpu_ns", "cpu.wake_ns", "it is a part of it"),
    ("cpu.wake_user_ns", "cpu.wake_cpu_ns", "it is a part of it"),
    (
        "memory.llc_ns",
        "memory.dram_ns",
        "a load from memory misses the last-level cache first",
    ),
    (
        "memory.ddio_ways",
        "memory.llc_ways",
        "they are ways of that cache",
    ),
    (
        "pcie.completion_bytes",
        "pcie.max_payload_bytes",
        "that limits all TLPs with data (PCIe 3.0, 2.2.2)",
    ),
    (
        "nic.max_inline_recv_bytes",
        "nic.cqe_bytes",
        "the payload is in the completion",
    ),
    (
        "link.mtu_bytes",
        "link.buffer_bytes",
        "a packet is sent when there are credits for all of it",
    ),
];

/// Returns the first contradiction, in words.
pub(super) fn find(params: &Params) -> Option<String> {
    LIMITS.iter().find_map(|(lesser, greater, because)| {
        let value = |path| (parameter(path).get)(params);
        let (is, limit) = (value(lesser), value(greater));
        (is > limit).then(|| format!("{lesser} = {is} exceeds {greater} = {limit}, but {because}"))
    })
}

/// Lowers the parameters that exceed others to them.
pub(super) fn remove(params: &mut Params) {
    for (lesser, greater, _) in LIMITS {
        let lesser = parameter(lesser);
        let limit = (parameter(greater).get)(params);
        (lesser.set)(params, (lesser.get)(params).min(limit));
    }
}

fn parameter(path: &str) -> &'static Field {
    field(path).expect("limits are parameters")
}

#[cfg(test)]
mod tests {
    use crate::preset::{Preset, names};

    #[test]
    fn samples_of_a_preset_do_not_contradict_themselves() {
        for name in names() {
            let preset = Preset::built_in(name).unwrap();
            for number in 0..20 {
                let sample = preset.sample(number, 20);
                assert_eq!(super::find(&sample.params), None, "{name}");
            }
        }
    }
}
