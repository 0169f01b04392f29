//! A subscriber of a multicast group.

use adverb_units::{Span, Time};
use adverb_verbs::{
    Context, GroupMember, MemoryRegion, QpCaps, QpType, QueuePair, RecvRequest, Station, WaitError,
    WorkCompletion, WrId,
};

use super::{Announcement, HALF, Multicast, MulticastTally, PUBLISHER, QUARTER};
use crate::attend::{Awaited, DONE, Members, Within};
use crate::error::Fault;
use crate::pattern::wiring::receive;
use crate::reap::{BATCH, Queue};
use crate::wiring::{GRH, Kit};

/// How long a subscriber waits for messages before it looks for words of the publisher.
const GLANCE: Span = Span::from_ms(5);
/// After the publisher's end a message counts as lost if none of it arrived for this long.
const LINGER: Span = Span::from_ms(50);

/// What a subscriber that churns does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Churn {
    /// It stays in the group.
    Stays,
    /// It leaves after a quarter of the messages and joins again after half of them.
    Leaves,
}

/// The messages that arrived.
struct Seen {
    /// A bit for each message.
    bits: Vec<u64>,
    /// The number after the highest one.
    next: u64,
    /// When the first one arrived, and the last one.
    times: Option<(Time, Time)>,
    /// The number that was next when the subscriber left the group, and the first one after it had joined
    /// again.
    absence: Option<(u64, Option<u64>)>,
    tally: MulticastTally,
}

impl Seen {
    fn new(messages: u64) -> Self {
        Seen {
            bits: vec![0; messages.div_ceil(64) as usize],
            next: 0,
            times: None,
            absence: None,
            tally: MulticastTally::default(),
        }
    }

    /// Whether message `number` has arrived.
    fn has(&self, number: u64) -> bool {
        self.bits[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    /// Counts message `number` of the publisher.
    fn add(&mut self, number: u64) {
        if self.has(number) {
            self.tally.duplicates += 1;
            return;
        }
        self.bits[(number / 64) as usize] |= 1 << (number % 64);
        self.tally.messages += 1;
        self.tally.reordered += u64::from(number < self.next);
        self.next = self.next.max(number + 1);
    }

    /// Returns the counts of a subscriber to which `messages` were sent.
    fn into_tally(self, messages: u64) -> MulticastTally {
        let (left, back) = self.absence.unwrap_or((messages, None));
        let missing = (left..back.unwrap_or(messages)).filter(|number| !self.has(*number));
        let away = missing.count() as u64;
        let elapsed = self.times.map(|(first, last)| last - first);
        MulticastTally {
            lost: messages - self.tally.messages - away,
            away,
            elapsed: elapsed.unwrap_or_default(),
            ..self.tally
        }
    }
}

/// A subscriber's objects and counts.
struct Subscriber<'s, S: Station> {
    members: &'s Members<'s, S>,
    multicast: &'s Multicast,
    kit: Kit<'s, S>,
    qp: <S::Context as Context>::Qp,
    seen: Seen,
    churn: Churn,
    /// The publisher's key, which its messages contain.
    key: [u8; 8],
    /// Length of a receive: the largest datagram that the port takes, whoever sends it. One that did not fit would
    /// end the queue pair.
    room: u64,
    /// Durations of joining.
    joins: Vec<Span>,
}

/// Joins the group, counts messages until the publisher's end, and leaves.
pub(super) fn subscribe<S: Station>(
    members: &Members<'_, S>,
    multicast: &Multicast,
    churn: Churn,
) -> Result<MulticastTally, Fault> {
    let (context, receives) = (members.station().context(), multicast.receives);
    let port = context.port(context.port_num())?;
    let mtu = multicast.mtu_of(&port)?;
    let room = port.active_mtu.bytes().get() + u64::from(GRH);
    let kit = multicast.kit(members.station(), u64::from(receives) * room)?;
    let queue = Queue::new(context, receives, multicast.completion, Awaited::Message)?;
    let qp = kit.queue_pair(QpType::Ud, (&queue, &queue), QpCaps::new(1, receives), 0)?;
    let group: Announcement = receive(members, PUBLISHER)?;
    multicast.check_join(mtu, group.mtu)?;
    let mut subscriber = Subscriber {
        members,
        multicast,
        kit,
        qp,
        seen: Seen::new(multicast.messages),
        churn,
        key: group.key,
        room,
        joins: Vec::new(),
    };
    subscriber.join()?;
    (0..receives).try_for_each(|slot| subscriber.post(slot.into()))?;
    members.meet()?;
    subscriber.listen(&queue)?;
    members.meet()?;
    let joins = subscriber.joins;
    let sum = joins.iter().fold(Span::ZERO, |sum, join| sum + *join);
    Ok(MulticastTally {
        join: Some(sum / joins.len() as u64),
        ..subscriber.seen.into_tally(multicast.messages)
    })
}

impl<S: Station> Subscriber<'_, S> {
    fn join(&mut self) -> Result<(), Fault> {
        let station = self.members.station();
        let begun = station.now();
        self.qp
            .join_mcast(self.multicast.group, GroupMember::Receiver)?;
        self.joins.push(station.now() - begun);
        Ok(())
    }

    /// Posts the receive of a buffer.
    fn post(&self, slot: u64) -> Result<(), Fault> {
        let sges = [self.kit.mr.sge(slot * self.room, self.room as u32)?];
        Ok(self.qp.post_recv(&[RecvRequest::new(WrId(slot), &sges)])?)
    }

    /// Takes messages until the publisher has ended and no more of its messages arrive. Others may send to the group
    /// all the time, so the clock decides, and not a wait without messages.
    fn listen(&mut self, queue: &Queue<S::Context>) -> Result<(), Fault> {
        let station = self.members.station();
        let mut reaper = queue.reaper();
        let mut completions = [WorkCompletion::default(); BATCH];
        let mut heard = station.now();
        let mut ended = None;
        loop {
            let begun = station.now();
            let reaped = reaper.reap(station, &Within(self.members, GLANCE), &mut completions);
            let taken = match reaped {
                Ok(n) => self.take(&completions[..n])?,
                Err(Fault::Wait(WaitError::TimedOut { .. })) => 0,
                Err(fault) => return Err(fault),
            };
            let Some(ended) = ended else {
                // A subscriber that leaves looks each time, because messages go on arriving until it has left.
                if self.churn == Churn::Leaves || station.now() - heard >= GLANCE {
                    heard = station.now();
                    ended = self.hear()?.then_some(heard);
                }
                continue;
            };
            let last = self.seen.times.map_or(ended, |(_, last)| last.max(ended));
            let is_quiet = taken == 0 && begun - last >= LINGER;
            if is_quiet || self.seen.tally.messages == self.multicast.messages {
                return Ok(());
            }
        }
    }

    /// Counts what arrived and posts the receives again. Returns the number of the publisher's messages.
    fn take(&mut self, completions: &[WorkCompletion]) -> Result<usize, Fault> {
        let now = self.members.station().now();
        let mut taken = 0;
        for wc in completions {
            match self.number(wc)? {
                None => self.seen.tally.foreign += 1,
                Some(number) => {
                    taken += 1;
                    self.seen.add(number);
                    let is_back = self.churn == Churn::Stays;
                    if let (Some((_, back @ None)), true) = (&mut self.seen.absence, is_back) {
                        *back = Some(number);
                    }
                }
            }
            self.post(wc.wr_id.0)?;
        }
        if taken > 0 {
            let first = self.seen.times.map_or(now, |(first, _)| first);
            self.seen.times = Some((first, now));
        }
        Ok(taken)
    }

    /// Returns the number of a message; `None` if another publisher sent it.
    fn number(&self, wc: &WorkCompletion) -> Result<Option<u64>, Fault> {
        let payload = wc.wr_id.0 * self.room + u64::from(GRH);
        let (mut number, mut key) = ([0; 8], [0; 8]);
        self.kit.mr.read(payload, &mut number)?;
        self.kit.mr.read(payload + 8, &mut key)?;
        let number = u64::from_le_bytes(number);
        let is_whole = u64::from(wc.byte_len) == self.multicast.size.get() + u64::from(GRH);
        let is_own = is_whole && key == self.key && number < self.multicast.messages;
        Ok(is_own.then_some(number))
    }

    /// Follows the publisher's next word, if there is one. Returns true at its end.
    fn hear(&mut self) -> Result<bool, Fault> {
        let word = self.members.receive_within(PUBLISHER, Span::ZERO)?;
        match word.as_deref() {
            Some(DONE) => return Ok(true),
            Some(QUARTER) => {
                self.qp.leave_mcast(self.multicast.group)?;
                self.seen.absence = Some((self.seen.next, None));
            }
            Some(HALF) => {
                self.join()?;
                self.churn = Churn::Stays;
            }
            _ => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(numbers: &[u64]) -> Seen {
        let mut seen = Seen::new(100);
        numbers.iter().for_each(|n| seen.add(*n));
        seen
    }

    #[test]
    fn each_message_counts_once_and_what_did_not_arrive_is_lost() {
        let tally = seen(&[0, 1, 3, 2, 3, 99]).into_tally(100);
        let counts = (tally.messages, tally.lost, tally.away);
        assert_eq!(counts, (5, 95, 0));
        assert_eq!((tally.duplicates, tally.reordered), (1, 1));
    }

    #[test]
    fn what_is_sent_while_a_subscriber_is_away_is_not_lost() {
        let mut back = seen(&[0, 2, 60, 62]);
        back.absence = Some((3, Some(60)));
        let tally = back.into_tally(64);
        assert_eq!((tally.messages, tally.away, tally.lost), (4, 57, 3));
        let mut gone = seen(&[0, 1]);
        gone.absence = Some((2, None));
        assert_eq!(gone.into_tally(10).away, 8);
    }
}
