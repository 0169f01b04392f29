//! One end of the connection between a caller and an agent: control messages, messages between roles, and
//! keepalives.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use adverb_host::{MAX_FRAME, Wire, WireError};
use adverb_units::Bytes;
use adverb_verbs::RoleId;
use anyhow::{Context, ensure};
use rustix::event::{PollFd, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::protocol::{
    Greeting, MAX_GREETING, RankName, RunNumber, ToAgent, ToCaller, read_strictly,
};
use crate::catalog::Catalog;

/// An idle end sends a keepalive after this time. Each one uses some microseconds of a core, which may be a
/// core that measures.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// During a run, an end that has been silent for this long counts as lost.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// While more than this is unsent, nothing is read from the roles (back-pressure).
const CONGESTED: Bytes = Bytes::kib(256);

const WORD: u8 = b'W';
const MESSAGE: u8 = b'M';

/// A received frame.
#[derive(Debug)]
pub(crate) enum Frame<W> {
    Word(W),
    /// A message from one role of a run to another.
    Message {
        run: RunNumber,
        from: RoleId,
        to: RoleId,
        bytes: Vec<u8>,
    },
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("it violated the protocol: {0}")]
    Protocol(String),
    #[error("it has been silent for {} s", .0.as_secs())]
    Silent(Duration),
}

impl ConnectionError {
    /// Whether the other end closed the connection.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, ConnectionError::Wire(WireError::Closed))
    }
}

/// A connection after the greetings, which sends `Out` and receives `In`.
#[derive(Debug)]
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

    /// Exchanges greetings with the other end, which is called `who` in errors.
    ///
    /// # Errors
    /// The other end sends no greeting, or one of another protocol version.
    pub(crate) fn greet(
        mut wire: Wire,
        who: &str,
        rank: Option<RankName>,
        catalog: &Catalog,
    ) -> anyhow::Result<(Self, Greeting)> {
        wire.take_at_most(MAX_GREETING);
        let deadline = Instant::now() + TIMEOUT;
        let strange = |e: WireError| match e {
            WireError::TooLong { .. } => anyhow::anyhow!("{who} does not speak Adverb's protocol"),
            other => anyhow::Error::new(other).context(who.to_owned()),
        };
        let ours = Greeting::ours(catalog, rank);
        wire.send(&[&ours]).map_err(strange)?;
        let greeting = loop {
            if let Some(greeting) = wire.receive().map_err(strange)? {
                break greeting;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(
                !left.is_zero(),
                "{who} accepted the connection, but sent nothing within {} s: is it `adverb serve`, and is it running?",
                TIMEOUT.as_secs()
            );
            wait(&mut [wire.poll_fd()], left)?;
        };
        let greeting = Greeting::read(&greeting, who, catalog).map_err(anyhow::Error::msg)?;
        wire.take_at_most(MAX_FRAME);
        Ok((Connection::new(wire), greeting))
    }

    /// Returns the address of this end.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        self.wire.local_ip().ok()
    }

    /// Limits received frames to `longest`.
    pub(crate) fn take_at_most(&mut self, longest: Bytes) {
        self.wire.take_at_most(longest);
    }

    pub(crate) fn say(&mut self, word: &Out) -> Result<(), ConnectionError> {
        let json =
            serde_json::to_vec(word).map_err(|e| ConnectionError::Protocol(e.to_string()))?;
        Ok(self.wire.send(&[&[WORD], &json])?)
    }

    /// Forwards a message from one role of a run to another.
    pub(crate) fn pass_on(
        &mut self,
        run: RunNumber,
        (from, to): (RoleId, RoleId),
        bytes: &[u8],
    ) -> Result<(), ConnectionError> {
        let head = [run, from.0, to.0].map(u32::to_le_bytes);
        Ok(self.wire.send(&[&[MESSAGE], head.as_flattened(), bytes])?)
    }

    /// Returns the next received frame, if there is one.
    pub(crate) fn hear(&mut self) -> Result<Option<Frame<In>>, ConnectionError> {
        let Some(frame) = self.wire.receive()? else {
            return Ok(None);
        };
        let strange = |what: &str| Err(ConnectionError::Protocol(what.to_owned()));
        match frame.split_first() {
            Some((&WORD, json)) => match read_strictly(json) {
                Ok(word) => Ok(Some(Frame::Word(word))),
                Err(e) => strange(&e.to_string()),
            },
            Some((&MESSAGE, rest)) => match message(rest) {
                Some(message) => Ok(Some(message)),
                None => strange("a malformed message"),
            },
            _ => strange("an unknown kind of frame"),
        }
    }

    /// Sends unsent data, and the keepalive `alive` if one is due.
    ///
    /// # Errors
    /// The connection has ended, or the other end has been silent for longer than `timeout`.
    pub(crate) fn keep_up(
        &mut self,
        alive: &Out,
        timeout: Duration,
    ) -> Result<(), ConnectionError> {
        self.wire.flush()?;
        if self.wire.last_heard().elapsed() >= timeout {
            return Err(ConnectionError::Silent(timeout));
        }
        if self.wire.last_sent().elapsed() >= KEEPALIVE && !self.is_congested() {
            self.say(alive)?;
        }
        Ok(())
    }

    /// Returns when [`Connection::keep_up`] must be called next.
    pub(crate) fn wake_at(&self, timeout: Duration) -> Instant {
        let silent = self.wire.last_heard() + timeout;
        if self.is_congested() {
            // Room to send wakes the owner, and the unsent data serves as a keepalive.
            return silent;
        }
        silent.min(self.wire.last_sent() + KEEPALIVE)
    }

    /// Whether so much is unsent that nothing more should be read from the roles.
    pub(crate) fn is_congested(&self) -> bool {
        self.wire.unsent() >= CONGESTED
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        self.wire.poll_fd()
    }

    /// Closes the sending direction.
    pub(crate) fn finish(&self) {
        self.wire.finish();
    }
}

/// The caller's end of a connection to an agent.
pub(crate) type ToAgentLink = Connection<ToAgent, ToCaller>;

/// Waits for one of `fds`, with the timeout `timeout`.
pub(crate) fn wait(fds: &mut [PollFd<'_>], timeout: Duration) -> anyhow::Result<()> {
    wait_until(fds, Some(Instant::now() + timeout))
}

/// Waits for one of `fds`, until `deadline` if there is one.
pub(crate) fn wait_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> anyhow::Result<()> {
    let left = |at: Instant| Timespec::try_from(at.saturating_duration_since(Instant::now()));
    let timeout = deadline.map(left).transpose();
    let timeout = timeout.context("deadline out of range")?;
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("cannot wait for roles and other hosts"),
    }
}

fn message<W>(rest: &[u8]) -> Option<Frame<W>> {
    let (run, rest) = rest.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    let (to, bytes) = rest.split_first_chunk()?;
    let [run, from, to] = [run, from, to].map(|number| u32::from_le_bytes(*number));
    let (from, to) = (RoleId(from), RoleId(to));
    let bytes = bytes.to_vec();
    Some(Frame::Message {
        run,
        from,
        to,
        bytes,
    })
}
