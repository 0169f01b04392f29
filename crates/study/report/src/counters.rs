//! Device counters that changed in the cells: by how much, and in which cell most.

use std::collections::BTreeMap;

use adverb_results::{DeviceRef, PairRecord};

/// Parts of the names of counters that indicate problems: losses, retransmissions, receivers that were not ready,
/// congestion, broken links.
const TROUBLE: [&str; 17] = [
    "err",
    "retr",
    "rnr",
    "seq",
    "duplicate",
    "discard",
    "drop",
    "timeout",
    "downed",
    "cnp",
    "ecn",
    "overrun",
    "out_of_buffer",
    "slow_restart",
    "xmit_wait",
    "recovery",
    "violation",
];

/// A counter that changed in some cells of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved<'a> {
    pub(crate) device: &'a DeviceRef,
    /// The driver's name for it.
    pub(crate) name: &'a str,
    /// Sums over the cells.
    pub(crate) active: u64,
    pub(crate) passive: u64,
    /// Number of cells in which it changed.
    pub(crate) cells: usize,
    /// The cell in which it changed most.
    pub(crate) most: &'a str,
    most_by: u64,
}

/// Whether a counter of this name indicates problems.
pub(crate) fn is_trouble(name: &str) -> bool {
    TROUBLE.iter().any(|part| name.contains(part))
}

/// Returns the counters that changed: indicators of problems first, then by name.
pub(crate) fn moved<'a>(records: &[&'a PairRecord]) -> Vec<Moved<'a>> {
    let mut all: BTreeMap<(&DeviceRef, &str), Moved<'a>> = BTreeMap::new();
    for record in records {
        for (name, (active, passive)) in by_name(record) {
            let moved = all.entry((&record.device, name)).or_insert(Moved {
                device: &record.device,
                name,
                active: 0,
                passive: 0,
                cells: 0,
                most: &record.cell,
                most_by: 0,
            });
            moved.active = moved.active.saturating_add(active);
            moved.passive = moved.passive.saturating_add(passive);
            moved.cells += 1;
            if active.max(passive) > moved.most_by {
                (moved.most, moved.most_by) = (&record.cell, active.max(passive));
            }
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by_key(|moved| !is_trouble(moved.name));
    all
}

/// Both sides' counts of each counter of a cell.
fn by_name(record: &PairRecord) -> BTreeMap<&str, (u64, u64)> {
    let mut both: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, count) in &record.counters.active {
        both.entry(name).or_default().0 = *count;
    }
    for (name, count) in &record.counters.passive {
        both.entry(name).or_default().1 = *count;
    }
    both
}

/// Returns the number of cells in which an indicator of problems changed.
pub(crate) fn troubled_cells(records: &[&PairRecord]) -> usize {
    let troubled = |r: &&&PairRecord| by_name(r).into_keys().any(is_trouble);
    records.iter().filter(troubled).count()
}
