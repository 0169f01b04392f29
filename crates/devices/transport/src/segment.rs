//! Segments messages into packets of the path MTU (IBTA vol. 1, 9.7.2, 9.7.5).

use adverb_verbs::PathMtu;
use adverb_wire::opcode::{Begins, Ends};
use adverb_wire::{Extension, Ieth, ImmDt, Opcode, Position, Reth};

use crate::request::Work;

/// Maximum length of a message in bytes.
pub const MAX_MESSAGE: u64 = adverb_verbs::MAX_MESSAGE.get();

/// Returns the payload of full packets in bytes.
pub(crate) const fn mtu_bytes(mtu: PathMtu) -> u64 {
    mtu.bytes().get()
}

/// Returns the number of packets of a message. An empty message has one.
#[inline]
pub(crate) const fn packets(length: u64, mtu: PathMtu) -> u64 {
    let count = length.div_ceil(mtu_bytes(mtu));
    if count == 0 { 1 } else { count }
}

/// One packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) position: Position,
    /// Offset of its payload in the message.
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl Segment {
    /// Returns packet `index` of a message of `length` bytes.
    #[inline]
    pub(crate) fn of(length: u64, index: u64, mtu: PathMtu) -> Self {
        let offset = index * mtu_bytes(mtu);
        let left = length - offset;
        let begin = if index == 0 {
            Begins::Message
        } else {
            Begins::Packet
        };
        let end = if left <= mtu_bytes(mtu) {
            Ends::Message
        } else {
            Ends::Packet
        };
        Segment {
            position: Position::of(begin, end),
            offset,
            bytes: left.min(mtu_bytes(mtu)) as usize,
        }
    }
}

/// Whether a packet at a position may have `bytes` of payload: all packets except the last are full, and the last of
/// several is not empty (IBTA vol. 1, 9.7.4.1.6).
#[inline]
pub(crate) const fn length_fits(position: Position, bytes: usize, mtu: PathMtu) -> bool {
    let full = mtu_bytes(mtu) as usize;
    match position {
        Position::First | Position::Middle => bytes == full,
        Position::Last => bytes != 0 && bytes <= full,
        Position::Only => bytes <= full,
    }
}

/// Returns opcode and headers of a packet of a SEND or WRITE over RC.
#[inline]
pub(crate) fn rc_request(work: &Work, length: u64, position: Position) -> (Opcode, Extension) {
    use Opcode::{
        RcSendFirst, RcSendLast, RcSendLastImm, RcSendLastInvalidate, RcSendMiddle, RcSendOnly,
        RcSendOnlyImm, RcSendOnlyInvalidate, RcWriteFirst, RcWriteLast, RcWriteLastImm,
        RcWriteMiddle, RcWriteOnly, RcWriteOnlyImm,
    };
    let reth = |remote| Reth {
        remote,
        length: length as u32,
    };
    match (*work, position) {
        (Work::Write(remote) | Work::WriteWithImm(remote, _), Position::First) => {
            (RcWriteFirst, Extension::Rdma(reth(remote)))
        }
        (Work::Write(_) | Work::WriteWithImm(..), Position::Middle) => {
            (RcWriteMiddle, Extension::None)
        }
        (Work::Write(_), Position::Last) => (RcWriteLast, Extension::None),
        (Work::WriteWithImm(_, imm), Position::Last) => {
            (RcWriteLastImm, Extension::Imm(ImmDt { imm }))
        }
        (Work::Write(remote), Position::Only) => (RcWriteOnly, Extension::Rdma(reth(remote))),
        (Work::WriteWithImm(remote, imm), Position::Only) => (
            RcWriteOnlyImm,
            Extension::RdmaImm(reth(remote), ImmDt { imm }),
        ),
        (_, Position::First) => (RcSendFirst, Extension::None),
        (_, Position::Middle) => (RcSendMiddle, Extension::None),
        (Work::SendWithImm(imm), Position::Last) => (RcSendLastImm, Extension::Imm(ImmDt { imm })),
        (Work::SendWithInvalidate(rkey), Position::Last) => {
            (RcSendLastInvalidate, Extension::Invalidate(Ieth { rkey }))
        }
        (_, Position::Last) => (RcSendLast, Extension::None),
        (Work::SendWithImm(imm), Position::Only) => (RcSendOnlyImm, Extension::Imm(ImmDt { imm })),
        (Work::SendWithInvalidate(rkey), Position::Only) => {
            (RcSendOnlyInvalidate, Extension::Invalidate(Ieth { rkey }))
        }
        (_, Position::Only) => (RcSendOnly, Extension::None),
    }
}

/// Returns the UC opcode with the same verb and position as an RC opcode. `None` if UC has none.
#[inline]
pub(crate) const fn as_uc(rc: Opcode) -> Option<Opcode> {
    // IBTA table 38: the service is the upper three bits, the operation the lower five.
    if rc.code() > Opcode::RcWriteOnlyImm.code() {
        return None;
    }
    Opcode::from_code(0x20 | rc.code())
}
