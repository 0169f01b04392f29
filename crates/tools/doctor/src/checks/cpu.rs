//! Clock frequency and NUMA placement.

use std::collections::BTreeMap;

use adverb_sysfs::RdmaDevice;

use super::on_machine;
use crate::finding::{Check, Finding, Subject, System, Verdict};
use crate::machine::{CpuSet, Machine};

pub(super) fn governor(machine: &Machine) -> Finding {
    let finding = |verdict, found: String| on_machine(Check::CpuGovernor, verdict, found);
    let usable = &machine.process.affinity;
    let mut cpus: BTreeMap<&str, CpuSet> = BTreeMap::new();
    for (cpu, governor) in &machine.processors.governors {
        if usable.0.contains(cpu) {
            cpus.entry(governor).or_default().0.insert(*cpu);
        }
    }
    if cpus.is_empty() {
        return finding(
            Verdict::Ok,
            "none: the kernel does not control the frequency".to_owned(),
        );
    }
    let words: Vec<String> = cpus
        .iter()
        .map(|(governor, cpus)| format!("{governor} on CPUs {cpus}"))
        .collect();
    if cpus.keys().all(|governor| *governor == "performance") {
        return finding(Verdict::Ok, words.join(", "));
    }
    let sudo = machine.process.sudo();
    finding(Verdict::Warning, words.join(", ")).run(format!(
        "echo performance | {sudo}tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    ))
}

/// Adverb runs its two sides on the first two usable cores.
const SIDES: usize = 2;

pub(super) fn numa(machine: &Machine, device: &RdmaDevice) -> Option<Finding> {
    let node = device.numa_node?;
    let finding = |verdict, found| {
        let subject = Subject::Device {
            device: device.name.clone(),
        };
        Finding::new(Check::NumaNode, subject, verdict, found)
    };
    let local = machine.processors.nodes.get(&node)?;
    let usable = &machine.process.affinity;
    let used = usable.lowest(SIDES);
    if local.is_empty() {
        return Some(finding(
            Verdict::Note,
            format!("node {node}, which has no CPUs"),
        ));
    }
    if used.is_subset(local) {
        return Some(finding(
            Verdict::Ok,
            format!("node {node}, as CPUs {used} of this process"),
        ));
    }
    let found = format!("node {node} (CPUs {local}); this process would use CPUs {used}");
    let near = usable.intersection(local);
    let near = if near.is_empty() { local.clone() } else { near };
    let sudo = machine.process.sudo();
    let finding = finding(Verdict::Warning, found)
        .run(format!(
            "taskset -c {near} adverb study --device verbs:{}",
            device.name
        ))
        .run(format!(
            "numactl --cpunodebind={node} --membind={node} adverb study --device verbs:{}",
            device.name
        ));
    Some(
        finding
            .run_on(System::Debian, format!("{sudo}apt install numactl"))
            .run_on(System::Rhel, format!("{sudo}dnf install numactl")),
    )
}
