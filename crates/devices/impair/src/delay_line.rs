//! A long or slow link: holds sent packets back, each by its own time, as `tc-netem` does.
//!
//! A packet first waits for the link to send the earlier ones and then itself at the link's rate, and then for the delay.
//! The delay counts from that moment, so that the packets of a burst arrive as far apart as they were sent. Packets
//! keep their order: one whose delay varies below its predecessor's is sent together with that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use adverb_units::{Bytes, Span};
use adverb_verbs::Impairment;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore as _, SeedableRng as _};

/// Maximum number of bytes held, so that a sender of datagrams that nothing slows down does not exhaust the memory.
const MOST_BYTES: usize = 1 << 28;
/// The stream of random numbers, apart from the one that chooses the faults.
const STREAM: u64 = 1;

/// A packet on the link.
#[derive(Debug)]
struct Held<W> {
    route: W,
    bytes: Vec<u8>,
    /// When the link has sent it.
    sent: Instant,
    /// When it arrives.
    due: Instant,
}

/// The packets on the link. `W` is the route of a packet.
#[derive(Debug)]
pub(super) struct DelayLine<W> {
    how: Impairment,
    random: ChaCha8Rng,
    /// In the order in which they are due.
    held: VecDeque<Held<W>>,
    bytes: usize,
    /// Packets that found the queue full.
    pub(super) overflows: u64,
}

impl<W> DelayLine<W> {
    pub(super) fn new(how: Impairment) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(how.seed);
        random.set_stream(STREAM);
        DelayLine {
            how,
            random,
            held: VecDeque::new(),
            bytes: 0,
            overflows: 0,
        }
    }

    /// Returns the line with another delay and rate for further packets.
    pub(super) fn with(self, how: Impairment) -> Self {
        DelayLine {
            held: self.held,
            bytes: self.bytes,
            overflows: self.overflows,
            ..Self::new(how)
        }
    }

    /// Adds a packet that was sent at `now`, with `around` bytes around it on the wire; drops it if the queue is full.
    pub(super) fn push(&mut self, now: Instant, (route, around): (W, usize), bytes: Vec<u8>) {
        let jitter = self.jitter();
        let waiting = self.held.len() - self.held.partition_point(|held| held.sent <= now);
        let queue = self.how.queue.unwrap_or(Impairment::DEFAULT_QUEUE);
        if waiting >= queue as usize || self.bytes + bytes.len() > MOST_BYTES {
            self.overflows += 1;
            return;
        }
        let size = Bytes::new((bytes.len() + around) as u64);
        let last = self.held.back();
        let sent = match self.how.rate {
            None => now,
            Some(rate) => last.map_or(now, |last| last.sent.max(now)) + rate.time_of(size).into(),
        };
        let delay: Duration = (self.how.delay + jitter)
            .saturating_sub(self.how.jitter)
            .into();
        let due = last.map_or(sent + delay, |last| last.due.max(sent + delay));
        self.bytes += bytes.len();
        self.held.push_back(Held {
            route,
            bytes,
            sent,
            due,
        });
    }

    /// Returns a random span from 0 to twice the jitter.
    fn jitter(&mut self) -> Span {
        let width = 2 * u128::from(self.how.jitter.as_ps());
        Span::from_ps(((u128::from(self.random.next_u64()) * width) >> 64) as u64)
    }

    /// Returns when the next packet is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.front().map(|held| held.due)
    }

    /// Passes the packets that are due to `pass`, in order, until it returns false.
    pub(super) fn release(&mut self, now: Instant, mut pass: impl FnMut(&W, &[u8]) -> bool) {
        while let Some(held) = self.held.front()
            && held.due <= now
            && pass(&held.route, &held.bytes)
        {
            self.bytes -= held.bytes.len();
            self.held.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;
    const AROUND: usize = 66;

    fn line(how: impl Fn(&mut Impairment)) -> DelayLine<usize> {
        let mut all = Impairment::default();
        how(&mut all);
        DelayLine::new(all)
    }

    /// Sends packets at these microseconds; returns number and microsecond of each that arrives.
    fn pass(line: &mut DelayLine<usize>, sent: &[u64]) -> Vec<(usize, u64)> {
        let began = Instant::now();
        for (n, at) in sent.iter().enumerate() {
            let now = began + Duration::from_micros(*at);
            line.push(now, (n, AROUND), vec![0; BYTES]);
        }
        let mut arrived = Vec::new();
        while let Some(due) = line.next_due() {
            line.release(due, |n, _| {
                arrived.push((*n, (due - began).as_micros() as u64));
                true
            });
        }
        assert_eq!(line.bytes, 0);
        arrived
    }

    #[test]
    fn each_packet_is_delayed_from_its_own_time() {
        let mut line = line(|how| how.delay = Span::from_ms(1));
        let arrived = pass(&mut line, &[0, 1, 5, 5, 9]);
        assert_eq!(
            arrived,
            [(0, 1000), (1, 1001), (2, 1005), (3, 1005), (4, 1009)]
        );
    }

    #[test]
    fn packets_are_sent_one_after_the_other_at_the_rate() {
        let rate = format!("{}bit", 8_000_000 * (BYTES + AROUND));
        let mut line = line(|how| {
            how.rate = rate.parse().ok();
            how.delay = Span::from_us(10);
        });
        let arrived = pass(&mut line, &[0, 0, 0, 20]);
        assert_eq!(arrived, [(0, 11), (1, 12), (2, 13), (3, 31)]);
    }

    #[test]
    fn a_full_queue_drops_packets_that_wait_but_not_those_on_the_way() {
        let rate = format!("{}bit", 8_000_000 * (BYTES + AROUND));
        let mut line = line(|how| {
            how.rate = rate.parse().ok();
            how.delay = Span::from_ms(1);
            how.queue = Some(2);
        });
        let arrived = pass(&mut line, &[0, 0, 0, 2, 2, 2]);
        let numbers: Vec<_> = arrived.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [0, 1, 3, 4]);
        assert_eq!(line.overflows, 2);
    }

    #[test]
    fn jitter_varies_the_delay_and_keeps_the_order() {
        let jittered = |seed| {
            let mut line = line(|how| {
                how.delay = Span::from_us(100);
                how.jitter = Span::from_us(50);
                how.seed = seed;
            });
            // Far apart, so that none waits for its predecessor.
            let sent: Vec<u64> = (0..1000).map(|n| 200 * n).collect();
            let arrived = pass(&mut line, &sent);
            let delay = |(n, at): &(usize, u64)| at - sent[*n];
            let delays: Vec<u64> = arrived.iter().map(delay).collect();
            assert!(delays.iter().all(|delay| (50..=150).contains(delay)));
            assert!(delays.iter().min() < Some(&55) && delays.iter().max() > Some(&145));
            delays
        };
        assert_eq!(jittered(1), jittered(1));
        assert_ne!(jittered(1), jittered(2));
        let mut line = line(|how| {
            how.delay = Span::from_us(100);
            how.jitter = Span::from_us(50);
        });
        let arrived = pass(&mut line, &(0..1000).collect::<Vec<_>>());
        assert!(arrived.is_sorted());
    }

    #[test]
    fn memory_is_bounded_without_a_rate() {
        let mut line = line(|how| how.delay = Span::from_secs(1));
        let now = Instant::now();
        let most = MOST_BYTES / (1 << 20);
        for n in 0..=most {
            line.push(now, (n, AROUND), vec![0; 1 << 20]);
        }
        assert_eq!((line.held.len(), line.overflows), (most, 1));
    }
}
