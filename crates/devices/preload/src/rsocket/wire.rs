//! What two rsockets exchange: the private data of their connection, the messages in immediate data, and the entries that
//! each writes to lists in the other's memory.
//!
//! Sources, in rdma-core: `librdmacm/docs/rsocket` describes structures, message types and flow control. It leaves out
//! the codes of control messages, the number of iomap entries in the private data, and the layout of such an entry; these
//! constants are in `librdmacm/rsocket.c`.

/// Version of the protocol.
const VERSION: u8 = 1;
/// Flags of the private data: the sender is big-endian, and its list of iomap entries follows its target list.
const BIG_ENDIAN: u8 = 1 << 0;
const HAS_IOMAPS: u8 = 1 << 1;

/// Number of entries in a target list.
pub(super) const TARGETS: usize = 2;

/// Message types: the upper 3 bits of the immediate data.
const DATA: u32 = 0;
const CREDITS: u32 = 4;
const IOMAP: u32 = 6;
const CONTROL: u32 = 7;
const TYPE_SHIFT: u32 = 29;
const VALUE: u32 = (1 << TYPE_SHIFT) - 1;

/// Control messages.
const DISCONNECT: u32 = 0;
const KEEPALIVE: u32 = 1;
const SHUTDOWN: u32 = 2;

/// A message in immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// This number of bytes was written to the current receive buffer.
    Data(u32),
    /// The peer may send until it has sent this number of data messages (modulo 2^16). An entry of its target list may
    /// have been written, too.
    Credits(u16),
    /// The entry with this index of the list of iomap entries was written.
    Iomap(u32),
    /// The sender neither sends nor receives any more.
    Disconnect,
    Keepalive,
    /// The sender sends no more data.
    Shutdown,
}

impl Message {
    pub(super) const fn to_imm(self) -> u32 {
        let (kind, value) = match self {
            Message::Data(length) => (DATA, length),
            Message::Credits(limit) => (CREDITS, limit as u32),
            Message::Iomap(index) => (IOMAP, index),
            Message::Disconnect => (CONTROL, DISCONNECT),
            Message::Keepalive => (CONTROL, KEEPALIVE),
            Message::Shutdown => (CONTROL, SHUTDOWN),
        };
        kind << TYPE_SHIFT | value & VALUE
    }

    /// Returns `None` if the message is unknown, which the receiver ignores.
    pub(super) const fn from_imm(imm: u32) -> Option<Self> {
        let value = imm & VALUE;
        Some(match imm >> TYPE_SHIFT {
            DATA => Message::Data(value),
            CREDITS => Message::Credits(value as u16),
            IOMAP => Message::Iomap(value),
            CONTROL => match value {
                DISCONNECT => Message::Disconnect,
                KEEPALIVE => Message::Keepalive,
                SHUTDOWN => Message::Shutdown,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// The order of bytes in memory that a peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Native,
    Swapped,
}

/// A range of memory that the peer may write (`rs_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) length: u32,
}

impl Target {
    pub(super) const SIZE: usize = 16;

    /// Returns it as the owner of the list reads it.
    pub(super) fn to_bytes(self, order: ByteOrder) -> [u8; Self::SIZE] {
        let (addr, key, length) = match order {
            ByteOrder::Native => (self.addr, self.key, self.length),
            ByteOrder::Swapped => (
                self.addr.swap_bytes(),
                self.key.swap_bytes(),
                self.length.swap_bytes(),
            ),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&addr.to_ne_bytes());
        bytes[8..12].copy_from_slice(&key.to_ne_bytes());
        bytes[12..].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    /// Reads an entry of an own list.
    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [addr, rest] = [&bytes[..8], &bytes[8..]];
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        Target {
            addr: u64::from_ne_bytes(addr.try_into().expect("8 bytes")),
            key: word(0),
            length: word(4),
        }
    }

    /// Skips the first `bytes` bytes; there are at least this many. The peer chose the address, so adding to it may wrap: its
    /// device then refuses what is written there.
    pub(super) const fn skip(&mut self, bytes: u32) {
        self.addr = self.addr.wrapping_add(bytes as u64);
        self.length -= bytes;
    }

    const fn network_order() -> ByteOrder {
        match cfg!(target_endian = "big") {
            true => ByteOrder::Native,
            false => ByteOrder::Swapped,
        }
    }
}

/// A buffer that the peer may write at an offset (`rs_iomap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Iomap {
    pub(super) offset: u64,
    pub(super) target: Target,
}

impl Iomap {
    pub(super) const SIZE: usize = 8 + Target::SIZE;

    pub(super) fn to_bytes(self, order: ByteOrder) -> [u8; Self::SIZE] {
        let offset = match order {
            ByteOrder::Native => self.offset,
            ByteOrder::Swapped => self.offset.swap_bytes(),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&offset.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.target.to_bytes(order));
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let (offset, target) = bytes.split_at(8);
        Iomap {
            offset: u64::from_ne_bytes(offset.try_into().expect("8 bytes")),
            target: Target::from_bytes(target.try_into().expect("16 bytes")),
        }
    }

    /// Returns the buffer from an offset on; `None` if that is not in it. The peer chose the numbers, so the offset of the
    /// buffer's end may wrap.
    pub(super) fn from(self, offset: u64) -> Option<Target> {
        let skipped = u32::try_from(offset.wrapping_sub(self.offset)).ok()?;
        let mut target = self.target;
        (skipped < target.length).then(|| {
            target.skip(skipped);
            target
        })
    }
}

/// The private data of a connection request and its reply (`rs_conn_data`), in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnData {
    /// The order of bytes that the sender expects in its lists.
    pub(super) order: ByteOrder,
    /// Number of data messages that the sender can receive.
    pub(super) credits: u16,
    /// The target list; its length counts entries.
    pub(super) targets: Target,
    /// Number of entries of the list of iomap entries, which follows the target list.
    pub(super) iomaps: u32,
    /// The first receive buffer.
    pub(super) buffer: Target,
}

impl ConnData {
    pub(super) const SIZE: usize = 8 + 2 * Target::SIZE;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[1] = HAS_IOMAPS
            | if cfg!(target_endian = "big") {
                BIG_ENDIAN
            } else {
                0
            };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scale(self.iomaps);
        let order = Target::network_order();
        bytes[8..24].copy_from_slice(&self.targets.to_bytes(order));
        bytes[24..].copy_from_slice(&self.buffer.to_bytes(order));
        bytes
    }

    /// Reads the private data of a peer; `None` if it does not speak this version of the protocol, or if its target list has
    /// no entries: the next entry to write is calculated modulo their number. The other fields need no check: the peer's
    /// device checks addresses and keys, and the numbers only limit what is sent.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::SIZE)?;
        if bytes[0] != VERSION {
            return None;
        }
        let target = |at: usize| {
            let raw = bytes[at..at + Target::SIZE].try_into().expect("16 bytes");
            let target = Target::from_bytes(raw);
            Target::from_bytes(target.to_bytes(Target::network_order()))
        };
        let targets = target(8);
        if targets.length == 0 {
            return None;
        }
        let is_big = bytes[1] & BIG_ENDIAN != 0;
        Some(ConnData {
            order: match is_big == cfg!(target_endian = "big") {
                true => ByteOrder::Native,
                false => ByteOrder::Swapped,
            },
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            targets,
            iomaps: match bytes[1] & HAS_IOMAPS {
                0 => 0,
                _ => unscale(bytes[7]),
            },
            buffer: target(24),
        })
    }
}

/// Numbers up to 128 are themselves in a byte; of larger ones it has the upper bits.
const fn scale(value: u32) -> u8 {
    match value {
        0..=128 => value as u8,
        _ => 0x80 | (value >> 8) as u8,
    }
}

const fn unscale(byte: u8) -> u32 {
    match byte {
        0..=128 => byte as u32,
        _ => ((byte & 0x7f) as u32) << 8,
    }
}

/// Rounds a number of iomap entries up to one that the private data can express.
pub(super) const fn rounded_iomaps(count: u16) -> u32 {
    match count {
        0..=128 => count as u32,
        129..=0x7f00 => (count as u32).next_multiple_of(256),
        _ => 0x7f00,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_documented() {
        for (message, imm) in [
            (Message::Data(65536), 0x0001_0000),
            (Message::Credits(0xffff), 0x8000_ffff),
            (Message::Iomap(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::Keepalive, 0xe000_0001),
            (Message::Shutdown, 0xe000_0002),
        ] {
            assert_eq!(message.to_imm(), imm, "{message:?}");
            assert_eq!(Message::from_imm(imm), Some(message));
        }
        assert_eq!(Message::from_imm(0x2000_0000), None);
        assert_eq!(Message::from_imm(0xe000_0003), None);
    }

    #[test]
    fn private_data_is_in_network_order() {
        let data = ConnData {
            order: ByteOrder::Native,
            credits: 0x0140,
            targets: Target {
                addr: 0x0102_0304_0506_0708,
                key: 0x1112_1314,
                length: 2,
            },
            iomaps: 256,
            buffer: Target {
                addr: 0x2122_2324_2526_2728,
                key: 0x3132_3334,
                length: 0x1_0000,
            },
        };
        let bytes = data.to_bytes();
        assert_eq!(bytes[2..8], [1, 0x40, 0, 0, 0, 0x81]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..24], [0x11, 0x12, 0x13, 0x14, 0, 0, 0, 2]);
        assert_eq!(ConnData::parse(&bytes), Some(data));
        assert_eq!(ConnData::parse(&bytes[1..]), None);
        assert_eq!(ConnData::parse(&bytes[..39]), None);
        let without_targets = [&bytes[..20], &[0; 4], &bytes[24..]].concat();
        assert_eq!(ConnData::parse(&without_targets), None);
        let of_other_order = [&[1, bytes[1] ^ BIG_ENDIAN][..], &bytes[2..]].concat();
        let parsed = ConnData::parse(&of_other_order).unwrap();
        assert_eq!(parsed.order, ByteOrder::Swapped);
    }

    #[test]
    fn entries_come_back_in_both_orders() {
        let target = Target {
            addr: 0x0102_0304_0506_0708,
            key: 9,
            length: 10,
        };
        let iomap = Iomap { offset: 11, target };
        assert_eq!(Iomap::from_bytes(iomap.to_bytes(ByteOrder::Native)), iomap);
        let swapped = Iomap::from_bytes(iomap.to_bytes(ByteOrder::Swapped));
        assert_eq!(swapped.offset, 11 << 56);
        assert_eq!(swapped.target.length, 10 << 24);
    }

    /// Calculating the place overflowed.
    #[test]
    fn a_mapped_buffer_may_end_behind_the_largest_offset() {
        let iomap = Iomap {
            offset: u64::MAX - 1,
            target: Target {
                addr: u64::MAX - 2,
                key: 9,
                length: 10,
            },
        };
        assert_eq!(iomap.from(u64::MAX - 2), None);
        assert_eq!(iomap.from(u64::MAX - 1), Some(iomap.target));
        let at_3 = Target {
            addr: 2,
            key: 9,
            length: 5,
        };
        assert_eq!(iomap.from(3), Some(at_3));
        assert_eq!(iomap.from(8), None);
        assert_eq!(Iomap::default().from(0), None);
    }

    #[test]
    fn numbers_of_iomaps_are_rounded_to_what_a_byte_has() {
        for (count, rounded) in [(0, 0), (128, 128), (129, 256), (300, 512), (0xffff, 0x7f00)] {
            assert_eq!(rounded_iomaps(count), rounded);
            assert_eq!(unscale(scale(rounded)), rounded);
        }
    }
}
