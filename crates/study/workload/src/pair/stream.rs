//! `ping` and `blast` over a byte stream (TCP).
//!
//! A message of `ping` is its payload. A message of `blast` begins with a byte that is 0; a single byte
//! [`END`] in place of a message ends a run, and the receiver answers it with the same byte: so the
//! sender's time lasts until the receiver has taken the last message.

use adverb_results::Program;
use adverb_units::Span;
use adverb_verbs::{Rkey, Station, StreamWait, Streams};
use aligned_vec::{AVec, ConstAlign, avec};

use crate::attend::{Awaited, attentively};
use crate::error::{Fault, Side};
use crate::pair::message::Hello;
use crate::pair::part::Part;
use crate::pair::peer::Peer;
use crate::pair::ping::{PingSide, Rounds};
use crate::pair::spec::CellSpec;
use crate::payload::Pattern;
use crate::streams::reading;

/// How long connecting may take. The peer listens before it says where.
const CONNECT_TIMEOUT: Span = Span::from_secs(10);
/// Ends a run of `blast`.
const END: u8 = 1;
/// The receiver of a `blast` of short messages takes as many at a time as fit into this number of bytes.
const RECEIVE_BUFFER: usize = 64 << 10;

/// Bytes of messages, which begin at a page, as verbs programs have them: the kernel copies to and from other addresses
/// more slowly on some CPUs.
type Buffer = AVec<u8, ConstAlign<4096>>;

fn buffer(length: usize) -> Buffer {
    avec![[4096]| 0; length]
}

/// One side's socket before the two are connected.
pub(crate) struct Socket<'s, S: Station> {
    peer: &'s Peer<'s, S>,
    streams: &'s S::Streams,
    /// The passive side's.
    listener: Option<<S::Streams as Streams>::Listener>,
}

impl<'s, S: Station> Socket<'s, S> {
    /// Returns the socket, and what the other side must know: where this side listens, if it does.
    pub(crate) fn new(
        (station, peer): (&'s S, &'s Peer<'s, S>),
        (spec, side): (&CellSpec, Side),
    ) -> Result<(Self, Hello), Fault> {
        spec.validate(adverb_verbs::Context::caps(station.context()))?;
        let streams = station.streams();
        let (listener, at) = match side {
            Side::Active => (None, None),
            Side::Passive => {
                let (listener, at) = streams.listen()?;
                (Some(listener), Some(at))
            }
        };
        let hello = Hello {
            program: spec.program.to_string(),
            params: spec.params.clone(),
            endpoints: Vec::new(),
            listens_at: at,
            mtu: 0,
            max_rd_atomic: 0,
            addr: 0,
            rkey: Rkey(0),
        };
        let socket = Socket {
            peer,
            streams,
            listener,
        };
        Ok((socket, hello))
    }

    /// Connects it to the other side's.
    pub(crate) fn connect(
        self,
        theirs: &Hello,
        spec: &'s CellSpec,
        side: Side,
    ) -> Result<Line<'s, S>, Fault> {
        theirs.check(spec)?;
        let stream = match (&self.listener, theirs.listens_at) {
            (Some(listener), _) => attentively(self.peer, Awaited::OwnRequest, |timeout| {
                self.streams.accept(listener, timeout)
            })?,
            (None, Some(at)) => self.streams.connect(at, CONNECT_TIMEOUT)?,
            (None, None) => {
                let expected = "an address to connect to";
                let found = "a greeting without one".to_owned();
                return Err(Fault::Protocol { expected, found });
            }
        };
        Ok(Line {
            peer: self.peer,
            streams: self.streams,
            stream,
            spec,
            side,
            how: reading(spec.params.completion),
            pattern: Pattern::new(spec.params.seed),
        })
    }
}

/// One side's end of the connection.
pub(crate) struct Line<'s, S: Station> {
    peer: &'s Peer<'s, S>,
    streams: &'s S::Streams,
    stream: <S::Streams as Streams>::Stream,
    spec: &'s CellSpec,
    side: Side,
    how: StreamWait,
    pattern: Pattern,
}

impl<S: Station> Line<'_, S> {
    /// Gives `drive` this side's part of the cell.
    pub(crate) fn with_part<T>(
        &self,
        drive: impl FnOnce(&mut dyn Part) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let with = (self.peer, self.spec, self.side);
        match self.spec.program {
            Program::Ping => drive(&mut Rounds::new(with, Turns::new(self))),
            Program::Blast => drive(&mut Rounds::new(with, Flow::new(self))),
        }
    }

    fn size(&self) -> usize {
        self.spec.params.size.as_usize()
    }

    #[inline]
    fn send(&self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let sent = attentively(self.peer, Awaited::OwnRequest, |timeout| {
                (self.streams).send_some(&self.stream, bytes, self.how, timeout)
            })?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    #[inline]
    fn receive_some(&self, into: &mut [u8]) -> Result<usize, Fault> {
        attentively(self.peer, Awaited::Message, |timeout| {
            (self.streams).receive_some(&self.stream, into, self.how, timeout)
        })
    }

    fn receive(&self, into: &mut [u8]) -> Result<(), Fault> {
        let mut received = 0;
        while received < into.len() {
            received += self.receive_some(&mut into[received..])?;
        }
        Ok(())
    }
}

/// The turns of a `ping`.
struct Turns<'l, 's, S: Station> {
    line: &'l Line<'s, S>,
    out: Buffer,
    inbox: Buffer,
    sent: u64,
    received: u64,
}

impl<'l, 's, S: Station> Turns<'l, 's, S> {
    fn new(line: &'l Line<'s, S>) -> Self {
        let filled = || {
            let mut bytes = buffer(line.size());
            line.pattern.write(u64::MAX, &mut bytes);
            bytes
        };
        Turns {
            line,
            out: filled(),
            inbox: filled(),
            sent: 0,
            received: 0,
        }
    }

    /// Messages count up in the order in which they are sent: two in a round.
    fn message(count: u64, from: Side) -> u64 {
        2 * count + u64::from(from == Side::Passive)
    }
}

impl<S: Station> PingSide for Turns<'_, '_, S> {
    #[inline]
    fn push(&mut self) -> Result<(), Fault> {
        if self.line.spec.params.verify {
            let message = Self::message(self.sent, self.line.side);
            self.line.pattern.write(message, &mut self.out);
        }
        self.sent += 1;
        self.line.send(&self.out)
    }

    #[inline]
    fn take(&mut self) -> Result<(), Fault> {
        self.line.receive(&mut self.inbox)?;
        if self.line.spec.params.verify {
            let message = Self::message(self.received, self.line.side.other());
            self.line.pattern.compare(message, 0, &self.inbox)?;
        }
        self.received += 1;
        Ok(())
    }
}

/// The messages of a `blast`, all in one direction.
struct Flow<'l, 's, S: Station> {
    line: &'l Line<'s, S>,
    /// The sender's messages, which it sends in turn; or what the receiver has received.
    buffers: Buffer,
    /// Messages sent or taken.
    messages: u64,
    /// Bytes received behind the last message taken.
    ahead: usize,
    /// Whether the end of the run has been received.
    ended: bool,
}

impl<'l, 's, S: Station> Flow<'l, 's, S> {
    fn new(line: &'l Line<'s, S>) -> Self {
        let (size, p) = (line.size(), &line.spec.params);
        let mut buffers = buffer(match line.side {
            Side::Active => size * p.buffers as usize,
            Side::Passive if p.verify => size,
            Side::Passive => size.max(RECEIVE_BUFFER),
        });
        if line.side == Side::Active {
            line.pattern.write(u64::MAX, &mut buffers);
        }
        buffers.chunks_mut(size).for_each(|message| message[0] = 0);
        Flow {
            line,
            buffers,
            messages: 0,
            ahead: 0,
            ended: false,
        }
    }

    /// Receives more bytes; answers the end of the run.
    fn receive_more(&mut self) -> Result<(), Fault> {
        let (line, size) = (self.line, self.line.size());
        self.ahead += line.receive_some(&mut self.buffers[self.ahead..])?;
        let last = self.ahead - 1;
        // Nothing follows the end before it is answered, so it is the last byte.
        if last.is_multiple_of(size) && self.buffers[last] == END {
            self.ahead = last;
            self.ended = true;
            line.send(&[END])?;
        }
        Ok(())
    }
}

impl<S: Station> PingSide for Flow<'_, '_, S> {
    fn begin(&mut self, _messages: u64) {
        self.ended = false;
    }

    #[inline]
    fn push(&mut self) -> Result<(), Fault> {
        if self.line.side == Side::Passive {
            return Ok(());
        }
        let size = self.line.size();
        let first = (self.messages % u64::from(self.line.spec.params.buffers)) as usize * size;
        let buffer = &mut self.buffers[first..first + size];
        if self.line.spec.params.verify {
            self.line.pattern.write(self.messages, buffer);
            buffer[0] = 0;
        }
        self.messages += 1;
        self.line.send(buffer)
    }

    #[inline]
    fn take(&mut self) -> Result<(), Fault> {
        if self.line.side == Side::Active {
            return Ok(());
        }
        let size = self.line.size();
        while self.ahead < size {
            if self.ended {
                return Err(Fault::Stopped);
            }
            self.receive_more()?;
        }
        if self.line.spec.params.verify {
            let rest = &self.buffers[1..size];
            self.line.pattern.compare(self.messages, 1, rest)?;
        }
        self.ahead -= size;
        self.messages += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        if self.line.side == Side::Active {
            self.line.send(&[END])?;
            return self.line.receive(&mut [0]);
        }
        while !self.ended {
            self.receive_more()?;
        }
        Ok(())
    }

    fn messages(&self) -> u64 {
        1
    }
}
