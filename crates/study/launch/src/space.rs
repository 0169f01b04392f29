//! Checks that roles fit into this machine's memory, and the cells of a study into this memory and the shared memory of `soft`.

use std::io;
use std::path::PathBuf;

use adverb_host::available_memory;
use adverb_units::Bytes;
use adverb_workload::pair::{CellSpec, Side};
use serde::{Deserialize, Serialize};

use crate::device::DeviceChoice;
use crate::text::Usage;

/// Memory of a side in addition to its buffers: tables of its port, queues and FIFOs, rounded up.
const PORT: Bytes = Bytes::kib(512);

/// Cells of a study that are not run, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// One sentence, with the remedy.
    pub reason: String,
    /// Ids of the cells.
    pub cells: Vec<String>,
}

/// Refuses roles of this machine that together need more memory than is available.
///
/// # Errors
/// The memory that they need, and what is available.
pub(crate) fn check_memory(roles: impl Iterator<Item = Bytes>) -> Result<(), Usage> {
    let needed = roles.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.get()));
    match available_memory() {
        Some(available) if needed > available.get() => Err(Usage(format!(
            "{} of memory exceed the {} that are available on this machine; use fewer or smaller messages, regions or items",
            Bytes::mib(needed.div_ceil(1 << 20)),
            rounded(available)
        ))),
        _ => Ok(()),
    }
}

/// Removes cells whose `sides` on this host need more memory than is available, on `soft` than is free in its file
/// system.
///
/// # Errors
/// The free space cannot be read.
pub fn take_what_does_not_fit(
    cells: &mut Vec<CellSpec>,
    (device, sides): (&DeviceChoice, &[Side]),
) -> io::Result<Option<NotRun>> {
    let in_files = match device {
        DeviceChoice::Soft(_) => Some(adverb_softnic::shared_memory()?),
        DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => None,
        DeviceChoice::Model(_) => return Ok(None),
    };
    let in_files = in_files.map(|memory| Room {
        free: memory.free,
        place: Some(memory.place),
    });
    let available = available_memory().map(|free| Room { free, place: None });
    let rooms = in_files.into_iter().chain(available);
    let least = rooms.min_by_key(|room| room.free);
    Ok(least.and_then(|room| split(cells, sides, &room)))
}

/// Memory for cells.
struct Room {
    free: Bytes,
    /// The file system in memory; `None` for this machine's memory.
    place: Option<PathBuf>,
}

impl Room {
    /// Returns the kind of memory, its place, and how to get `enough` of it.
    fn words(&self, enough: Bytes) -> [String; 3] {
        let Some(place) = &self.place else {
            let remedy = "end other programs or raise the memory limit of the container";
            return ["memory", "this machine", remedy].map(str::to_owned);
        };
        let (place, size) = (place.display(), format!("{}M", enough.get() >> 20));
        let remedy = format!(
            "enlarge it (sudo mount -o remount,size={size} {place}, in a container docker run --shm-size={size}) \
             or set ADVERB_SHM to another directory"
        );
        ["shared memory".to_owned(), place.to_string(), remedy]
    }
}

fn split(cells: &mut Vec<CellSpec>, sides: &[Side], room: &Room) -> Option<NotRun> {
    let need = |cell: &CellSpec| {
        let sides = sides
            .iter()
            .map(|side| cell.side_memory(*side).get() + PORT.get());
        Bytes::new(sides.sum())
    };
    let all = cells.len();
    let unfit: Vec<CellSpec> = cells
        .extract_if(.., |cell| need(cell) > room.free)
        .collect();
    let most = unfit.iter().map(need).max()?;
    let smallest = unfit.iter().map(|cell| cell.params.size).min()?;
    let sizes = cells.iter().map(|cell| cell.params.size);
    let fitting = match sizes.filter(|size| *size < smallest).max() {
        Some(size) => format!("messages of up to {size} fit"),
        None if cells.is_empty() => "no size fits".to_owned(),
        None => "no size fits with each number of buffers".to_owned(),
    };
    let (count, free) = (unfit.len(), rounded(room.free));
    let enough = Bytes::mib(most.get().div_ceil(1 << 20).next_power_of_two());
    let [what, place, remedy] = room.words(enough);
    let reason = format!(
        "{count} of {all} cells are not run: they need up to {enough} of {what}, {place} has {free} free; \
         {fitting}; for all cells {remedy}, then add --resume"
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
