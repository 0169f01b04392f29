//! The cells of Figures 1 to 6 and 8.

use adverb_results::{Opcode, Posting, Signaling};
use adverb_units::Bytes;
use adverb_workload::pair::{MAX_BLAST_SIZE, MAX_PING_SIZE, Request};

use Opcode::{Read, Send, Write, WriteImm, WriteRead};

use crate::plan::{COMPLETIONS, Draft, FOUR, variants};

const POSTINGS: [Posting; 2] = [Posting::Single, Posting::List];

/// Ping by size.
pub(super) fn pings(draft: &mut Draft<'_>) {
    draft.pings(&draft.sizes(MAX_PING_SIZE));
}

pub(super) fn one_buffer(draft: &mut Draft<'_>) {
    for size in draft.sizes(MAX_BLAST_SIZE) {
        for op in [Send, WriteImm, Write, Read] {
            for (completion, inline) in variants() {
                let params = Request {
                    inline,
                    completion,
                    ..Request::new(op, size)
                };
                draft.blast(params);
            }
        }
    }
}

pub(super) fn inline_by_buffers(draft: &mut Draft<'_>) {
    let mut sizes = [16, 64, 256].map(Bytes::new).to_vec();
    if !sizes.contains(&draft.max_inline) {
        sizes.push(draft.max_inline);
    }
    for buffers in draft.buffers() {
        for size in &sizes {
            for post in POSTINGS {
                let params = Request {
                    inline: true,
                    buffers,
                    post,
                    ..Request::new(Write, *size)
                };
                draft.blast(params);
            }
        }
    }
}

pub(super) fn throughput_by_buffers(draft: &mut Draft<'_>) {
    for buffers in draft.buffers() {
        for size in [1, 8, 64].map(Bytes::kib) {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    buffers,
                    ..Request::new(Write, size)
                };
                draft.blast(params);
            }
        }
    }
}

pub(super) fn all_opcodes(draft: &mut Draft<'_>) {
    for size in draft.sizes(MAX_BLAST_SIZE) {
        for op in [Send, WriteImm, Write, Read] {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    buffers: FOUR,
                    ..Request::new(op, size)
                };
                draft.blast(params);
            }
        }
    }
}

/// Left: 16 B WRITEs, every request signaled or one in n/2. Right: the WRITE of a write-read
/// ping signaled or not.
pub(super) fn signaling(draft: &mut Draft<'_>) {
    for buffers in draft.buffers() {
        for signal in [Signaling::All, Signaling::Periodic] {
            for post in POSTINGS {
                let params = Request {
                    inline: true,
                    buffers,
                    post,
                    signal,
                    ..Request::new(Write, Bytes::new(16))
                };
                draft.blast(params);
            }
        }
    }
    for size in draft.sizes(MAX_PING_SIZE) {
        for signal in [Signaling::All, Signaling::WriteUnsignaled] {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    signal,
                    ..Request::new(WriteRead, size)
                };
                draft.ping(params);
            }
        }
    }
}

/// What devices are compared by: cells of Figures 1 and 5.
pub(super) fn side_by_side(draft: &mut Draft<'_>) {
    for op in [Send, Write] {
        for size in draft.sizes(MAX_PING_SIZE) {
            draft.ping(Request::new(op, size));
        }
        for size in draft.sizes(MAX_BLAST_SIZE) {
            let params = Request {
                buffers: FOUR,
                ..Request::new(op, size)
            };
            draft.blast(params);
        }
    }
}
