//! A long or bad path behind a machine's port: delay, jitter, rate, queue and loss of the packets that it sends, as
//! [`Impairment`] describes them.
//!
//! The model sends messages, not packets: the path takes a message's packets together, and returns when the first and
//! the last of them arrive, and the first one that is lost. Corrupt packets are lost, because the receiver drops them.

use std::collections::VecDeque;

use adverb_sim::{Random, Seed};
use adverb_units::{Span, Time};
use adverb_verbs::Impairment;

use crate::machine::Machine;
use crate::rate::ByteTime;

/// The packets of a message, as they leave the last switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packets {
    /// When the first one has arrived at the path.
    pub(crate) first: Time,
    /// When the last one has.
    pub(crate) last: Time,
    pub(crate) count: u64,
    /// Bytes of the first one.
    pub(crate) head: u64,
    /// Bytes of all.
    pub(crate) wire: u64,
}

/// When a message's packets arrive behind the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// Index of the first packet that is lost.
    pub(crate) lost: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct LongPath {
    how: Impairment,
    /// Round trip of the network at both of its ends, and of their NICs.
    network: Span,
    random: Random,
    /// Transmission time of a byte; `None` without a rate.
    byte: Option<ByteTime>,
    /// Probability that a packet does not arrive intact.
    loss: f64,
    queued: Queue,
    /// When the last packet before arrives: packets keep their order.
    last: Time,
    /// Packets that were lost, or found the queue full.
    pub(crate) lost: u64,
}

impl LongPath {
    /// A path behind the port of `machine`.
    pub(crate) fn new(how: Impairment, machine: &Machine) -> Self {
        let params = &machine.preset.params;
        let (link, nic) = (&params.link, &params.nic);
        let way = link.way() + nic.tx_ns + nic.rx_ns;
        LongPath::behind(how, way * 2, machine.index.0)
    }

    fn behind(how: Impairment, network: Span, machine: u32) -> Self {
        let rate = |rate: adverb_units::BitRate| ByteTime::of_rate(rate.get() as f64 / 8.0);
        LongPath {
            how,
            network,
            random: Seed(how.seed).stream("path", machine.into()),
            byte: how.rate.map(rate),
            loss: 1.0 - (1.0 - how.loss.get()) * (1.0 - how.corrupt.get()),
            queued: Queue::default(),
            last: Time::ZERO,
            lost: 0,
        }
    }

    /// Takes the packets of a message.
    pub(crate) fn cross(&mut self, packets: Packets) -> Crossing {
        let (mut first, mut last) = (packets.first, packets.last);
        let mut overflow = None;
        if let Some(byte) = self.byte {
            overflow = self.overflow(packets, byte);
            let begin = first.max(self.queued.free);
            let (count, end) = match overflow {
                None => (packets.count, last.max(begin + byte.of(packets.wire))),
                Some(Overflow { sent, .. }) => {
                    (sent, begin + byte.of(packets.wire) / packets.count * sent)
                }
            };
            self.queued.push(begin, end, count);
            first = begin + byte.of(packets.head);
            last = end.max(first);
        }
        let delay = self.delay();
        self.last = self.last.max(last + delay);
        let overflow = overflow.map(|overflow| overflow.first);
        let lost = match (self.first_lost(packets.count), overflow) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.lost += u64::from(lost.is_some());
        Crossing {
            first: (first + delay).min(self.last),
            last: self.last,
            lost,
        }
    }

    /// Takes packets that TCP resends until all have arrived, in `rounds` round trips more. Nothing waits for them, except
    /// what their stream's order makes wait; returns when they arrive.
    pub(crate) fn cross_intact(&mut self, packets: Packets, rounds: u32) -> (Time, Time) {
        let loss = std::mem::replace(&mut self.loss, 0.0);
        let crossing = self.cross(packets);
        self.loss = loss;
        // A full queue delays like any other loss.
        let rounds = u64::from(rounds) + u64::from(crossing.lost.is_some());
        (crossing.first, crossing.last + self.round_trip() * rounds)
    }

    fn queue(&self) -> u32 {
        self.how.queue.unwrap_or(Impairment::DEFAULT_QUEUE)
    }

    /// Returns which packets find the queue full, if any: the message's packets arrive faster than they are sent.
    fn overflow(&mut self, packets: Packets, byte: ByteTime) -> Option<Overflow> {
        let service = byte.of(packets.wire).as_ns_f64() / packets.count as f64;
        let room = f64::from(self.queue()) - self.queued.packets(packets.first);
        let arriving = (packets.last - packets.first).as_ns_f64() / service;
        let growth = (1.0 - arriving / packets.count as f64).max(0.0);
        let first = match room < 1.0 {
            true => 0,
            false if growth == 0.0 => return None,
            false => (room / growth).ceil() as u64,
        };
        let sent = ((room.max(0.0) + arriving) as u64).min(packets.count - 1);
        (first < packets.count).then_some(Overflow { first, sent })
    }

    /// Returns the delay of a message: all its packets vary alike.
    fn delay(&mut self) -> Span {
        let jitter = self.how.jitter.as_ps();
        let width = (2 * jitter).max(1);
        (self.how.delay + Span::from_ps(self.random.below(width))).saturating_sub(self.how.jitter)
    }

    /// Returns the index of the first of `count` packets that is lost.
    fn first_lost(&mut self, count: u64) -> Option<u64> {
        if self.loss == 0.0 {
            return None;
        }
        // The number of packets before the first loss has a geometric distribution.
        let index = (1.0 - self.random.unit()).ln() / (1.0 - self.loss).ln();
        (index < count as f64).then_some(index as u64)
    }

    /// Returns in how many round trips a sender that resends only what is lost (TCP with SACK) delivers `count` packets,
    /// after the first attempt, and how many packets it resends.
    pub(crate) fn resent(&mut self, count: u64) -> (u32, u64) {
        let (mut rounds, mut resent, mut left) = (0, 0, count);
        while self.loss > 0.0 && rounds < MOST_ROUNDS {
            left = (0..left).filter(|_| self.random.unit() < self.loss).count() as u64;
            if left == 0 {
                break;
            }
            (rounds, resent) = (rounds + 1, resent + left);
        }
        self.lost += resent;
        (rounds, resent)
    }

    /// Returns the time that a packet and its answer take from NIC to NIC over paths like this one.
    pub(crate) fn round_trip(&self) -> Span {
        self.how.delay * 2 + self.network
    }
}

/// The packets of a message that do not all fit into the queue.
struct Overflow {
    /// Index of the first one that does not.
    first: u64,
    /// How many do.
    sent: u64,
}

/// The packets that wait for a rate.
#[derive(Debug, Default)]
struct Queue {
    /// Messages, in their order: when the first of its packets begins to be sent, when the last one has been, and how many
    /// they are.
    messages: VecDeque<(Time, Time, u64)>,
    /// The sum of these numbers.
    packets: u64,
    /// When the rate has sent everything.
    free: Time,
}

impl Queue {
    fn push(&mut self, begin: Time, end: Time, count: u64) {
        if count == 0 {
            return;
        }
        self.messages.push_back((begin, end, count));
        self.packets += count;
        self.free = end;
    }

    /// Returns how many packets wait at `now`, a part of the one that is being sent.
    fn packets(&mut self, now: Time) -> f64 {
        while let Some(&(begin, end, count)) = self.messages.front() {
            if end > now {
                let sent = now.since(begin).as_ns_f64() / (end - begin).as_ns_f64();
                return self.packets as f64 - sent * count as f64;
            }
            self.messages.pop_front();
            self.packets -= count;
        }
        0.0
    }
}

/// Bounds the attempts where all packets are lost.
const MOST_ROUNDS: u32 = 1000;

#[cfg(test)]
mod tests {
    use adverb_verbs::Probability;

    use super::*;

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    fn path(change: impl Fn(&mut Impairment)) -> LongPath {
        let mut how = Impairment::default();
        change(&mut how);
        LongPath::behind(how, Span::ZERO, 0)
    }

    fn packets(us: u64, count: u64) -> Packets {
        Packets {
            first: at(us),
            last: at(us),
            count,
            head: 1000,
            wire: 1000 * count,
        }
    }

    #[test]
    fn each_message_is_delayed_from_its_own_time() {
        let mut path = path(|how| how.delay = Span::from_ms(1));
        for us in [0, 1, 5, 5] {
            let crossing = path.cross(packets(us, 1));
            assert_eq!((crossing.last, crossing.lost), (at(1000 + us), None));
        }
    }

    #[test]
    fn a_rate_sends_one_message_after_the_other_and_a_full_queue_loses_packets() {
        // 1000 B take 1 µs.
        let mut path = path(|how| {
            how.rate = "8Gbit/s".parse().ok();
            how.queue = Some(4);
        });
        let crossing = path.cross(packets(0, 3));
        assert_eq!((crossing.first, crossing.last), (at(1), at(3)));
        assert_eq!(path.cross(packets(0, 1)).last, at(4));
        assert_eq!(path.cross(packets(0, 1)).lost, Some(0));
        assert_eq!(path.cross(packets(20, 10)).lost, Some(4));
    }

    #[test]
    fn the_queue_holds_packets_of_any_size() {
        let mut path = path(|how| {
            how.rate = "8Gbit/s".parse().ok();
            how.queue = Some(4);
        });
        let small = |us| Packets {
            head: 10,
            wire: 10,
            ..packets(us, 1)
        };
        assert_eq!(path.cross(packets(0, 3)).lost, None);
        assert_eq!(path.cross(small(0)).lost, None);
        assert_eq!(path.cross(small(0)).lost, Some(0));
        // One has left.
        assert_eq!(path.cross(packets(1, 3)).lost, Some(1));
    }

    #[test]
    fn packets_are_lost_with_the_given_probability() {
        let mut path = path(|how| how.loss = Probability::per_million(10_000));
        let lost = (0..10_000).filter(|us| path.cross(packets(*us, 1)).lost.is_some());
        let lost = lost.count();
        assert!((50..=150).contains(&lost), "{lost}");
        // 1 - 0.99^100 = 63 %.
        let lost = (0..1_000).filter(|us| path.cross(packets(10_000 + us, 100)).lost.is_some());
        let lost = lost.count();
        assert!((550..=710).contains(&lost), "{lost}");
    }
}
