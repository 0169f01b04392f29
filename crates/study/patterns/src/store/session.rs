//! The server's end of a connection with a client: takes a request, answers it.
//!
//! A client has one request outstanding on a connection. That makes the ownership of buffers simple:
//!
//! - The value of a GET is pinned from the answer until the next request arrives, which the client sends after its
//!   READ has completed, or until the queue pair is gone, which then executes no READ. No other value is written to
//!   those bytes before, so that the READ returns the value, whole, even if it is replaced or deleted in between.
//! - The value of a PUT is READ into a block that no key has, and becomes the key's after the READ has completed. If
//!   the client dies before, the key keeps its former value.
//! - The buffer of the answer is free when the next request arrives, because the client has received the answer.

use adverb_verbs::{
    Context, MemoryRegion, Operation, QueuePair, RecvRequest, SendFlags, SendRequest,
    WorkCompletion, WrId,
};
use adverb_workload::error::Fault;

use super::cache::{Cache, Condition, Pin, Refusal, Seconds};
use super::message::{ANSWER, Answer, REQUEST, Request, request, write};

/// Send queue size of both ends: four times the distance between completions, because they may be late.
pub const SEND_DEPTH: u32 = 32;
/// One in eight answers or requests asks for a completion.
pub(super) const SIGNALED_EVERY: u32 = 8;

/// Kind of a request of the server, in the lower bits of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Receive,
    Send,
    Read,
}

impl Kind {
    /// Returns the id of a connection's request.
    pub(super) fn id(self, connection: u32) -> WrId {
        WrId(u64::from(connection) << 2 | self as u64)
    }

    /// Returns the kind and the connection of a completion.
    pub(super) fn of(wc: &WorkCompletion) -> (Kind, u32) {
        let kind = match wc.wr_id.0 & 3 {
            0 => Kind::Receive,
            1 => Kind::Send,
            _ => Kind::Read,
        };
        (kind, (wc.wr_id.0 >> 2) as u32)
    }
}

/// What a connection works with.
pub struct Ends<'a, C: Context> {
    /// The connection's queue pair.
    pub qp: &'a C::Qp,
    /// The region with the values, and the connection's buffers.
    pub mr: &'a C::Mr,
    /// Maximum inline data of the queue pair.
    pub inline: u32,
}

/// A PUT whose value is being READ.
#[derive(Debug)]
struct Put {
    pin: Pin,
    flags: u32,
    ttl: u32,
    condition: Condition,
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    number: u32,
    /// Offset of its buffers: a request and an answer.
    buffers: u64,
    /// The value that the client reads.
    reading: Option<Pin>,
    putting: Option<Put>,
    sent: u32,
}

/// What a completion led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A request was answered.
    Answered,
    /// Nothing for others to do.
    Nothing,
    /// The client asked to meet the others. [`Session::answer`] it.
    Meet,
}

impl Session {
    /// Bytes of a connection's buffers.
    pub const BUFFERS: u64 = (REQUEST + ANSWER) as u64;

    /// Returns connection `number`, with buffers at an offset of the region, and posts its receive.
    ///
    /// # Errors
    /// The receive is refused.
    pub fn new<C: Context>(number: u32, buffers: u64, ends: &Ends<'_, C>) -> Result<Self, Fault> {
        let session = Session {
            number,
            buffers,
            reading: None,
            putting: None,
            sent: 0,
        };
        session.receive(ends)?;
        Ok(session)
    }

    /// Returns the connection of a completion.
    pub fn number(wc: &WorkCompletion) -> u32 {
        Kind::of(wc).1
    }

    fn receive<C: Context>(&self, ends: &Ends<'_, C>) -> Result<(), Fault> {
        let sges = [ends.mr.sge(self.buffers, REQUEST)?];
        let receive = RecvRequest::new(Kind::Receive.id(self.number), &sges);
        Ok(ends.qp.post_recv(&[receive])?)
    }

    /// Continues after a successful completion of the connection.
    ///
    /// # Errors
    /// The request is malformed, or a request to the device was refused: the connection is to be ended.
    pub fn completed<C: Context>(
        &mut self,
        wc: &WorkCompletion,
        ends: &Ends<'_, C>,
        (cache, now): (&mut Cache, Seconds),
    ) -> Result<Turn, Fault> {
        match Kind::of(wc).0 {
            Kind::Send => Ok(Turn::Nothing),
            Kind::Receive => self.asked(wc, ends, (cache, now)),
            Kind::Read => {
                let put = self.putting.take();
                let put = put.ok_or(Fault::Wrong("a READ of no value"))?;
                let answer = store(put, (cache, now));
                self.answer(&answer, ends).map(|()| Turn::Answered)
            }
        }
    }

    fn asked<C: Context>(
        &mut self,
        wc: &WorkCompletion,
        ends: &Ends<'_, C>,
        (cache, now): (&mut Cache, Seconds),
    ) -> Result<Turn, Fault> {
        if self.putting.is_some() {
            return Err(Fault::Wrong("a request before the answer to the last one"));
        }
        self.release(cache);
        let mut bytes = [0; REQUEST as usize];
        let bytes = &mut bytes[..wc.byte_len.min(REQUEST) as usize];
        ends.mr.read(self.buffers, bytes)?;
        self.receive(ends)?;
        let asked = request(bytes).ok_or(Fault::Wrong("a malformed request"))?;
        let answer = match asked {
            Request::Meet => return Ok(Turn::Meet),
            Request::Get { key } => match cache.get(key, now) {
                None => Answer::Missing,
                Some(id) => {
                    self.reading = Some(cache.pin(id));
                    let item = cache.item(id);
                    let (place, flags, cas) = (item.place, item.flags, item.cas);
                    Answer::Found { place, flags, cas }
                }
            },
            Request::Delete { key } => match cache.find(key, now) {
                None => Answer::Missing,
                Some(id) => {
                    cache.delete(id);
                    Answer::Deleted
                }
            },
            Request::Put {
                key,
                flags,
                ttl,
                condition,
                source,
            } => match cache.reserve(key, source.length.into(), now) {
                Err(refusal) => Answer::Refused(dropped((key, condition), refusal, (cache, now))),
                Ok(pin) => {
                    let place = cache.place(&pin);
                    let put = Put {
                        pin,
                        flags,
                        ttl,
                        condition,
                    };
                    if place.length > 0 {
                        self.putting = Some(put);
                        let sges = [ends.mr.sge(place.offset, place.length)?];
                        let read = Operation::RdmaRead(source.from);
                        let read = SendRequest::new(Kind::Read.id(self.number), read, &sges);
                        let read = read.with_flags(SendFlags::SIGNALED);
                        ends.qp.post_send(&[read])?;
                        return Ok(Turn::Nothing);
                    }
                    store(put, (cache, now))
                }
            },
        };
        self.answer(&answer, ends).map(|()| Turn::Answered)
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// The device refuses it.
    pub fn answer<C: Context>(&mut self, answer: &Answer, ends: &Ends<'_, C>) -> Result<(), Fault> {
        let buffer = self.buffers + u64::from(REQUEST);
        let length = write(ends.mr, buffer, answer)?;
        let id = Kind::Send.id(self.number);
        send(ends, id, &mut self.sent, (buffer, length))
    }

    fn release(&mut self, cache: &mut Cache) {
        if let Some(pin) = self.reading.take() {
            cache.unpin(pin);
        }
    }

    /// Releases what the connection holds. Its queue pair must be gone, so that it executes no READ of the client,
    /// and none of its own.
    pub fn end(mut self, cache: &mut Cache) {
        self.release(cache);
        if let Some(put) = self.putting.take() {
            cache.unpin(put.pin);
        }
    }
}

fn store(put: Put, (cache, now): (&mut Cache, Seconds)) -> Answer {
    let expires = (put.ttl > 0).then(|| now + u64::from(put.ttl));
    match cache.store(put.pin, (put.flags, expires), put.condition, now) {
        Ok(id) => Answer::Stored(cache.item(id).cas),
        Err(refusal) => Answer::Refused(refusal),
    }
}

/// Deletes the item that a value without room was to replace in any case, as memcached does: a reader that got it would
/// not see that it is out of date.
pub fn dropped(
    (key, condition): (&[u8], Condition),
    refusal: Refusal,
    (cache, now): (&mut Cache, Seconds),
) -> Refusal {
    if condition == Condition::Always
        && let Some(id) = cache.find(key, now)
    {
        cache.delete(id);
    }
    refusal
}

/// Sends a message from its buffer.
pub(super) fn send<C: Context>(
    ends: &Ends<'_, C>,
    id: WrId,
    sent: &mut u32,
    (buffer, length): (u64, u32),
) -> Result<(), Fault> {
    let sges = [ends.mr.sge(buffer, length)?];
    let mut flags = SendFlags::empty();
    if length <= ends.inline {
        flags |= SendFlags::INLINE;
    }
    *sent += 1;
    if sent.is_multiple_of(SIGNALED_EVERY) {
        flags |= SendFlags::SIGNALED;
    }
    let request = SendRequest::new(id, Operation::Send, &sges).with_flags(flags);
    Ok(ends.qp.post_send(&[request])?)
}
