//! What the transport costs without a network.

use crate::link::{self, Verb};
use crate::row::{Bound, Limit, Measure, Unit};

const MESSAGES: Limit = Limit::ItselfAtLeast(3e6);
const BYTES: Limit = Limit::ItselfAtLeast(3e9);

pub(crate) const ROWS: &[Bound] = &[
    Bound {
        name: "transport, write, 64 B",
        what: "messages per second of CPU time, WRITEs of 64 B over RC from the post to the completion, with \
               the ICRC made and checked, compared with the same without it",
        unit: Unit::PerSecond,
        limit: MESSAGES,
        measure: Measure::Rounds(|s| link::messages(s.cores[0], Verb::Write).map(Some)),
        needs: "",
    },
    Bound {
        name: "transport, send, 64 B",
        what: "the same of SENDs, from the post to the completions of both sides",
        unit: Unit::PerSecond,
        limit: MESSAGES,
        measure: Measure::Rounds(|s| link::messages(s.cores[0], Verb::Send).map(Some)),
        needs: "",
    },
    Bound {
        name: "transport, read, 64 B",
        what: "the same of READs",
        unit: Unit::PerSecond,
        limit: MESSAGES,
        measure: Measure::Rounds(|s| link::messages(s.cores[0], Verb::Read).map(Some)),
        needs: "",
    },
    Bound {
        name: "transport, write, 64 KiB",
        what: "bytes per second of CPU time, WRITEs of 64 KiB, path MTU 4096 B",
        unit: Unit::BytesPerSecond,
        limit: BYTES,
        measure: Measure::Rounds(|s| link::bytes(s.cores[0], Verb::Write).map(Some)),
        needs: "",
    },
    Bound {
        name: "transport, read, 64 KiB",
        what: "the same of READs",
        unit: Unit::BytesPerSecond,
        limit: BYTES,
        measure: Measure::Rounds(|s| link::bytes(s.cores[0], Verb::Read).map(Some)),
        needs: "",
    },
];
