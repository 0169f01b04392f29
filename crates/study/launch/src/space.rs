//! Checks that the cells of a study fit into the shared memory of `soft`.

use std::io;

use adverb_softnic::SharedMemory;
use adverb_units::Bytes;
use adverb_workload::pair::{CellSpec, Side};
use serde::{Deserialize, Serialize};

use crate::device::DeviceChoice;

/// Memory of a side in addition to its buffers: tables of its port, queues and FIFOs, rounded up.
const PORT: Bytes = Bytes::kib(512);

/// Cells of a study that are not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// One sentence, with the remedy.
    pub reason: String,
    /// Their ids.
    pub cells: Vec<String>,
}

/// Removes cells whose `sides` on this host need more memory than is free.
///
/// # Errors
/// The free space cannot be read.
pub fn take_what_does_not_fit(
    cells: &mut Vec<CellSpec>,
    (device, sides): (&DeviceChoice, &[Side]),
) -> io::Result<Option<NotRun>> {
    match device {
        DeviceChoice::Soft(_) => Ok(split(cells, sides, &adverb_softnic::shared_memory()?)),
        DeviceChoice::Verbs(_) | DeviceChoice::Model(_) | DeviceChoice::Tcp(_) => Ok(None),
    }
}

fn split(cells: &mut Vec<CellSpec>, sides: &[Side], memory: &SharedMemory) -> Option<NotRun> {
    let need = |cell: &CellSpec| {
        let sides = sides
            .iter()
            .map(|side| cell.memory(*side).get() + PORT.get());
        Bytes::new(sides.sum())
    };
    let all = cells.len();
    let unfit: Vec<CellSpec> = cells
        .extract_if(.., |cell| need(cell) > memory.free)
        .collect();
    let most = unfit.iter().map(need).max()?;
    let smallest = unfit.iter().map(|cell| cell.params.size).min()?;
    let sizes = cells.iter().map(|cell| cell.params.size);
    let fitting = match sizes.filter(|size| *size < smallest).max() {
        Some(size) => format!("messages of up to {size} fit"),
        None if cells.is_empty() => "no size fits".to_owned(),
        None => "no size fits with each number of buffers".to_owned(),
    };
    let (count, free, place) = (unfit.len(), rounded(memory.free), memory.place.display());
    let enough = Bytes::mib(most.get().div_ceil(1 << 20).next_power_of_two());
    let size = format!("{}M", enough.get() >> 20);
    let reason = format!(
        "{count} of {all} cells are not run: they need up to {enough} of shared memory, {place} has {free} free; \
         {fitting}; for all cells enlarge it (sudo mount -o remount,size={size} {place}, in a container docker \
         run --shm-size={size}) or set ADVERB_SHM to another directory, then add --resume"
    );
    let cells = unfit.into_iter().map(|cell| cell.id).collect();
    Some(NotRun { reason, cells })
}

/// Rounds to whole MiB, below 1 MiB to whole KiB.
fn rounded(bytes: Bytes) -> Bytes {
    match bytes.get() >> 20 {
        0 => Bytes::kib(bytes.get() >> 10),
        whole => Bytes::mib(whole),
    }
}
