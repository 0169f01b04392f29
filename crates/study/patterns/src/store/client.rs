//! The client's end of a connection with a server: sends a request, READs the value that the answer names.

use adverb_verbs::{
    Context, MemoryRegion, Operation, QueuePair, RecvRequest, RemoteAddress, SendFlags,
    SendRequest, WorkCompletion,
};
use adverb_workload::error::Fault;

use super::cache::{Condition, Refusal};
use super::message::{ANSWER, Answer, REQUEST, Request, Source, write};
use super::session::{Ends, Kind, send};

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The key's value is in the connection's [buffer](Connection::value).
    Value {
        /// Bytes of it.
        length: u32,
        /// The client's flags.
        flags: u32,
        /// Unique number of this version.
        cas: u64,
    },
    /// The key has no item.
    Missing,
    /// The value was stored, under this unique number.
    Stored(u64),
    /// It was not stored.
    Refused(Refusal),
    /// The item was deleted.
    Deleted,
    /// All clients are here.
    Met,
}

/// A connection, which has at most one request outstanding.
#[derive(Debug)]
pub struct Connection {
    number: u32,
    /// Offset of its buffers: a request, an answer, a value.
    buffers: u64,
    /// Longest value.
    max_value: u32,
    /// The server's region.
    server: RemoteAddress,
    /// What is known of the value that is being READ.
    reading: Option<Reply>,
    sent: u32,
}

impl Connection {
    /// Returns the bytes of a connection's buffers.
    pub const fn buffers(max_value: u32) -> u64 {
        (REQUEST + ANSWER + max_value.next_multiple_of(64)) as u64
    }

    /// Returns connection `number` to a server's region, with buffers at an offset of the own region.
    pub const fn new((number, buffers): (u32, u64), max_value: u32, server: RemoteAddress) -> Self {
        Connection {
            number,
            buffers,
            max_value,
            server,
            reading: None,
            sent: 0,
        }
    }

    /// Returns the connection of a completion.
    pub fn number(wc: &WorkCompletion) -> u32 {
        Kind::of(wc).1
    }

    /// Returns the offset of the buffer for values: of a PUT, before its request, or of a GET.
    pub const fn value(&self) -> u64 {
        self.buffers + (REQUEST + ANSWER) as u64
    }

    /// Returns the request that stores what is in the buffer for values.
    pub fn put<'k>(
        &self,
        mr: &impl MemoryRegion,
        (key, length): (&'k [u8], u32),
        (flags, ttl): (u32, u32),
        condition: Condition,
    ) -> Request<'k> {
        Request::Put {
            key,
            flags,
            ttl,
            condition,
            source: Source {
                from: mr.remote(self.value()),
                length,
            },
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The device refuses.
    pub fn ask<C: Context>(
        &mut self,
        request: &Request<'_>,
        ends: &Ends<'_, C>,
    ) -> Result<(), Fault> {
        let buffer = self.buffers + u64::from(REQUEST);
        let sges = [ends.mr.sge(buffer, ANSWER)?];
        let receive = RecvRequest::new(Kind::Receive.id(self.number), &sges);
        ends.qp.post_recv(&[receive])?;
        let length = write(ends.mr, self.buffers, request)?;
        let id = Kind::Send.id(self.number);
        send(ends, id, &mut self.sent, (self.buffers, length))
    }

    /// Continues after a successful completion of the connection; returns the result of its request, if it is complete.
    ///
    /// # Errors
    /// The answer is malformed, or the device refuses.
    pub fn completed<C: Context>(
        &mut self,
        wc: &WorkCompletion,
        ends: &Ends<'_, C>,
    ) -> Result<Option<Reply>, Fault> {
        match Kind::of(wc).0 {
            Kind::Send => return Ok(None),
            Kind::Read => return Ok(self.reading.take()),
            Kind::Receive => {}
        }
        let mut bytes = [0; ANSWER as usize];
        let bytes = &mut bytes[..wc.byte_len.min(ANSWER) as usize];
        ends.mr.read(self.buffers + u64::from(REQUEST), bytes)?;
        let answer = postcard::from_bytes(bytes);
        Ok(Some(
            match answer.map_err(|_| Fault::Wrong("a malformed answer"))? {
                Answer::Missing => Reply::Missing,
                Answer::Stored(cas) => Reply::Stored(cas),
                Answer::Refused(refusal) => Reply::Refused(refusal),
                Answer::Deleted => Reply::Deleted,
                Answer::Met => Reply::Met,
                Answer::Found { place, flags, cas } => {
                    let length = place.length;
                    if length > self.max_value {
                        return Err(Fault::Wrong("a value that exceeds the buffer"));
                    }
                    let found = Reply::Value { length, flags, cas };
                    if length == 0 {
                        return Ok(Some(found));
                    }
                    self.reading = Some(found);
                    let sges = [ends.mr.sge(self.value(), length)?];
                    let read = Operation::RdmaRead(self.server.at(place.offset));
                    let read = SendRequest::new(Kind::Read.id(self.number), read, &sges);
                    ends.qp.post_send(&[read.with_flags(SendFlags::SIGNALED)])?;
                    return Ok(None);
                }
            },
        ))
    }
}
