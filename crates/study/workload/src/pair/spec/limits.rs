//! Ranges of the programs' parameters.

use adverb_results::{Opcode, Program};
use adverb_units::Bytes;

/// Longest message of `ping`.
pub const MAX_PING_SIZE: Bytes = Bytes::mib(64);
/// Longest message of `blast`.
pub const MAX_BLAST_SIZE: Bytes = Bytes::mib(256);
/// Most buffers of `blast`.
pub const MAX_BUFFERS: u32 = 256;
/// Most queue pairs of `blast`.
pub const MAX_QPS: u32 = 1024;
/// Size of the operand of atomic operations.
pub const ATOMIC_SIZE: Bytes = Bytes::new(8);
/// Most repetitions.
pub const MAX_REPETITIONS: u32 = 1000;
/// Send queue size of a WRITE ping, which reaps its requests lazily.
pub(crate) const POLLED_SEND_DEPTH: u32 = 64;
/// One WRITE of a WRITE ping in this many is signaled, so that its send queue never fills.
pub(crate) const SIGNALED_WRITES: u32 = POLLED_SEND_DEPTH / 2;

/// Returns the operations that a program has.
pub const fn operations(program: Program) -> &'static [Opcode] {
    use Opcode::{Cas, FetchAdd, Read, Send, Write, WriteImm, WriteRead};
    match program {
        Program::Ping => &[Send, WriteImm, Write, Read, WriteRead, FetchAdd, Cas],
        Program::Blast => &[Send, WriteImm, Write, Read, FetchAdd, Cas],
    }
}
