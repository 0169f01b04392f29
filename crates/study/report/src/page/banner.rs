//! What was measured and where, what that does not show, and how to measure it again.

use std::collections::BTreeSet;

use adverb_results::{
    DeviceKind, DeviceRef, Outcome, PairRecord, Params, Provenance, RESULTS_CSV, RESULTS_JSONL,
    Record, Site,
};
use maud::{Markup, html};

use crate::{Chapter, Meta, Plots, Report, format};

/// The devices, machines and conditions of the measurement, as a list of terms.
pub(super) fn measured_on(report: &Report<'_>) -> Markup {
    let meta = report.meta;
    if report.is_of_sweeps() {
        return sweeps_on(report.others, meta);
    }
    let all = |of: fn(&PairRecord) -> String| distinct(&report.records, of);
    let devices: BTreeSet<&DeviceRef> = report.records.iter().map(|r| &r.device).collect();
    let of_each = |details: fn(&PairRecord) -> String| {
        distinct(&report.records, |r| match details(r) {
            details if details.is_empty() || devices.len() == 1 => details,
            details => format!("{}: {details}", r.device),
        })
    };
    let started = |first: bool| {
        let times = report.records.iter().map(|r| r.provenance.started.as_str());
        if first { times.min() } else { times.max() }
    };
    html! {
        dl class="facts" {
            (fact("Device", &all(|r| format!("{} ({})", r.device, kind(&r.device)))))
            (fact(machine_of(report.records.iter().map(|r| &r.device)), &all(|r| machine(&r.provenance.active))))
            (fact("Host", &all(|r| host(&r.provenance.active))))
            (fact("Machine of the passive side", &all(|r| passive(r, machine))))
            (fact("Host of the passive side", &all(|r| passive(r, host))))
            (fact("Cores used", &all(|r| cores(&r.params))))
            (fact("Adverb", &all(|r| version(&r.provenance))))
            (fact("Device details", &of_each(|r| details(&r.provenance.active))))
            (fact("Device details of the passive side", &of_each(|r| passive(r, details))))
            (fact("Date", &date(started(true), started(false))))
            @if let Some(profile) = &meta.profile { (fact("Profile", profile)) }
            (fact("Seed", &all(|r| r.params.seed.to_string())))
            (fact("Cells", &cells(report.records.iter().map(|r| (r.device.kind, &r.outcome)))))
        }
    }
}

/// The same for records of other programs.
fn sweeps_on(records: &[Record], meta: &Meta) -> Markup {
    let all = |of: fn(&Record) -> String| {
        let values: BTreeSet<String> = records.iter().map(of).collect();
        values.into_iter().collect::<Vec<_>>().join("; ")
    };
    let times = || records.iter().map(|r| r.provenance.started.as_str());
    html! {
        dl class="facts" {
            (fact("Device", &all(|r| format!("{} ({})", r.device, kind(&r.device)))))
            (fact(machine_of(records.iter().map(|r| &r.device)), &all(|r| machine(&r.provenance.active))))
            (fact("Hosts of the roles", &hosts_of(records)))
            (fact("Adverb", &all(|r| version(&r.provenance))))
            (fact("Device details", &all(|r| details(&r.provenance.active))))
            (fact("Date", &date(times().min(), times().max())))
            @if let Some(profile) = &meta.profile { (fact("Profile", profile)) }
            (fact("Cells", &cells(records.iter().map(|r| (r.device.kind, &r.outcome)))))
        }
    }
}

/// What the machine of the records is: it measured, or it computed what models predict.
fn machine_of<'d>(mut devices: impl Iterator<Item = &'d DeviceRef>) -> &'static str {
    match devices.all(|device| device.kind == DeviceKind::Model) {
        true => "Computed on",
        false => "Machine",
    }
}

/// Names the hosts, or counts them if there are many.
fn hosts_of(records: &[Record]) -> String {
    let roles = records.iter().flat_map(|record| &record.roles);
    let hosts: BTreeSet<&str> = roles.map(|role| role.host.as_str()).collect();
    match hosts.len() {
        0..=8 => hosts.into_iter().collect::<Vec<_>>().join(", "),
        many => format!("{many} hosts"),
    }
}

/// Counts cells by what happened to them: `104 measured, 104 predicted, 0 failed`.
fn cells<'o>(of: impl Iterator<Item = (DeviceKind, &'o Outcome)>) -> String {
    let [mut measured, mut predicted, mut failed] = [0_usize; 3];
    for cell in of {
        match cell {
            (_, Outcome::Failed { .. }) => failed += 1,
            (DeviceKind::Model, Outcome::Ok) => predicted += 1,
            (_, Outcome::Ok) => measured += 1,
        }
    }
    let counts = [(measured, "measured"), (predicted, "predicted")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts = counts.chain([(failed, "failed")]);
    let counts = counts.map(|(count, what)| format!("{count} {what}"));
    counts.collect::<Vec<_>>().join(", ")
}

fn fact(name: &str, value: &str) -> Markup {
    html! {
        @if !value.is_empty() { div { dt { (name) } dd { (value) } } }
    }
}

fn distinct(records: &[&PairRecord], of: impl Fn(&PairRecord) -> String) -> String {
    let values: BTreeSet<String> = records
        .iter()
        .map(|r| of(r))
        .filter(|v| !v.is_empty())
        .collect();
    values.into_iter().collect::<Vec<_>>().join("; ")
}

fn kind(device: &DeviceRef) -> &'static str {
    match device.kind {
        DeviceKind::Soft if device.has_udp_port() => "user-space NIC with RoCE over UDP",
        DeviceKind::Soft => "user-space NIC in shared memory",
        DeviceKind::Verbs => "hardware or driver behind libibverbs",
        DeviceKind::Model => "model in virtual time",
        DeviceKind::Tcp => "kernel TCP, without RDMA",
    }
}

fn machine(site: &Site) -> String {
    format!("{}, {} cores", site.cpu, site.cores)
}

fn host(site: &Site) -> String {
    format!("{}, kernel {}", site.host, site.kernel)
}

/// Describes the passive side's host if it is another one.
fn passive(record: &PairRecord, of: fn(&Site) -> String) -> String {
    record
        .provenance
        .passive
        .as_ref()
        .map_or_else(String::new, of)
}

fn cores(params: &Params) -> String {
    let place = |core: Option<u32>, node: Option<u32>| match (core, node) {
        (None, _) => "any".to_owned(),
        (Some(core), None) => core.to_string(),
        (Some(core), Some(node)) => format!("{core} (NUMA node {node})"),
    };
    format!(
        "active side {}, passive side {}",
        place(params.active_core, params.active_numa_node),
        place(params.passive_core, params.passive_numa_node)
    )
}

fn version(provenance: &Provenance) -> String {
    match &provenance.revision {
        Some(revision) => format!("{} ({revision})", provenance.adverb),
        None => provenance.adverb.clone(),
    }
}

fn details(site: &Site) -> String {
    let details = site
        .device
        .iter()
        .map(|(name, value)| format!("{name} {value}"));
    details.collect::<Vec<_>>().join(", ")
}

fn date(first: Option<&str>, last: Option<&str>) -> String {
    match (first, last) {
        (Some(first), Some(last)) if first == last => first.to_owned(),
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => String::new(),
    }
}

/// The limits of each kind of device that was measured.
pub(super) fn what_it_does_not_tell(report: &Report<'_>) -> Markup {
    let kinds: BTreeSet<DeviceKind> = devices(report).map(|device| device.kind).collect();
    let has = |udp: bool| {
        let mut devices = devices(report);
        devices.any(|d| d.kind == DeviceKind::Soft && d.has_udp_port() == udp)
    };
    let comparing = report.specs();
    let comparing = comparing.filter(|spec| matches!(spec.plots, Plots::Devices(_)));
    let names: Vec<String> = comparing.map(|spec| spec.name.to_owned()).collect();
    let exception = match format::and(&names) {
        names if names.is_empty() => names,
        names => format!(" (except in {names}, which compares devices)"),
    };
    html! {
        @if !kinds.is_empty() {
            section class="limits" aria-label="Limits of these results" {
                h2 { "Limits of these results" }
                @if has(true) { (limits_of_udp()) }
                @for kind in &kinds {
                    @if *kind != DeviceKind::Soft || has(false) { (limits(*kind)) }
                }
                @if kinds.len() > 1 {
                    p { "Devices of several kinds are in this report. Each plot shows one device, which its title names" (exception) "; do not mix their figures." }
                }
            }
        }
    }
}

/// The limits of the user-space NIC over UDP.
fn limits_of_udp() -> Markup {
    html! {
        p {
            strong { "RoCE over UDP in software is not a RoCE NIC. " }
            "The user-space NIC at an address (" code { "soft@ADDR" } ") measures the UDP stacks of both hosts, the network between "
            "them, and a transport in software that the polling core runs. Counters report packets that were lost, "
            "resent or dropped. The work that each way of programming makes for the host carries over to hardware; "
            "absolute figures do not."
        }
    }
}

fn limits(kind: DeviceKind) -> Markup {
    html! {
        @match kind {
            DeviceKind::Soft => {
                p {
                    strong { "These are not the numbers of a hardware NIC. " }
                    "The user-space NIC (" code { "soft" } ") measures this machine’s CPU and memory system: the "
                    "requester’s own core carries each operation out, in shared memory. Nothing crosses PCIe or a wire."
                }
                p {
                    strong { "What carries over: " }
                    "the trade-off between busy polling and events (latency against CPU), that WRITE and READ need no CPU on the "
                    "passive side, and the work that each way of programming makes for the host. "
                    strong { "What does not: " }
                    "every absolute figure; the effect of inline data, lists and signaling, which on hardware save doorbells, DMA "
                    "reads and completion writes over PCIe; the latency of READ against WRITE, which on hardware includes the "
                    "response; and the maximum throughput, which is limited here by a memory copy and there by the link. The "
                    "active side’s CPU time includes the copy that a NIC would do."
                }
            }
            DeviceKind::Verbs => {
                p {
                    strong { "Figures of a device behind libibverbs " }
                    "hold for this adapter, firmware, link and host. If its driver is a software one (Soft-RoCE, "
                    "siw), they measure the kernel’s network stack; if it is adverb, this machine’s CPU and memory."
                }
            }
            DeviceKind::Tcp => {
                p {
                    strong { "TCP is the baseline, not RDMA. " }
                    "Both sides use the sockets of their kernel: system calls, copies and interrupts are in each figure. "
                    "On one host the messages take the loopback interface and no network."
                }
            }
            DeviceKind::Model => {
                p {
                    strong { "The model predicts, it does not measure. " }
                    "Its figures follow from the parameters of its preset; " code { "adverb model validate" }
                    " compares them with published ones."
                }
            }
        }
    }
}

/// Returns the device of each record.
fn devices<'r>(report: &'r Report<'_>) -> impl Iterator<Item = &'r DeviceRef> {
    let others = report.others.iter().map(|record| &record.device);
    report.records.iter().map(|r| &r.device).chain(others)
}

/// The last section: files, command, citation.
pub(super) fn reproduce<'r>(
    report: &'r Report<'_>,
    chapters: impl Iterator<Item = &'r Chapter>,
) -> Markup {
    let joined = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>().join("; ");
    let others = report.others.iter().map(|record| &record.provenance);
    let of_pairs = report.records.iter().map(|record| &record.provenance);
    let provenances: Vec<&Provenance> = of_pairs.chain(others).collect();
    let versions = joined(provenances.iter().map(|p| version(p)).collect());
    let devices = joined(devices(report).map(ToString::to_string).collect());
    html! {
        section id="reproduce" {
            h2 { "Measure it again" }
            @if let Some(command) = &report.meta.command {
                p { "This report comes from" }
                pre { code { (command) } }
            }
            @if !report.meta.folders.is_empty() {
                p { "The records are from several studies, in " (report.meta.folders.join(", ")) "." }
            } @else { p {
                "The records are in the folder of this file: " a href=(RESULTS_JSONL) { (RESULTS_JSONL) }
                " (one JSON object a cell, with every repetition and the latency histograms) and "
                a href=(RESULTS_CSV) { (RESULTS_CSV) } " (the same as a table)."
            } }
            p {
                @for chapter in chapters.filter(|chapter| !chapter.source.is_empty()) {
                    "“" (chapter.title) "” repeats " (chapter.source) ". "
                }
                "Medians are over repetitions, with the range of the repetitions as bars; CPU is user and system time by "
                "getrusage over elapsed time, in percent of one core."
            }
            p {
                "To cite: Adverb " (versions) ", device " (devices)
                @if let Some(profile) = &report.meta.profile { ", profile " (profile) }
                @if let Some(first) = provenances.iter().map(|p| &p.started).min() { ", measured " (first) }
                ", on the machine named above."
            }
            @if let Some(generated) = &report.meta.generated { p class="about" { "Report made " (generated) "." } }
        }
    }
}

/// Bytes in a table cell: `64 B`.
pub(super) fn size(record: &PairRecord) -> String {
    format::size(record.params.size_bytes.get())
}
