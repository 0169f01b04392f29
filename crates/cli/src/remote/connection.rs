//! One end of the connection between client and server: words, pieces, and signs of life.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::{Wire, WireError};
use adverb_units::Bytes;
use rustix::event::PollFd;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{CellNumber, read_strictly};

/// Who has had nothing to say for so long says that it is alive. Each one takes a core for some
/// microseconds, which may be one that measures.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// During a cell, who has not been heard of for so long is gone, or stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// More than this waits to be sent: nothing is taken from the role meanwhile.
const CONGESTED: Bytes = Bytes::kib(256);

const WORD: u8 = b'W';
const PIECE: u8 = b'P';

/// What arrives.
#[derive(Debug)]
pub(crate) enum Frame<W> {
    Word(W),
    /// What the other side's role of a cell said; an empty piece is its end.
    Piece(CellNumber, Vec<u8>),
}

/// When more can be taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    Now,
    /// When some of what waits has been sent.
    Later,
}

/// Why a connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("what it said is not in the protocol: {0}")]
    Strange(String),
    #[error("it has not been heard of for {} s", .0.as_secs())]
    Silent(Duration),
}

impl Trouble {
    /// Whether the other end simply hung up.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Trouble::Wire(WireError::Closed))
    }
}

/// A connection whose ends have greeted each other: says `Out`, hears `In`.
pub(crate) struct Connection<Out, In> {
    wire: Wire,
    words: PhantomData<fn(Out) -> In>,
}

impl<Out: Serialize, In: Serialize + DeserializeOwned> Connection<Out, In> {
    pub(crate) fn new(wire: Wire) -> Self {
        Connection {
            wire,
            words: PhantomData,
        }
    }

    /// This end's address.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.wire.local_ip().ok()
    }

    /// From now on takes frames of at most `longest`.
    pub(crate) fn take_at_most(&mut self, longest: Bytes) {
        self.wire.take_at_most(longest);
    }

    pub(crate) fn say(&mut self, word: &Out) -> Result<(), Trouble> {
        let json = serde_json::to_vec(word).map_err(|e| Trouble::Strange(e.to_string()))?;
        Ok(self.wire.send(&[&[WORD], &json])?)
    }

    /// Passes on what a role said; an empty piece is its end.
    pub(crate) fn pass_on(&mut self, cell: CellNumber, piece: &[u8]) -> Result<More, Trouble> {
        self.wire.send(&[&[PIECE], &cell.to_le_bytes(), piece])?;
        Ok(self.room())
    }

    /// What has arrived.
    pub(crate) fn hear(&mut self) -> Result<Option<Frame<In>>, Trouble> {
        let Some(frame) = self.wire.receive()? else {
            return Ok(None);
        };
        let strange = |what: &str| Err(Trouble::Strange(what.to_owned()));
        match frame.split_first() {
            Some((&WORD, json)) => match read_strictly(json) {
                Ok(word) => Ok(Some(Frame::Word(word))),
                Err(e) => strange(&e.to_string()),
            },
            Some((&PIECE, rest)) => match rest.split_first_chunk() {
                Some((cell, piece)) => {
                    let cell = CellNumber::from_le_bytes(*cell);
                    Ok(Some(Frame::Piece(cell, piece.to_vec())))
                }
                None => strange("a piece of no cell"),
            },
            _ => strange("a frame of no known kind"),
        }
    }

    /// Sends what waits, and a sign of life where it is time for one; `alive` is the word for it.
    ///
    /// # Errors
    /// The connection's end; and silence of the other end for longer than `patience`.
    pub(crate) fn keep_up(&mut self, alive: &Out, patience: Duration) -> Result<(), Trouble> {
        self.wire.flush()?;
        if self.wire.last_heard().elapsed() >= patience {
            return Err(Trouble::Silent(patience));
        }
        if self.wire.last_sent().elapsed() >= SIGN_OF_LIFE && self.room() == More::Now {
            self.say(alive)?;
        }
        Ok(())
    }

    /// When [`Connection::keep_up`] has something to do at the latest.
    pub(crate) fn wake_at(&self, patience: Duration) -> Instant {
        let silent = self.wire.last_heard() + patience;
        match self.room() {
            More::Now => silent.min(self.wire.last_sent() + SIGN_OF_LIFE),
            // Room to send wakes the owner; what waits is sign enough.
            More::Later => silent,
        }
    }

    /// Whether more of what a role says should be taken on.
    pub(crate) fn room(&self) -> More {
        if self.wire.unsent() < CONGESTED {
            More::Now
        } else {
            More::Later
        }
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        self.wire.poll_fd()
    }

    /// Says no more.
    pub(crate) fn finish(&self) {
        self.wire.finish();
    }
}
