//! The results that the published studies are quoted for, and the rows that they consist of.
//!
//! Only the ids of rows are listed here; values and predictions come from the rows.

use crate::data::Data;
use crate::report::{Outcome, Report};
use crate::text;

/// One result, and the rows that it consists of.
#[derive(Clone, Copy, Debug)]
pub struct Headline {
    /// The finding and the study.
    pub title: &'static str,
    /// The ids of rows with descriptions, in the order of presentation.
    pub rows: &'static [(&'static str, &'static str)],
}

/// The results, in the order in which they were published.
pub const HEADLINES: [Headline; 5] = [
    Headline {
        title: "Small inline messages cost 300 ns each (blast of WRITEs; MacArthur & Russell 2012)",
        rows: &[
            ("MAC-04b", "16 B, 16 buffers"),
            ("MAC-04", "64 B, 8 buffers"),
            ("MAC-06a", "64 B, 32 buffers"),
        ],
    },
    Headline {
        title: "Inline pays below 256 B (MacArthur & Russell 2012)",
        rows: &[
            ("MAC-12a", "ping, SEND of 64 B: time inline / not"),
            ("MAC-12b", "ping, SEND of 128 B: time inline / not"),
            ("MAC-12c", "ping, SEND of 512 B: time inline / not"),
            ("MAC-08", "blast inline: throughput of 64 B / of 256 B"),
        ],
    },
    Headline {
        title: "What a round waits for: 15.7, 21.1, 14.3, 8.3 µs (Russell 2013), as differences",
        rows: &[
            ("RUS-03", "SEND: events - busy polling (21.1 - 15.7)"),
            ("RUS-16", "WRITE, READ: WRITE signaled - not (14.3 - 8.3)"),
        ],
    },
    Headline {
        title: "A server's buffer on the other socket (there / on the NIC's; Nelson & Palmieri)",
        rows: &[
            ("NEL-06", "READ of 64 B: round trip"),
            ("NEL-11a", "READ of 8 B: rate"),
            ("NEL-11b", "READ of 64 B: rate"),
            ("NEL-19", "WRITE of 8 B, 16 threads fight for it: rate"),
            ("NEL-20", "READ of 8 B, 16 threads fight for it: rate"),
        ],
    },
    Headline {
        title: "A sequencer: 2.2, 7, 16.6, 27.4, 97.2, 122 M/s (Kalia et al. 2016)",
        rows: &[
            ("K16-008", "FETCH_ADD: the NIC counts"),
            ("K16-027", "RPC on one core"),
            ("K16-028", "... answers in batches"),
            ("KN-06", "... over 6 queue pairs"),
            ("KN-07", "... on 6 cores"),
            ("KN-09", "... on 10 cores, without payload"),
        ],
    },
];

impl Data {
    /// The shipped rows that [`HEADLINES`] lists.
    pub fn headlines() -> Data {
        let mut data = Data::shipped();
        data.retain(|entry| headline_of(&entry.labels.id).is_some());
        data
    }
}

/// The index of the result that a row belongs to.
fn headline_of(id: &str) -> Option<usize> {
    let names = |headline: &Headline| headline.rows.iter().any(|(row, _)| *row == id);
    HEADLINES.iter().position(names)
}

impl Report {
    /// Lists the results of [`HEADLINES`]: published values next to predictions. Rows that the report does not
    /// have are omitted.
    pub fn headlines_text(&self) -> String {
        let of = |id: &str| self.outcomes().iter().find(|o| o.entry().labels.id == id);
        let rows = |headline: &Headline| -> Vec<(&str, &Outcome)> {
            let rows = headline.rows.iter();
            rows.filter_map(|(id, what)| Some((*what, of(id)?)))
                .collect()
        };
        let parts: Vec<_> = HEADLINES.iter().map(|h| (h.title, rows(h))).collect();
        text::headlines(&parts)
    }
}
