//! One end of the connection between a caller and an agent: control messages, messages between roles,
//! and signs of life.

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

/// An end that has had nothing to send for this long sends a sign of life. Each takes a core for some
/// microseconds, which may be one that measures.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// During a run, an end that has not been heard of for this long is gone, or stopped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// While more than this waits to be sent, nothing is taken from the roles.
const CONGESTED: Bytes = Bytes::kib(256);

const WORD: u8 = b'W';
const MESSAGE: u8 = b'M';

/// What arrives.
#[derive(Debug)]
pub(crate) enum Frame<W> {
    Word(W),
    /// What a role of a run sent to another one.
    Message {
        run: RunNumber,
        from: RoleId,
        to: RoleId,
        bytes: Vec<u8>,
    },
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

    /// Greets what is at the other end, which messages call `who`, and waits for its greeting.
    ///
    /// # Errors
    /// It says nothing, or nothing that this version understands.
    pub(crate) fn greet(
        mut wire: Wire,
        who: &str,
        rank: Option<RankName>,
        catalog: &Catalog,
    ) -> anyhow::Result<(Self, Greeting)> {
        wire.take_at_most(MAX_GREETING);
        let deadline = Instant::now() + PATIENCE;
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
                "{who} accepted, but said nothing within {} s: is it `adverb serve`, and is it running?",
                PATIENCE.as_secs()
            );
            wait(&mut [wire.poll_fd()], left)?;
        };
        let greeting = Greeting::read(&greeting, who, catalog).map_err(anyhow::Error::msg)?;
        wire.take_at_most(MAX_FRAME);
        Ok((Connection::new(wire), greeting))
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

    /// Passes on what a role of a run sent to another one.
    pub(crate) fn pass_on(
        &mut self,
        run: RunNumber,
        (from, to): (RoleId, RoleId),
        bytes: &[u8],
    ) -> Result<(), Trouble> {
        let head = [run, from.0, to.0].map(u32::to_le_bytes);
        Ok(self.wire.send(&[&[MESSAGE], head.as_flattened(), bytes])?)
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
            Some((&MESSAGE, rest)) => match message(rest) {
                Some(message) => Ok(Some(message)),
                None => strange("a message between no roles"),
            },
            _ => strange("a frame of no known kind"),
        }
    }

    /// Sends what waits, and a sign of life if it is time for one; `alive` is the word for it.
    ///
    /// # Errors
    /// The connection has ended, or the other end has been silent for longer than `patience`.
    pub(crate) fn keep_up(&mut self, alive: &Out, patience: Duration) -> Result<(), Trouble> {
        self.wire.flush()?;
        if self.wire.last_heard().elapsed() >= patience {
            return Err(Trouble::Silent(patience));
        }
        if self.wire.last_sent().elapsed() >= SIGN_OF_LIFE && !self.is_congested() {
            self.say(alive)?;
        }
        Ok(())
    }

    /// When [`Connection::keep_up`] has something to do at the latest.
    pub(crate) fn wake_at(&self, patience: Duration) -> Instant {
        let silent = self.wire.last_heard() + patience;
        if self.is_congested() {
            // Room to send wakes the owner; what waits is a sign of life itself.
            return silent;
        }
        silent.min(self.wire.last_sent() + SIGN_OF_LIFE)
    }

    /// Whether so much waits to be sent that nothing more should be taken from the roles.
    pub(crate) fn is_congested(&self) -> bool {
        self.wire.unsent() >= CONGESTED
    }

    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        self.wire.poll_fd()
    }

    /// Says no more.
    pub(crate) fn finish(&self) {
        self.wire.finish();
    }
}

/// The caller's end of a connection to an agent.
pub(crate) type ToAgentLink = Connection<ToAgent, ToCaller>;

/// Waits for one of `fds`, for `patience` at most.
pub(crate) fn wait(fds: &mut [PollFd<'_>], patience: Duration) -> anyhow::Result<()> {
    let timeout = Timespec::try_from(patience).context("deadline out of range")?;
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("cannot wait for another host"),
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
