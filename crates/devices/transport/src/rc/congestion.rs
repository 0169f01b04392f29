//! Adapts the window to the path. InfiniBand leaves open how many packets a requester may have in flight; too few leave a
//! long path empty, and each one too many waits in a queue.
//!
//! The round trip of one packet at a time is measured. The window grows to twice the number of packets that the path
//! carries in its shortest round trip (delay × bandwidth), which is what was acknowledged in this round trip, reduced by
//! as much as packets waited in queues. So it doubles in each round trip until queues make the round trip twice as long
//! as the shortest one. Over a short path this is less than the smallest window. It does not become smaller when a round
//! trip is longer: often that is a thread at either end that waited for a core.
//!
//! With go-back-N, what follows a lost packet is sent for nothing. So going back halves the window, and beyond half of
//! the window at the last loss it grows by an eighth in a round trip (congestion avoidance of TCP).

use adverb_units::{Span, Time};

use crate::sequence::{MAX_OUTSTANDING, Seq};

/// Delays × bandwidths that may be in flight.
const GAIN: u64 = 2;
/// Part of the window by which it grows in a round trip, beyond half of the window at the last loss.
const AVOIDANCE: u64 = 8;

/// The size of the window.
#[derive(Debug)]
pub(super) struct Congestion {
    /// The first size and the smallest one.
    smallest: u64,
    largest: u64,
    size: u64,
    /// Half of the window at the last loss.
    threshold: u64,
    shortest_round_trip: Option<Span>,
    timed: Option<Timed>,
}

/// The packet whose round trip is measured.
#[derive(Clone, Copy, Debug)]
struct Timed {
    seq: Seq,
    sent: Time,
    /// The first packet that was not acknowledged then.
    unacked: Seq,
}

impl Congestion {
    /// Begins with `smallest` packets; `largest` is not below it.
    pub(super) fn new(smallest: u32, largest: u32) -> Self {
        let smallest = u64::from(smallest).clamp(1, MAX_OUTSTANDING);
        let largest = u64::from(largest).clamp(smallest, MAX_OUTSTANDING);
        Congestion {
            smallest,
            largest,
            size: smallest,
            threshold: largest,
            shortest_round_trip: None,
            timed: None,
        }
    }

    /// Returns the number of packets that may be in flight.
    #[inline]
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Records that packet `seq`, which the peer acknowledges at once, is sent for the first time, and that the packets
    /// before `unacked` are acknowledged.
    #[inline]
    pub(super) fn sent(&mut self, sent: Time, seq: Seq, unacked: Seq) {
        if self.timed.is_none() && self.smallest < self.largest {
            self.timed = Some(Timed { seq, sent, unacked });
        }
    }

    /// Records that the packets before `to` were acknowledged.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Time, to: Seq) {
        if let Some(timed) = self.timed.take_if(|timed| timed.seq < to) {
            self.adapt(now.since(timed.sent), to.since(timed.unacked));
        }
    }

    /// Adapts the window after a round trip in which this number of packets was acknowledged.
    fn adapt(&mut self, round_trip: Span, packets: u64) {
        let round_trip = round_trip.max(Span::from_ps(1));
        let shortest =
            (self.shortest_round_trip).map_or(round_trip, |so_far| so_far.min(round_trip));
        self.shortest_round_trip = Some(shortest);
        if packets < self.size / 2 {
            return; // the program, not the window, limits what is in flight
        }
        let [part, whole] = [shortest, round_trip].map(|span| u128::from(span.as_ps()));
        let fitting = (u128::from(GAIN * packets) * part / whole) as u64;
        let most = match self.size < self.threshold {
            true => self.threshold,
            false => self.size + self.size / AVOIDANCE,
        };
        self.size = fitting.min(most).clamp(self.size, self.largest);
    }

    /// Halves the window after a loss.
    pub(super) fn lost(&mut self) {
        self.size = (self.size / 2).max(self.smallest);
        self.threshold = self.size;
        self.timed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Numbering;
    use adverb_verbs::Psn;

    /// Sends windows over a path that holds `path` packets and has a queue of any length; returns their sizes.
    fn sizes(congestion: &mut Congestion, path: u64, round_trips: usize) -> Vec<u64> {
        let mut at = Numbering::new(Psn::new(0)).first();
        let mut now = Time::ZERO;
        let mut next = || {
            let size = congestion.size();
            congestion.sent(now, at + (size - 1), at);
            now = now + Span::from_us(size.max(path));
            at += size;
            congestion.acknowledged(now, at);
            congestion.size()
        };
        (0..round_trips).map(|_| next()).collect()
    }

    #[test]
    fn the_window_grows_to_twice_the_path() {
        let mut congestion = Congestion::new(16, 10_000);
        assert_eq!(sizes(&mut congestion, 100, 6), [32, 64, 128, 200, 200, 200]);
        assert_eq!(
            sizes(&mut Congestion::new(16, 100), 1000, 4),
            [32, 64, 100, 100]
        );
    }

    #[test]
    fn the_window_of_a_short_path_stays() {
        let mut congestion = Congestion::new(16, 100);
        let first = Numbering::new(Psn::new(0)).first();
        congestion.sent(Time::ZERO, first, first);
        congestion.acknowledged(Time::ZERO + Span::from_us(4), first + 4);
        assert_eq!(sizes(&mut congestion, 4, 4), [16; 4]);
    }

    #[test]
    fn a_loss_halves_the_window_and_slows_its_growth() {
        let mut congestion = Congestion::new(16, 128);
        sizes(&mut congestion, 1000, 3);
        congestion.lost();
        assert_eq!(congestion.size(), 64);
        assert_eq!(sizes(&mut congestion, 1000, 3), [72, 81, 91]);
        for _ in 0..9 {
            congestion.lost();
        }
        assert_eq!(congestion.size(), 16);
    }

    #[test]
    fn a_program_that_sends_little_does_not_change_the_window() {
        let mut congestion = Congestion::new(16, 128);
        let first = Numbering::new(Psn::new(0)).first();
        congestion.sent(Time::ZERO, first, first);
        congestion.acknowledged(Time::ZERO + Span::from_ms(10), first + 1);
        assert_eq!(congestion.size(), 16);
    }
}
