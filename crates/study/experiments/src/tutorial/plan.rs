//! The cells of the rankings and the distribution: all three show the same ones.

use adverb_results::{Opcode, Signaling};
use adverb_workload::pair::Request;

use crate::plan::{Draft, RANKED, variants};

/// Every variant of a 64 B ping.
pub(super) fn variants_of_ping(draft: &mut Draft<'_>) {
    draft.pings(&[RANKED]);
    for (completion, inline) in variants() {
        let params = Request {
            inline,
            completion,
            signal: Signaling::WriteUnsignaled,
            ..Request::new(Opcode::WriteRead, RANKED)
        };
        draft.ping(params);
    }
}
