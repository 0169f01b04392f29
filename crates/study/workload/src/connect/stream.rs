//! Connections of TCP: their sockets, messages and ends.
//!
//! A completion of a SEND means that the message has arrived; `send` of a socket returns before. So a message over TCP
//! is timed until the peer's answer: the number of the message.

use adverb_units::{Span, Time};
use adverb_verbs::{RoleId, Station, Streams};

use super::link::{COUNT, MESSAGE};
use super::step::{Step, Timings};
use super::{ACTIVE, Connect, ConnectTally, Part};
use crate::attend::{Awaited, Members, attentively};
use crate::error::Fault;
use crate::pattern::wiring::{receive, send};
use crate::streams::{StreamOf, receive_all, send_all};

/// Timeout for connecting: the peer listens before it sends its address.
const CONNECT_TIMEOUT: Span = Span::from_secs(10);
/// The passive role; there are no agents over TCP.
const PASSIVE: RoleId = RoleId(1);
/// Length of an answer.
const ANSWER: usize = 8;

/// A connection, and the sum of its steps so far.
struct Line<S: Station> {
    stream: StreamOf<S>,
    spent: Span,
}

/// One end of all connections.
struct End<'s, S: Station> {
    members: &'s Members<'s, S>,
    streams: &'s S::Streams,
    connect: &'s Connect,
    timings: Timings<'s, S>,
}

/// Runs one role over TCP.
pub(super) fn run<S: Station>(
    members: &Members<'_, S>,
    connect: &Connect,
    part: &Part,
) -> Result<ConnectTally, Fault> {
    let station = members.station();
    let mut end = End {
        members,
        streams: station.streams(),
        connect,
        timings: Timings::new(station),
    };
    let setup = match part {
        Part::Passive(_) => end.passive()?,
        _ => end.active()?,
    };
    Ok(ConnectTally {
        setup,
        ..end.timings.into_tally()
    })
}

impl<S: Station> End<'_, S> {
    fn active(&mut self) -> Result<Span, Fault> {
        let members = self.members;
        let begun: Time = members.station().now();
        let at = self
            .timings
            .time(Step::Exchange, || receive(members, PASSIVE))?;
        let mut lines = Vec::new();
        for _ in 0..self.connect.connections {
            let streams = self.streams;
            let stream = self
                .timings
                .time_by_step(|note| streams.connect_by_step(at, CONNECT_TIMEOUT, note))?;
            lines.push(self.set_up(stream));
        }
        let setup = members.station().now() - begun;
        members.meet()?;
        for line in &mut lines {
            self.speak(line)?;
        }
        self.close(lines)?;
        Ok(setup)
    }

    fn passive(&mut self) -> Result<Span, Fault> {
        let (members, streams) = (self.members, self.streams);
        let (listener, at) = self
            .timings
            .time_by_step(|note| streams.listen_by_step(note))?;
        self.timings
            .time(Step::Exchange, || send(members, ACTIVE, &at))?;
        let mut lines = Vec::new();
        for _ in 0..self.connect.connections {
            let accept = || {
                attentively(members, Awaited::OwnRequest, |timeout| {
                    streams.accept(&listener, timeout)
                })
            };
            let stream = self.timings.time(Step::Accept, accept)?;
            lines.push(self.set_up(stream));
        }
        members.meet()?;
        for line in &lines {
            self.answer(line)?;
        }
        self.close(lines)?;
        Ok(Span::ZERO)
    }

    /// Ends the set-up of a connection. The first one's includes what is done once for all.
    fn set_up(&mut self, stream: StreamOf<S>) -> Line<S> {
        let mut spent = Span::ZERO;
        self.timings.end(Step::SetUp, &mut spent);
        Line { stream, spent }
    }

    /// The active end's messages: the first one, further ones, and their number.
    fn speak(&mut self, line: &mut Line<S>) -> Result<(), Fault> {
        let count = 1 + u64::from(self.connect.messages);
        for number in 1..=count {
            let step = match number {
                1 => Step::FirstMessage,
                _ => Step::FurtherMessage,
            };
            self.say(line, (step, MESSAGE), number)?;
        }
        self.say(line, (Step::Finished, COUNT), count)?;
        self.timings.end(Step::Use, &mut line.spent);
        Ok(())
    }

    /// Sends a message that begins with `word`, and waits for the answer.
    fn say(&mut self, line: &Line<S>, (step, length): (Step, u32), word: u64) -> Result<(), Fault> {
        let members = self.members;
        let answered = self.timings.time(step, || {
            let mut message = vec![0; length as usize];
            message[..ANSWER].copy_from_slice(&word.to_le_bytes());
            send_all(members, &line.stream, &message)?;
            let mut answer = [0; ANSWER];
            receive_all(members, &line.stream, &mut answer)?;
            Ok::<_, Fault>(u64::from_le_bytes(answer))
        })?;
        match answered == word {
            true => Ok(()),
            false => Err(Fault::Wrong("an answer to another message")),
        }
    }

    /// The passive end's part: takes the messages of a connection, checks their numbers, and answers each.
    fn answer(&self, line: &Line<S>) -> Result<(), Fault> {
        let count = 1 + u64::from(self.connect.messages);
        let messages = (1..=count).map(|number| (number, MESSAGE, "a message out of order"));
        let finished = (count, COUNT, "a number of messages that is not theirs");
        for (number, length, wrong) in messages.chain([finished]) {
            let mut message = vec![0; length as usize];
            receive_all(self.members, &line.stream, &mut message)?;
            if message[..ANSWER] != number.to_le_bytes() {
                return Err(Fault::Wrong(wrong));
            }
            send_all(self.members, &line.stream, &number.to_le_bytes())?;
        }
        Ok(())
    }

    /// Breaks connections down, once both roles have finished using them.
    fn close(&mut self, lines: Vec<Line<S>>) -> Result<(), Fault> {
        self.members.meet()?;
        for line in lines {
            let (mut whole, streams) = (line.spent, self.streams);
            self.timings
                .time(Step::Shutdown, || streams.shutdown(&line.stream))?;
            self.timings.time(Step::Close, || drop(line.stream));
            self.timings.end(Step::BreakDown, &mut whole);
            self.timings.record(Step::Whole, whole);
        }
        // No role ends while another one still looks whether it is there.
        self.members.meet()
    }
}
