//! Locked memory and pages.

use adverb_units::Bytes;

use super::on_machine;
use crate::finding::{Check, Finding, Verdict};
use crate::machine::{HugePages, Limit, Machine};

/// Limit that is high enough for most programs.
const AMPLE: Bytes = Bytes::mib(1024);
/// Limit below which the buffers of a few queue pairs do not fit.
const SCANT: Bytes = Bytes::mib(1);

/// Huge pages to reserve if none is free: 1 GiB with 2 MiB pages.
const MORE: u64 = 512;

pub(super) fn lock(machine: &Machine) -> Finding {
    let limit = machine.process.memory_lock;
    let found = limit_words(limit);
    let finding = |verdict, found: String| on_machine(Check::MemoryLock, verdict, found);
    let Some(soft) = limit.soft else {
        return finding(Verdict::Ok, found);
    };
    if machine.process.may_lock_all {
        return finding(
            Verdict::Ok,
            format!("{found}, not in force under CAP_IPC_LOCK"),
        );
    }
    if soft >= AMPLE {
        return finding(Verdict::Ok, found);
    }
    let verdict = if soft < SCANT {
        Verdict::Broken
    } else {
        Verdict::Warning
    };
    let finding = finding(verdict, found);
    let finding = match limit.hard {
        None => finding.run("ulimit -l unlimited"),
        Some(hard) if hard >= AMPLE => finding.run(format!("ulimit -l {}", hard.get() / 1024)),
        Some(_) => finding,
    };
    let sudo = machine.process.sudo();
    finding
        .run(format!(
            "echo '* - memlock unlimited' | {sudo}tee /etc/security/limits.d/90-rdma.conf"
        ))
        .advise("log in again for the latter; a systemd service needs LimitMEMLOCK=infinity")
}

fn limit_words(limit: Limit) -> String {
    let words = |limit: Option<Bytes>| limit.map_or("unlimited".to_owned(), |b| b.to_string());
    if limit.soft == limit.hard {
        words(limit.soft)
    } else {
        format!(
            "{}, can be raised to {}",
            words(limit.soft),
            words(limit.hard)
        )
    }
}

pub(super) fn huge_pages(machine: &Machine) -> Finding {
    let pages = &machine.memory.huge_pages;
    let free: Vec<String> = pages
        .iter()
        .filter(|p| p.free > 0)
        .map(free_words)
        .collect();
    if !free.is_empty() {
        return on_machine(Check::HugePages, Verdict::Ok, free.join(", "));
    }
    let reserved: u64 = pages.iter().map(|p| p.total).sum();
    let found = match (pages.is_empty(), reserved) {
        (true, _) => return on_machine(Check::HugePages, Verdict::Note, "not in this kernel"),
        (false, 0) => "none reserved".to_owned(),
        (false, n) => format!("all {n} in use"),
    };
    let sudo = machine.process.sudo();
    on_machine(Check::HugePages, Verdict::Note, found)
        .run(format!("{sudo}sysctl vm.nr_hugepages={}", reserved + MORE))
}

fn free_words(pages: &HugePages) -> String {
    format!(
        "{} of {} free, {} each",
        pages.free, pages.total, pages.size
    )
}

pub(super) fn transparent(machine: &Machine) -> Finding {
    let finding = |verdict, found| on_machine(Check::TransparentHugePages, verdict, found);
    match machine.memory.transparent.as_deref() {
        None => finding(Verdict::Note, "not in this kernel"),
        Some("never") => {
            let sudo = machine.process.sudo();
            finding(Verdict::Note, "never").run(format!(
                "echo madvise | {sudo}tee /sys/kernel/mm/transparent_hugepage/enabled"
            ))
        }
        Some(mode) => finding(Verdict::Ok, mode),
    }
}
