//! The cells of the rankings and the distribution: all three show the same ones.

use adverb_results::{Opcode, Signaling};
use adverb_workload::pair::Request;

use Opcode::{Send, Write, WriteImm, WriteRead};

use crate::plan::{Draft, RANKED, variants};

/// Every variant of a 64 B ping.
pub(super) fn variants_of_ping(draft: &mut Draft<'_>) {
    let ops = [Send, WriteImm, Write, WriteRead].map(|op| (op, Signaling::All));
    for (op, signal) in [&ops[..], &[(WriteRead, Signaling::WriteUnsignaled)]].concat() {
        for (completion, inline) in variants() {
            let params = Request {
                inline,
                completion,
                signal,
                ..Request::new(op, RANKED)
            };
            draft.ping(params);
        }
    }
}
