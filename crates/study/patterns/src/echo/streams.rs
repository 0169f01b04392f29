//! Requests and replies over TCP: a connection of each client, which its core polls in turn.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use adverb_units::{Span, Time};
use adverb_verbs::{RoleId, Station, StreamError, StreamWait, Streams, WaitError};
use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::pattern::{Meter, PatternError, Schedule};
use adverb_workload::random::Random;
use adverb_workload::streams::{StreamOf, send_all};

use super::answers::Answers;
use super::service::Service;
use super::{Echo, content, load, or_none, served};
use crate::due::{self, Asked, Due};
use crate::rpc::{Counter, RpcPart, TIMEOUT};
use crate::tally::ServiceTally;
use crate::wan::{accept, connect};

/// Runs a core or a client.
pub(super) fn run<S: Station>(
    members: &Members<'_, S>,
    echo: &Echo,
    part: RpcPart,
    counter: &Counter,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    let mut tally = match part {
        RpcPart::Core(core) => {
            let clients: Vec<RoleId> = echo.seats().clients_of(core).collect();
            let streams = accept(members, &clients)?;
            members.meet()?;
            let service = Service::new(echo, counter);
            serve(members, echo, streams, service, schedule)?
        }
        RpcPart::Client(client) => {
            let stream = connect(members, echo.seats().core_of(client))?;
            members.meet()?;
            Client::new(members, echo, (client, &stream), schedule).run()?
        }
    };
    members.meet()?;
    // All requests have been answered.
    tally.handed_out = counter.load(Ordering::Relaxed);
    Ok(tally)
}

/// Received messages of one length, the last of them in part.
struct Inbox {
    length: usize,
    bytes: Vec<u8>,
    filled: usize,
}

impl Inbox {
    /// Has room for all messages that can be in flight.
    fn new(length: u32, outstanding: u32) -> Self {
        let length = length as usize;
        Inbox {
            length,
            bytes: vec![0; length * outstanding as usize],
            filled: 0,
        }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Takes the messages that are whole after `received` more bytes, all at once.
    fn take(
        &mut self,
        received: usize,
        all: impl FnOnce(&[u8]) -> Result<(), PatternError>,
    ) -> Result<(), PatternError> {
        self.filled += received;
        let whole = self.filled / self.length * self.length;
        all(&self.bytes[..whole])?;
        self.bytes.copy_within(whole..self.filled, 0);
        self.filled -= whole;
        Ok(())
    }
}

/// Serves until all clients have ended their connections.
fn serve<S: Station>(
    members: &Members<'_, S>,
    echo: &Echo,
    streams: Vec<StreamOf<S>>,
    mut service: Service<'_>,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    let station = members.station();
    let begin = station.now();
    let until = begin + schedule.warm_up + schedule.measured;
    let mut meter = Meter::new(begin, schedule);
    let inbox = || Inbox::new(echo.request, echo.clients.outstanding);
    let mut open: Vec<_> = streams.into_iter().map(|own| (own, inbox())).collect();
    let (mut answered, mut replies) = (0, Vec::new());
    while !open.is_empty() {
        let mut ended = Vec::new();
        for (place, (stream, inbox)) in open.iter_mut().enumerate() {
            let received = match station.streams().receive_arrived(stream, inbox.room()) {
                Ok(received) => received,
                Err(WaitError::Stream(StreamError::Closed)) => {
                    ended.push(place);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            inbox.take(received, |requests| {
                answered += service.reply(station, requests, &mut replies);
                Ok(())
            })?;
            // All answers that there are by one call. A client takes them while it sends.
            send_all(members, stream, &replies)?;
            replies.clear();
        }
        ended
            .iter()
            .rev()
            .for_each(|place| drop(open.remove(*place)));
        meter.look(station, station.now(), answered);
    }
    Ok(served(station, until, meter, answered))
}

/// The state of a running client.
struct Client<'w, S: Station> {
    members: &'w Members<'w, S>,
    echo: &'w Echo,
    stream: &'w StreamOf<S>,
    random: Random,
    /// Seeds of the requests.
    seed: u64,
    /// Number of requests so far.
    sent: u64,
    due: Due,
    /// Requests without a reply, in order.
    asked: VecDeque<Asked>,
    /// Bytes of requests that the socket had no room for.
    outbox: Vec<u8>,
    inbox: Inbox,
    until: Time,
    answers: Answers,
}

impl<'w, S: Station> Client<'w, S> {
    fn new(
        members: &'w Members<'w, S>,
        echo: &'w Echo,
        (client, stream): (u32, &'w StreamOf<S>),
        schedule: Schedule,
    ) -> Self {
        let now = members.station().now();
        let seed = due::seed(&echo.clients, client);
        let mut random = Random::new(seed);
        Client {
            members,
            echo,
            stream,
            due: Due::new(&echo.clients, &mut random, now),
            random,
            seed,
            sent: 0,
            asked: VecDeque::new(),
            outbox: Vec::new(),
            inbox: Inbox::new(echo.reply, echo.clients.outstanding),
            until: now + schedule.warm_up + schedule.measured,
            answers: Answers::new(echo, now, schedule),
        }
    }

    /// Sends requests until the measured time is over, waits for outstanding ones, and ends the connection.
    fn run(mut self) -> Result<ServiceTally, PatternError> {
        let station = self.members.station();
        let mut now = station.now();
        let mut answered_at = now;
        while now < self.until || !self.asked.is_empty() {
            while let Some(at) = self.due(now).filter(|at| *at <= now) {
                self.ask(at);
            }
            let before = self.answers.count();
            let received = self.exchange(now)?;
            now = station.now();
            self.take(received, now)?;
            if self.asked.is_empty() || self.answers.count() > before {
                answered_at = now;
            }
            if now - answered_at > TIMEOUT {
                return Err(PatternError::Lost {
                    missing: self.asked.len() as u32,
                    timeout: TIMEOUT,
                });
            }
        }
        station.streams().shutdown(self.stream)?;
        Ok(self.answers.into_tally())
    }

    /// Returns when the next request is due, if there is room for it.
    fn due(&self, now: Time) -> Option<Time> {
        let has_room = self.asked.len() < self.echo.clients.outstanding as usize;
        self.due.next().filter(|_| has_room && now < self.until)
    }

    fn ask(&mut self, at: Time) {
        let begin = self.outbox.len();
        self.outbox.resize(begin + self.echo.request as usize, 0);
        let request = &mut self.outbox[begin..];
        content::fill(request, self.seed.wrapping_add(self.sent));
        let seed = content::digest(request);
        self.asked.push_back(Asked { seed, at });
        self.sent += 1;
        self.due.sent(&mut self.random);
    }

    /// Sends what there is room for, and receives. It waits only if all is sent: the server may wait until its replies
    /// are taken.
    fn exchange(&mut self, now: Time) -> Result<usize, PatternError> {
        let streams = self.members.station().streams();
        if !self.outbox.is_empty() {
            match streams.send_some(self.stream, &self.outbox, StreamWait::Poll, Span::ZERO) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(WaitError::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let next = self.due(now);
        let (stream, room) = (self.stream, self.inbox.room());
        if !self.outbox.is_empty() {
            return Ok(streams.receive_arrived(stream, room)?);
        }
        let mut receive = |timeout| streams.receive_some(stream, room, StreamWait::Poll, timeout);
        or_none(match next {
            Some(next) => receive(next.min(self.until) - now).map_err(PatternError::from),
            None => attentively(self.members, Awaited::Message, receive),
        })
    }

    /// Checks the replies among the received bytes.
    fn take(&mut self, received: usize, now: Time) -> Result<(), PatternError> {
        let station = self.members.station();
        self.inbox.take(received, |replies| {
            for reply in replies.chunks(self.echo.reply as usize) {
                load(station, self.echo.reply);
                let asked = self.asked.pop_front();
                let asked = asked.ok_or(PatternError::Wrong("a reply to no request"))?;
                self.answers.take(reply, asked, now)?;
                self.due.answered(now + self.echo.think);
            }
            Ok(())
        })?;
        self.answers.look(station, now);
        Ok(())
    }
}
