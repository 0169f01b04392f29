//! The cells of the figures.
//!
//! The `paper` profile has the sizes and numbers of buffers of the paper. The paper does not say whether the WRITEs of
//! Figures 6a and 6b are inline: both are measured.

use adverb_results::{Completion, Opcode, Posting, Program, Signaling};
use adverb_units::Bytes;
use adverb_verbs::PathOptions;
use adverb_workload::pair::{CellSpec, MAX_BLAST_SIZE, MAX_BUFFERS, MAX_PING_SIZE, Request};

use Opcode::{Read, Send, Write, WriteImm, WriteRead};

use crate::plan::{COMPLETIONS, Draft, FOUR, Steps, variants};

const OPERATIONS: [Opcode; 4] = [Send, WriteImm, Write, Read];
const POSTINGS: [Posting; 2] = [Posting::Single, Posting::List];
const ALL_BUFFERS: (u64, u64) = (1, MAX_BUFFERS as u64);
/// Largest inline message of the paper's device.
const LARGEST_INLINE: Bytes = Bytes::new(912);
/// Lengths of "large" WRITEs, in KiB.
const LARGE: [u64; 4] = [1, 8, 32, 64];
/// A number of buffers of Figure 4 that is not a power of two.
const FIVE: u32 = 5;

const SMALL: Steps = Steps {
    quick: &[1, 4, 16, 64, 256, 1024],
    paper: (1, 1024),
    full: (1, MAX_PING_SIZE.get()),
};

/// Figure 1: ping by size.
pub(super) fn pings(draft: &mut Draft<'_>) {
    for size in draft.sizes(SMALL) {
        for op in [Send, WriteImm] {
            for (completion, inline) in variants() {
                let params = Request {
                    inline,
                    completion,
                    ..Request::new(op, size)
                };
                draft.ping(params);
            }
        }
    }
}

/// Figure 2: one message in flight by size; inline where a WRITE carries the payload.
pub(super) fn one_buffer(draft: &mut Draft<'_>) {
    let steps = Steps {
        full: (1, MAX_BLAST_SIZE.get()),
        ..SMALL
    };
    for size in draft.sizes(steps) {
        for op in OPERATIONS {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    ..Request::new(op, size)
                };
                draft.blast(params);
            }
        }
        for op in [Write, WriteImm] {
            let params = Request {
                inline: true,
                ..Request::new(op, size)
            };
            draft.blast(params);
        }
    }
}

/// Whether Figures 2a and 2b show a cell of the figure.
pub(super) fn is_not_inline(cell: &CellSpec) -> bool {
    !cell.params.inline
}

/// Whether Figure 2c shows it.
pub(super) fn is_polled_write(cell: &CellSpec) -> bool {
    let p = &cell.params;
    p.completion == Completion::Poll && matches!(p.op, Write | WriteImm)
}

/// Figure 3: inline WRITEs by number of buffers, singly and in lists.
pub(super) fn inline_by_buffers(draft: &mut Draft<'_>) {
    let largest = LARGEST_INLINE.min(draft.max_inline);
    let mut sizes = [16, 64, 256].map(Bytes::new).to_vec();
    if largest > Bytes::new(0) && !sizes.contains(&largest) {
        sizes.push(largest);
    }
    let steps = Steps {
        quick: &[1, 4, 16, 64],
        paper: (1, 64),
        full: ALL_BUFFERS,
    };
    for buffers in draft.buffers(steps) {
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

/// Whether requests are posted one by one.
pub(super) fn is_single(cell: &CellSpec) -> bool {
    cell.params.post == Posting::Single
}

/// Whether they are posted in lists.
pub(super) fn is_in_lists(cell: &CellSpec) -> bool {
    !is_single(cell)
}

/// The numbers of buffers of large WRITEs.
fn buffers_of_large(draft: &Draft<'_>) -> Vec<u32> {
    let mut buffers = draft.buffers(Steps {
        quick: &[1, 2, 4, 16, 128],
        paper: (1, 128),
        full: ALL_BUFFERS,
    });
    buffers.push(FIVE);
    buffers.sort_unstable();
    buffers
}

/// Figure 4: WRITEs in lists by number of buffers.
pub(super) fn throughput_by_buffers(draft: &mut Draft<'_>) {
    for buffers in buffers_of_large(draft) {
        for size in LARGE.map(Bytes::kib) {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    buffers,
                    post: Posting::List,
                    ..Request::new(Write, size)
                };
                draft.blast(params);
            }
        }
    }
}

/// Figure 5: four messages in flight, in lists, by size.
pub(super) fn all_opcodes(draft: &mut Draft<'_>) {
    let steps = Steps {
        quick: &[1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20],
        paper: (1 << 10, MAX_BLAST_SIZE.get()),
        full: (1, MAX_BLAST_SIZE.get()),
    };
    for size in draft.sizes(steps) {
        for op in OPERATIONS {
            for completion in COMPLETIONS {
                let params = Request {
                    completion,
                    buffers: FOUR,
                    post: Posting::List,
                    ..Request::new(op, size)
                };
                draft.blast(params);
            }
        }
    }
}

/// Figure 6: 16 B WRITEs, every request signaled or one in n/2; and the WRITE of a write-read ping signaled or
/// not.
pub(super) fn signaling(draft: &mut Draft<'_>) {
    let buffers = Steps {
        quick: &[1, 4, 16, 256],
        paper: ALL_BUFFERS,
        full: ALL_BUFFERS,
    };
    for buffers in draft.buffers(buffers) {
        for inline in [true, false] {
            for signal in [Signaling::All, Signaling::Periodic] {
                for post in POSTINGS {
                    let params = Request {
                        inline,
                        buffers,
                        post,
                        signal,
                        ..Request::new(Write, Bytes::new(16))
                    };
                    draft.blast(params);
                }
            }
        }
    }
    let sizes = Steps {
        quick: &[1, 8, 64, 512],
        paper: (1, 512),
        full: SMALL.full,
    };
    for size in draft.sizes(sizes) {
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

/// Whether a cell is one of blast.
pub(super) fn is_blast(cell: &CellSpec) -> bool {
    cell.program == Program::Blast
}

/// Whether it is one of ping.
pub(super) fn is_ping(cell: &CellSpec) -> bool {
    cell.program == Program::Ping
}

/// Table I and Figure 7: 64 KiB in lists at each speed of the link.
pub(super) fn speeds(draft: &mut Draft<'_>) {
    let steps = Steps {
        quick: &[1, 4, 16],
        paper: (1, 16),
        full: (1, 16),
    };
    for buffers in draft.buffers(steps) {
        for rate in draft.rates() {
            for op in OPERATIONS {
                let params = Request {
                    buffers,
                    post: Posting::List,
                    path: PathOptions {
                        rate: Some(rate),
                        ..PathOptions::default()
                    },
                    ..Request::new(op, Bytes::kib(64))
                };
                draft.blast(params);
            }
        }
    }
}

/// Figure 8: cells of Figures 2 and 4 that devices are compared by.
pub(super) fn side_by_side(draft: &mut Draft<'_>) {
    let small = Steps {
        full: SMALL.paper,
        ..SMALL
    };
    for size in draft.sizes(small) {
        for op in OPERATIONS {
            draft.blast(Request::new(op, size));
        }
    }
    for buffers in buffers_of_large(draft) {
        for size in LARGE.map(Bytes::kib) {
            let params = Request {
                buffers,
                post: Posting::List,
                ..Request::new(Write, size)
            };
            draft.blast(params);
        }
    }
}
