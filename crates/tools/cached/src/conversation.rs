//! The protocol's state for a connection: consumes what a client sent, appends what it gets. It does no I/O.
//!
//! Memory is bounded. A value is copied from the input to its block as it arrives, keys of a `get` are looked up as they
//! arrive, and nothing more is consumed while the client has much output to take.

use adverb_patterns::store::attach::{ATTACH, ATTACHED, Hello};
use adverb_verbs::Context;

use crate::classic;
use crate::incoming::Incoming;
use crate::meta;
use crate::rdma::Attachment;
use crate::retrieval::{Keys, Retrieval};
use crate::shared::{Shared, put};

/// Longest line of a command, except of a `get`, whose keys have no limit.
pub(crate) const MAX_LINE: usize = 2048;
/// First byte of a request of memcached's binary protocol.
const BINARY: u8 = 0x80;
/// Output after which nothing more is consumed.
const MUCH: usize = 1 << 18;

pub(crate) const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";
pub(crate) const BAD_DATA: &str = "CLIENT_ERROR bad data chunk\r\n";
pub(crate) const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const ERROR: &str = "ERROR\r\n";

/// What follows a command.
pub(crate) enum Next {
    /// The next command.
    Command,
    /// A value.
    Value(Incoming),
    /// A value that was refused, of this length with its end of line.
    Swallow(u64),
    /// Nothing: the client wants to end.
    Close,
}

#[derive(Debug)]
enum State {
    Command,
    Keys(Retrieval),
    Value(Incoming),
    Swallow(u64),
    /// The rest of a line that was refused.
    SkipLine,
}

/// Why nothing more is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The rest has to arrive.
    Input,
    /// The client has to take the output.
    Output,
    /// The connection is to be closed, after the output.
    Close,
}

/// A connection's state.
#[derive(Debug)]
pub struct Conversation {
    state: State,
    /// The RDMA connection that ends with this one.
    attached: Option<Attachment>,
}

/// What a client sent and was not consumed.
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) used: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.used..]
    }

    /// Takes a line without its end, if it is complete.
    pub(crate) fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.used += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

impl Default for Conversation {
    fn default() -> Self {
        Conversation {
            state: State::Command,
            attached: None,
        }
    }
}

impl Conversation {
    /// Consumes input until more is needed or there is much output. Returns the number of bytes consumed, and why it
    /// stopped.
    pub fn advance<C: Context>(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        shared: &Shared<C>,
    ) -> (usize, Pause) {
        let mut input = Input { bytes, used: 0 };
        loop {
            if out.len() >= MUCH {
                return (input.used, Pause::Output);
            }
            if let Err(pause) = self.step(&mut input, out, shared) {
                return (input.used, pause);
            }
        }
    }

    /// Releases what a connection that has ended holds.
    pub fn end<C: Context>(self, shared: &Shared<C>) {
        if let State::Value(incoming) = self.state {
            shared.abandon(incoming.pin);
        }
        if let (Some(attached), Some(rdma)) = (self.attached, &shared.rdma) {
            rdma.detach(shared, attached);
        }
    }

    fn step<C: Context>(
        &mut self,
        input: &mut Input<'_>,
        out: &mut Vec<u8>,
        shared: &Shared<C>,
    ) -> Result<(), Pause> {
        match &mut self.state {
            State::Command => {
                let next = command(input, out, shared, &mut self.attached)?;
                self.state = next;
            }
            State::Keys(retrieval) => match retrieval.next_key(input, out, shared)? {
                Keys::More => {}
                Keys::End => self.state = State::Command,
                Keys::Refused => self.state = State::SkipLine,
            },
            State::Value(incoming) => {
                incoming.take(input, shared)?;
                if let State::Value(incoming) = std::mem::replace(&mut self.state, State::Command) {
                    incoming.finish(out, shared);
                }
            }
            State::Swallow(left) => {
                let taken = input
                    .rest()
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                input.used += taken;
                *left -= taken as u64;
                if *left > 0 {
                    return Err(Pause::Input);
                }
                self.state = State::Command;
            }
            State::SkipLine => {
                if input.line().is_none() {
                    input.used = input.bytes.len();
                    return Err(Pause::Input);
                }
                self.state = State::Command;
            }
        }
        Ok(())
    }
}

/// Executes the next command.
fn command<C: Context>(
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
    shared: &Shared<C>,
    attached: &mut Option<Attachment>,
) -> Result<State, Pause> {
    if input.rest().first() == Some(&BINARY) {
        put!(out, "CLIENT_ERROR the binary protocol is not served\r\n");
        return Err(Pause::Close);
    }
    if let Some((retrieval, length)) = Retrieval::begins(input.rest()) {
        input.used += length;
        return Ok(State::Keys(retrieval));
    }
    let is_long = input.rest().len() > MAX_LINE;
    let line = match input.line() {
        Some(line) if line.len() <= MAX_LINE => line,
        None if !is_long => return Err(Pause::Input),
        _ => {
            put!(out, "CLIENT_ERROR line too long\r\n");
            return Err(Pause::Close);
        }
    };
    let words = line.split(|byte| *byte == b' ');
    let words: smallvec::SmallVec<[&[u8]; 8]> = words.filter(|word| !word.is_empty()).collect();
    let next = match words.first() {
        None => {
            put!(out, "{ERROR}");
            Next::Command
        }
        Some([b'm', _]) => meta::run(&words, shared, out),
        Some(name) if *name == ATTACH.trim_ascii_end() => {
            attach(&words, out, shared, attached);
            Next::Command
        }
        Some(_) => classic::run(&words, shared, out),
    };
    Ok(match next {
        Next::Command => State::Command,
        Next::Value(incoming) => State::Value(incoming),
        Next::Swallow(bytes) => State::Swallow(bytes),
        Next::Close => return Err(Pause::Close),
    })
}

/// Connects the client's queue pair.
fn attach<C: Context>(
    words: &[&[u8]],
    out: &mut Vec<u8>,
    shared: &Shared<C>,
    attached: &mut Option<Attachment>,
) {
    let hello = words.get(1).and_then(|word| Hello::from_word(word));
    let done = match (&shared.rdma, hello) {
        (None, _) => return put!(out, "SERVER_ERROR this server has no RDMA\r\n"),
        (_, None) => return put!(out, "{BAD_LINE}"),
        (Some(_), Some(_)) if attached.is_some() => {
            return put!(
                out,
                "CLIENT_ERROR this connection has a queue pair already\r\n"
            );
        }
        (Some(rdma), Some(hello)) => rdma.attach(shared, &hello),
    };
    match done {
        Err(reason) => put!(out, "SERVER_ERROR {reason}\r\n"),
        Ok((attachment, hello)) => {
            *attached = Some(attachment);
            put!(out, "{ATTACHED}{}\r\n", hello.to_word());
        }
    }
}
