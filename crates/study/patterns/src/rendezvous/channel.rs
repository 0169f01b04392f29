//! One end of a channel: its buffers, records and credits.

use adverb_results::Completion;
use adverb_verbs::{Level, PathOptions, RemoteAddress, Rkey, RoleId, Station, Work};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::streams::{receive_all, send_all};

use super::Protocol;
use crate::wan::{End, Traffic, Way, accept, connect, last_byte};

/// Length of a record: address, length, key, and the last byte, which is polled.
const RECORD: u64 = 32;
/// Copies of records that are being sent; also the most requests that are outstanding before another is posted.
const STAGED: u64 = 16;
/// Slots of credits. The sender of credits is never this many ahead of their receiver.
const CREDITS: u64 = 4;
/// Offset of the copies, behind the slots of incoming records.
const STAGE: u64 = (Kind::Credit as u64 + CREDITS) * RECORD;
/// Offset of buffers.
const BUFFERS: u64 = 1024;

/// Length of an eager message on the wire, at most.
pub(super) const CHUNK: u32 = 4096;
/// The length of the whole message, before its first byte.
pub(super) const HEADER: u64 = 8;
/// Slots of eager messages in each direction.
pub(super) const SLOTS: u64 = 16;
/// Slots that a credit frees.
pub(super) const HALF: u64 = 8;

const _: () = assert!(STAGE + STAGED * RECORD <= BUFFERS, "records have room");

/// Returns the length of a region with a buffer in each direction.
pub(super) fn buffers(size: u32) -> u64 {
    BUFFERS + 2 * u64::from(size).next_multiple_of(64)
}

/// Returns the length of a region with slots in both directions.
pub(super) fn rings() -> u64 {
    BUFFERS + 2 * SLOTS * u64::from(CHUNK)
}

/// The kinds of records; the number is the slot.
#[derive(Clone, Copy)]
enum Kind {
    Start = 0,
    Reply = 1,
    Fin = 2,
    /// One of [`CREDITS`] slots, in turn.
    Credit = 3,
}

/// What a record says.
struct Said {
    address: RemoteAddress,
    length: u32,
}

/// One end of a channel between two members of a program. See the [module](super) for who owns which buffer.
pub struct Channel<'m, S: Station> {
    members: &'m Members<'m, S>,
    protocol: Protocol,
    /// Largest message.
    size: u32,
    way: Way<'m, S>,
    /// Buffers that need not be registered: of `Eager` and `Sockets`.
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Transfers in each direction.
    sent: u64,
    received: u64,
    /// Received messages whose buffers the peer may use again.
    released: u64,
    /// Records sent so far.
    records: u64,
    /// Eager messages in each direction.
    chunks_sent: u64,
    chunks_received: u64,
}

impl<'m, S: Station> Channel<'m, S> {
    /// Connects with `peer`, which does the same, for messages of up to `size` bytes.
    ///
    /// # Errors
    /// The device refuses, or the peer has failed.
    pub fn connect(
        members: &'m Members<'m, S>,
        (me, peer): (RoleId, RoleId),
        (protocol, size): (Protocol, u32),
        path: PathOptions,
    ) -> Result<Self, Fault> {
        let way = match protocol {
            Protocol::Sockets if me < peer => Way::Stream(accept(members, &[peer])?.swap_remove(0)),
            Protocol::Sockets => Way::Stream(connect(members, peer)?),
            _ => {
                let receives = if protocol == Protocol::Eager {
                    SLOTS
                } else {
                    1
                };
                let sizes = (protocol.memory(size), 2 * STAGED as u32, receives as u32);
                let path = (path, Completion::Poll);
                Way::Verbs(Box::new(End::new(members, &[peer], sizes, path)?))
            }
        };
        let mut channel = Channel {
            members,
            protocol,
            size,
            way,
            outgoing: vec![0; size as usize],
            incoming: vec![0; size as usize],
            sent: 0,
            received: 0,
            released: 0,
            records: 0,
            chunks_sent: 0,
            chunks_received: 0,
        };
        if protocol == Protocol::Eager {
            (0..SLOTS).try_for_each(|slot| channel.end().and_then(|end| post(end, slot)))?;
        }
        Ok(channel)
    }

    fn end(&mut self) -> Result<&mut End<'m, S>, Fault> {
        match &mut self.way {
            Way::Verbs(end) => Ok(end),
            Way::Stream(_) => Err(Fault::Wrong("a request without a queue pair")),
        }
    }

    /// Returns the requests posted so far.
    pub fn traffic(&self) -> Traffic {
        self.way.traffic()
    }

    fn is_copied(&self) -> bool {
        matches!(self.protocol, Protocol::Eager | Protocol::Sockets)
    }

    fn incoming_at(&self) -> u64 {
        BUFFERS + u64::from(self.size).next_multiple_of(64)
    }

    /// Stores the beginning of the next message in the outgoing buffer, after the previous transfer has ended.
    ///
    /// # Errors
    /// `bytes` is longer than the largest message, or the previous transfer failed.
    pub fn store(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.check_length(bytes.len() as u64)?;
        if self.is_copied() {
            self.outgoing[..bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        let end = self.end()?;
        end.drain_to(0)?;
        end.store(BUFFERS, bytes)
    }

    /// Loads the beginning of the last received message.
    ///
    /// # Errors
    /// `into` is longer than the largest message.
    pub fn load(&self, into: &mut [u8]) -> Result<(), Fault> {
        self.check_length(into.len() as u64)?;
        match &self.way {
            Way::Verbs(end) if !self.is_copied() => end.load(self.incoming_at(), into),
            _ => {
                into.copy_from_slice(&self.incoming[..into.len()]);
                Ok(())
            }
        }
    }

    fn check_length(&self, length: u64) -> Result<u32, Fault> {
        match u32::try_from(length) {
            Ok(length) if length <= self.size => Ok(length),
            _ => Err(Fault::Wrong("a message longer than the largest")),
        }
    }

    /// Sends the first `length` bytes of the outgoing buffer. Returns when the program's part is done, which may be
    /// before they have arrived.
    ///
    /// # Errors
    /// The peer or the connection has failed.
    pub fn send(&mut self, length: u32) -> Result<(), Fault> {
        self.check_length(length.into())?;
        let (number, out) = (self.sent, (BUFFERS, length));
        match self.protocol {
            Protocol::Write => {
                self.put(Kind::Start, number, length)?;
                let reply = self.awaited(Kind::Reply, number)?;
                self.end()?.write(0, out, reply.address)?;
                self.put(Kind::Fin, number, length)?;
            }
            Protocol::Read => {
                self.put(Kind::Start, number, length)?;
                self.awaited(Kind::Fin, number)?;
            }
            Protocol::Prearranged => {
                if let Some(last) = number.checked_sub(1) {
                    self.awaited(Kind::Credit, last)?;
                }
                let into = self.incoming_at();
                let end = self.end()?;
                end.write(0, out, end.remote(0, into))?;
                self.put(Kind::Fin, number, length)?;
            }
            Protocol::Eager => self.send_copies(length)?,
            Protocol::Sockets => {
                if let Way::Stream(stream) = &self.way {
                    let header = u64::from(length).to_le_bytes();
                    send_all(self.members, stream, &header)?;
                    send_all(self.members, stream, &self.outgoing[..length as usize])?;
                }
            }
        }
        self.sent += 1;
        Ok(())
    }

    /// Receives the next message into the incoming buffer and returns its length. Releases the previous one.
    ///
    /// # Errors
    /// The peer or the connection has failed, or the message is too long.
    pub fn receive(&mut self) -> Result<u32, Fault> {
        self.release()?;
        let number = self.received;
        let length = match self.protocol {
            Protocol::Write => {
                self.awaited(Kind::Start, number)?;
                self.put(Kind::Reply, number, self.size)?;
                self.awaited(Kind::Fin, number)?.length
            }
            Protocol::Read => {
                let start = self.awaited(Kind::Start, number)?;
                let into = (self.incoming_at(), start.length);
                let end = self.end()?;
                end.read(0, into, start.address)?;
                end.drain_to(0)?;
                self.put(Kind::Fin, number, start.length)?;
                start.length
            }
            Protocol::Prearranged => self.awaited(Kind::Fin, number)?.length,
            Protocol::Eager => self.receive_copies()?,
            Protocol::Sockets => {
                let mut header = [0; HEADER as usize];
                let Way::Stream(stream) = &self.way else {
                    return Err(Fault::Wrong("a socket's message without a socket"));
                };
                receive_all(self.members, stream, &mut header)?;
                let length = self.check_length(u64::from_le_bytes(header))?;
                let room = &mut self.incoming[..length as usize];
                receive_all(self.members, stream, room)?;
                length
            }
        };
        self.received += 1;
        Ok(length)
    }

    /// Lets the peer use the incoming buffer again.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn release(&mut self) -> Result<(), Fault> {
        if self.released == self.received {
            return Ok(());
        }
        self.released = self.received;
        match self.protocol {
            Protocol::Prearranged => self.put(Kind::Credit, self.received - 1, 0),
            _ => Ok(()),
        }
    }

    /// Waits until everything that was sent has arrived at the peer's host.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn finish(&mut self) -> Result<(), Fault> {
        match &mut self.way {
            Way::Verbs(end) => end.drain_to(0),
            Way::Stream(_) => Ok(()),
        }
    }

    /// WRITEs a record into the peer's slot of its kind.
    fn put(&mut self, kind: Kind, number: u64, length: u32) -> Result<(), Fault> {
        let offered = match kind {
            Kind::Reply => self.incoming_at(),
            _ => BUFFERS,
        };
        let at = STAGE + self.records % STAGED * RECORD;
        self.records += 1;
        let end = self.end()?;
        end.drain_to(STAGED as u32 - 1)?;
        let address = end.address(offered);
        let mut record = [0; RECORD as usize];
        record[..8].copy_from_slice(&address.addr.to_le_bytes());
        record[8..12].copy_from_slice(&length.to_le_bytes());
        record[12..16].copy_from_slice(&address.rkey.0.to_le_bytes());
        record[RECORD as usize - 1] = last_byte(number);
        end.store(at, &record)?;
        let to = end.remote(0, slot(kind, number));
        end.write(0, (at, RECORD as u32), to)
    }

    /// Waits for the peer's record of transfer `number`.
    fn awaited(&mut self, kind: Kind, number: u64) -> Result<Said, Fault> {
        let at = slot(kind, number);
        let end = self.end()?;
        end.spin_memory(at + RECORD - 1, last_byte(number))?;
        let mut record = [0; RECORD as usize];
        end.load(at, &mut record)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let addr = u64::from_le_bytes(std::array::from_fn(|i| record[i]));
        let rkey = Rkey(word(12));
        Ok(Said {
            address: RemoteAddress { addr, rkey },
            length: self.check_length(word(8).into())?,
        })
    }

    /// Sends a message by copies, each in a slot that the peer has free.
    fn send_copies(&mut self, length: u32) -> Result<(), Fault> {
        let header = u64::from(length).to_le_bytes();
        let mut rest = 0;
        let mut first = &header[..];
        while !first.is_empty() || rest < length as usize {
            let chunk = self.chunks_sent;
            if chunk >= SLOTS && chunk.is_multiple_of(HALF) {
                self.awaited(Kind::Credit, (chunk - SLOTS) / HALF)?;
            }
            let room = CHUNK as usize - first.len();
            let part = &self.outgoing[rest..length as usize];
            let part = &part[..room.min(part.len())];
            let Way::Verbs(end) = &mut self.way else {
                return Err(Fault::Wrong("a request without a queue pair"));
            };
            end.drain_to(STAGED as u32 - 1)?;
            let at = BUFFERS + chunk % SLOTS * u64::from(CHUNK);
            end.store(at, first)?;
            end.store(at + first.len() as u64, part)?;
            copied(self.members.station(), part.len());
            end.send(0, (at, (first.len() + part.len()) as u32))?;
            rest += part.len();
            first = &[];
            self.chunks_sent += 1;
        }
        Ok(())
    }

    /// Receives a message that arrives as copies.
    fn receive_copies(&mut self) -> Result<u32, Fault> {
        let (mut length, mut filled) = (None, 0);
        while length.is_none_or(|length| filled < length as usize) {
            let arrival = self.end()?.take()?;
            let slot = self.chunks_received % SLOTS;
            if u64::from(arrival.slot) != slot {
                return Err(Fault::Wrong("a message in another slot"));
            }
            let at = incoming_slot(slot);
            let skip = match length {
                Some(_) => 0,
                None => {
                    let mut header = [0; HEADER as usize];
                    self.end()?.load(at, &mut header)?;
                    length = Some(self.check_length(u64::from_le_bytes(header))?);
                    HEADER
                }
            };
            let bytes = u64::from(arrival.bytes).saturating_sub(skip) as usize;
            if filled + bytes > length.unwrap_or_default() as usize {
                return Err(Fault::Wrong("more bytes than the message has"));
            }
            let Way::Verbs(end) = &mut self.way else {
                return Err(Fault::Wrong("a request without a queue pair"));
            };
            end.load(at + skip, &mut self.incoming[filled..filled + bytes])?;
            copied(self.members.station(), bytes);
            post(end, slot)?;
            filled += bytes;
            self.chunks_received += 1;
            if self.chunks_received.is_multiple_of(HALF) {
                self.put(Kind::Credit, self.chunks_received / HALF - 1, 0)?;
            }
        }
        Ok(length.unwrap_or_default())
    }
}

/// Returns the offset of the slot of a record.
fn slot(kind: Kind, number: u64) -> u64 {
    let turn = match kind {
        Kind::Credit => number % CREDITS,
        _ => 0,
    };
    (kind as u64 + turn) * RECORD
}

fn incoming_slot(slot: u64) -> u64 {
    BUFFERS + (SLOTS + slot) * u64::from(CHUNK)
}

/// Posts the receive of a slot.
fn post<S: Station>(end: &mut End<'_, S>, slot: u64) -> Result<(), Fault> {
    end.post_receive((0, slot as u32), (incoming_slot(slot), CHUNK))
}

/// Reports a copy, which a real CPU has already made. Its lines come from memory: the NIC has written them, or the
/// program has done so some time ago.
fn copied<S: Station>(station: &S, bytes: usize) {
    station.account(Work::Load {
        lines: bytes.div_ceil(64) as u32,
        from: Level::Memory,
    });
}
