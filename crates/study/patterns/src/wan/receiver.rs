//! The receiving side of `interference`: takes the messages of clients, and checks them.

use adverb_units::Span;
use adverb_verbs::{PathOptions, RoleId, Station, StreamWait, Streams, WaitError};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::streams::StreamOf;

use super::content::check;
use super::end::End;
use super::interference::{Interference, WINDOW};
use super::{By, DONE, streams};

/// Bytes that a receiver takes from a socket at once.
const READ_AT_ONCE: usize = 64 * 1024;
/// How long a reader sleeps if nothing arrives, and another receiver that has to take the rest.
const SLEEP: Span = Span::from_ms(20);
const PAUSE: Span = Span::from_us(10);

enum Inbox<'m, S: Station> {
    Verbs(Box<End<'m, S>>),
    /// With room for what a socket holds.
    Streams(Vec<StreamOf<S>>, Vec<u8>),
}

/// Receives the messages of some clients.
pub(super) struct Receiver<'m, S: Station> {
    interference: Interference,
    members: &'m Members<'m, S>,
    clients: Vec<RoleId>,
    inbox: Inbox<'m, S>,
    /// Bytes received of each client.
    received: Vec<u64>,
}

impl<'m, S: Station> Receiver<'m, S> {
    /// Connects with the clients.
    pub(super) fn new(
        members: &'m Members<'m, S>,
        interference: Interference,
        (me, clients): (RoleId, Vec<RoleId>),
        path: PathOptions,
    ) -> Result<Self, Fault> {
        let inbox = match interference.by {
            By::Tcp => Inbox::Streams(streams::accept(members, &clients)?, vec![0; READ_AT_ONCE]),
            by => {
                let receives = if by == By::Send { WINDOW } else { 1 };
                let sizes = (interference.memory(me), 1, receives);
                let path = (path, interference.completion);
                Inbox::Verbs(Box::new(End::new(members, &clients, sizes, path)?))
            }
        };
        let mut receiver = Receiver {
            interference,
            members,
            inbox,
            received: vec![0; clients.len()],
            clients,
        };
        if interference.by == By::Send {
            (0..receiver.clients.len())
                .flat_map(|link| (0..WINDOW).map(move |slot| (link, slot)))
                .try_for_each(|receive| receiver.post_receive(receive))?;
        }
        Ok(receiver)
    }

    fn post_receive(&mut self, (link, slot): (usize, u32)) -> Result<(), Fault> {
        let buffer = self.buffer(link, slot);
        match &mut self.inbox {
            Inbox::Verbs(end) => end.post_receive((link, slot), buffer),
            Inbox::Streams(..) => Ok(()),
        }
    }

    fn buffer(&self, link: usize, slot: u32) -> (u64, u32) {
        let place = link as u64 * u64::from(WINDOW) + u64::from(slot);
        (place * self.interference.slot(), self.interference.size)
    }

    /// Takes what has arrived, without waiting; returns whether there was anything.
    pub(super) fn take_arrived(&mut self) -> Result<bool, Fault> {
        let before: u64 = self.received.iter().sum();
        match &mut self.inbox {
            Inbox::Verbs(_) if self.interference.by != By::Send => {}
            Inbox::Verbs(end) => {
                // No more than the receives that were posted, or computation would never go on.
                let most = self.clients.len() * WINDOW as usize;
                let mut taken = Vec::new();
                while let Some(arrival) = end.take_arrived()? {
                    taken.push(arrival);
                    if taken.len() >= most {
                        break;
                    }
                }
                for arrival in taken {
                    self.received[arrival.link] += u64::from(arrival.bytes);
                    self.post_receive((arrival.link, arrival.slot))?;
                }
            }
            Inbox::Streams(all, room) => {
                let streams = self.members.station().streams();
                for (stream, received) in all.iter().zip(&mut self.received) {
                    *received += streams.receive_arrived(stream, room)? as u64;
                }
            }
        }
        Ok(self.received.iter().sum::<u64>() > before)
    }

    /// Sleeps until a message of the only client arrives, and takes it; returns false if none did.
    fn sleep(&mut self) -> Result<bool, Fault> {
        match &mut self.inbox {
            Inbox::Verbs(end) => {
                let Some(arrival) = end.take_within(SLEEP)? else {
                    return Ok(false);
                };
                self.received[arrival.link] += u64::from(arrival.bytes);
                self.post_receive((arrival.link, arrival.slot))?;
            }
            Inbox::Streams(all, room) => {
                let streams = self.members.station().streams();
                match streams.receive_some(&all[0], room, StreamWait::Sleep, SLEEP) {
                    Ok(bytes) => self.received[0] += bytes as u64,
                    Err(WaitError::TimedOut { .. }) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(true)
    }

    /// Takes messages until clients have sent their last one, and compares what has arrived with what they have sent.
    pub(super) fn take_rest(&mut self) -> Result<(), Fault> {
        let Interference { by, .. } = self.interference;
        let is_reader = self.interference.has_readers();
        let mut sent = vec![None; self.clients.len()];
        loop {
            let has_taken = match is_reader && !self.clients.is_empty() {
                true => self.sleep()?,
                false => self.take_arrived()?,
            };
            if has_taken {
                continue;
            }
            for (client, sent) in self.clients.iter().zip(&mut sent) {
                if sent.is_none()
                    && let Some(said) = self.members.receive_within(*client, Span::ZERO)?
                {
                    let said = <[u8; 8]>::try_from(&said[..]);
                    let said = said.map_err(|_| Fault::Wrong("a count of another length"))?;
                    *sent = Some(u64::from_le_bytes(said));
                }
            }
            let mut both = self.received.iter().zip(&sent);
            if both.all(|(got, all)| all.is_some_and(|all| by == By::Write || *got >= all)) {
                break;
            }
            if !is_reader {
                self.members.station().sleep(PAUSE);
            }
        }
        if by != By::Write && self.received.iter().copied().map(Some).ne(sent) {
            return Err(Fault::Wrong("more bytes than were sent"));
        }
        self.check_messages()?;
        let mut clients = self.clients.iter();
        clients.try_for_each(|client| self.members.send(*client, DONE))
    }

    /// Checks every byte of the last message of each client that is in memory.
    fn check_messages(&self) -> Result<(), Fault> {
        let Inbox::Verbs(end) = &self.inbox else {
            return Ok(());
        };
        let mut found = vec![0; self.interference.size as usize];
        for (link, client) in self.clients.iter().enumerate() {
            let at = match self.interference.by {
                By::Send => self.buffer(link, 0).0,
                _ => link as u64 * self.interference.slot(),
            };
            end.load(at, &mut found)?;
            check(client.0.into(), &found)?;
        }
        Ok(())
    }
}
