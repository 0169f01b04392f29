//! How long a cell takes: expected, and at most.

use adverb_results::{Program, Transport};
use adverb_units::{Bytes, Span};

use super::{CellSpec, Length};

/// Minimum and maximum duration of a warm-up that the program chooses.
pub(crate) const WARM_UP: (Span, Span) = (Span::from_ms(2), Span::from_ms(50));
/// The warm-up takes 1 / `WARM_UP_SHARE` of the measured time or messages.
pub(crate) const WARM_UP_SHARE: u64 = 10;
/// Minimum messages or rounds of a repetition: with fewer, its beginning and end dominate ...
const LEAST_MESSAGES: u64 = 16;
/// ... and at least this many per buffer.
const LEAST_PER_BUFFER: u64 = 4;
/// Minimum round trips of the path's delay in a repetition: with fewer, a stream fills and drains the path most of the
/// time.
const LEAST_ROUND_TRIPS: u64 = 20;
/// Minimum packets that the path is expected to lose in all repetitions in virtual time: what losses cost is a matter of
/// chance.
const LEAST_LOSSES: f64 = 10.0;
/// Longest waits for a retransmission in all repetitions in virtual time, because a few losses cost most of the time ...
const WAITS: u64 = 20;
/// ... but not more packets than these.
const MOST_PACKETS: u64 = 100_000;
/// Length of a packet, for estimates.
const PACKET: u64 = Bytes::kib(4).get();
/// Maximum duration of a cell that is prolonged for these minimums.
pub(crate) const LONGEST_CELL: Span = Span::from_secs(60);

impl CellSpec {
    /// Returns the minimum number of messages or rounds of a repetition whose length is a duration.
    pub(crate) fn least(&self) -> u64 {
        let in_flight = u64::from(self.params.in_flight());
        match self.program {
            Program::Ping => LEAST_MESSAGES,
            Program::Blast => LEAST_MESSAGES.max(LEAST_PER_BUFFER * in_flight),
        }
    }

    /// Returns the same in virtual time.
    pub(crate) fn least_in_virtual_time(&self) -> u64 {
        let path = self.params.path.impairment.unwrap_or_default();
        if !path.loses() {
            return self.least();
        }
        let packets = LEAST_LOSSES / (path.loss.get() + path.corrupt.get());
        self.least().max(self.share(packets.ceil() as u64))
    }

    /// Returns how many messages or rounds of each repetition have `packets` packets in all.
    fn share(&self, packets: u64) -> u64 {
        let each = self.packets() * self.program.messages_per_iter();
        packets.div_ceil(each * u64::from(self.params.repetitions))
    }

    /// Returns the packets of a message.
    fn packets(&self) -> u64 {
        self.params.size.get().div_ceil(PACKET).max(1)
    }

    /// Returns what the path's delay adds to a round trip.
    pub(crate) fn round_trip_delay(&self) -> Span {
        let impairment = self.params.path.impairment.unwrap_or_default();
        impairment.delay * 2
    }

    /// Returns the duration of a repetition of a cell whose repetitions together take `all`.
    pub(crate) fn repetition(&self, all: Span) -> Span {
        let wanted = all / u64::from(self.params.repetitions);
        wanted.max(self.round_trip_delay() * LEAST_ROUND_TRIPS)
    }

    /// Returns until when a repetition is prolonged in virtual time if packets are lost, or until how many messages or
    /// rounds, whichever is first.
    pub(crate) fn prolonged_for_losses(&self) -> Option<(Span, u64)> {
        let p = &self.params;
        let is_stream = p.traffic.transport == Transport::Tcp;
        let waits = p.path.longest_wait(is_stream)? * WAITS / u64::from(p.repetitions);
        Some((waits, self.share(MOST_PACKETS)))
    }

    /// Returns the messages or rounds of all repetitions, `least` or more in each, if each takes `message` and the path has
    /// no delay, or what is in flight during a round trip on a path with one.
    fn messages(&self, message: Span, least: u64) -> u64 {
        let p = &self.params;
        let repetitions = u64::from(p.repetitions);
        match p.length {
            Length::Iters(n) => n.saturating_mul(repetitions),
            Length::Duration(all) => {
                let times = |span: Span| span.as_ps() / message.as_ps().max(1);
                let affordable = times(all.max(LONGEST_CELL)).max(repetitions);
                let wanted = self.repetition(all);
                let round_trips = wanted.as_ps().checked_div(self.round_trip_delay().as_ps());
                let on_the_path =
                    round_trips.map_or(u64::MAX, |trips| trips * u64::from(p.in_flight()));
                let timed = times(wanted).min(on_the_path) * repetitions;
                timed.max((least * repetitions).min(affordable))
            }
        }
    }

    /// Estimates the duration of the cell on a real device, with start-up of its two roles, their memory, and warm-up.
    pub fn estimate(&self) -> Span {
        const START_UP: Span = Span::from_ms(60);
        const GUESS_PER_MESSAGE: Span = Span::from_us(2);
        const GUESS_PER_BYTE: Span = Span::from_ps(200);
        const MEMORY_PER_BYTE: Span = Span::from_ps(500);
        let p = &self.params;
        let message = GUESS_PER_MESSAGE + GUESS_PER_BYTE * p.size.get();
        let measured = message * self.messages(message, self.least());
        let warm_up = (measured / WARM_UP_SHARE).clamp(WARM_UP.0, WARM_UP.1);
        let memory = MEMORY_PER_BYTE * p.size.get() * u64::from(p.in_flight());
        let on_the_path = match p.length {
            Length::Duration(all) if self.round_trip_delay() > Span::ZERO => {
                self.repetition(all) * u64::from(p.repetitions)
            }
            _ => self.round_trip_delay(),
        };
        // The warm-up has two runs at least, of one message at least.
        START_UP + memory + warm_up.max(message * 2) + measured.max(on_the_path)
    }

    /// Estimates the time that it takes to simulate the cell. It grows with the number of messages and packets, because
    /// long messages are prolonged beyond the virtual time of the cell to reach their minimum number.
    pub fn simulation(&self) -> Span {
        // Measured on two cores; only the ratio matters to the progress of a study.
        const PER_MESSAGE: Span = Span::from_us(3);
        const PER_PACKET: Span = Span::from_us(3);
        // Virtual time of a message: a small one, with a few in flight, plus its bytes at 3.2 GB/s.
        const VIRTUAL_PER_MESSAGE: Span = Span::from_us(2);
        const VIRTUAL_PER_BYTE: Span = Span::from_ps(310);
        let size = self.params.size.get();
        let message = VIRTUAL_PER_MESSAGE + VIRTUAL_PER_BYTE * size;
        let messages = self.messages(message, self.least_in_virtual_time());
        (PER_MESSAGE + PER_PACKET * self.packets()) * messages
    }

    /// Returns the timeout of the cell: far above its duration even on a busy machine. A side whose wait times
    /// out ends earlier and reports what it waited for.
    pub fn timeout(&self) -> Span {
        const LEAST: Span = Span::from_secs(300);
        LEAST + self.longest()
    }

    /// Returns the duration of the cell on the slowest device.
    pub fn longest(&self) -> Span {
        /// Slower than any device: an event-driven message on a busy machine, and 100 MB/s.
        const PER_MESSAGE: Span = Span::from_us(200);
        const PER_BYTE: Span = Span::from_ns(10);
        /// Far more than a lost segment costs that is alone in flight: 200 ms.
        const PER_LOST: f64 = 2e9;
        let p = &self.params;
        let faults = p.path.impairment.unwrap_or_default();
        let lost = faults.loss.get() + faults.corrupt.get();
        let losses = match p.traffic.transport == Transport::Tcp {
            true => Span::from_ns_f64(PER_LOST * lost),
            false => Span::ZERO,
        };
        let directions = match self.program {
            Program::Ping => 2,
            Program::Blast => 1,
        };
        let message = (PER_MESSAGE + PER_BYTE * p.size.get() + losses) * directions;
        let repetitions = u64::from(p.repetitions);
        let measured = match p.length {
            Length::Duration(all) => (self.repetition(all) * 4 + message) * repetitions,
            Length::Iters(n) => message * n * repetitions,
        };
        measured + message * p.warmup.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use adverb_results::{Impairment, Opcode};

    use super::*;
    use crate::pair::testing::{blast, ping};

    #[test]
    fn timeout_exceeds_what_was_asked_for() {
        let length = Length::Duration(Span::from_secs(100));
        let long = ping(Opcode::Send, |p| p.length = length);
        assert!(long.timeout() > Span::from_secs(200));
    }

    /// A study's cell: four buffers, 90 ms.
    fn of_size(size: Bytes) -> CellSpec {
        blast(|p| {
            (p.size, p.buffers) = (size, 4);
            p.length = Length::Duration(Span::from_ms(90));
        })
    }

    #[test]
    fn the_estimate_counts_the_least_messages_of_a_long_cell() {
        let [small, large] = [Bytes::kib(1), Bytes::mib(256)].map(|size| of_size(size).estimate());
        assert!(small < Span::from_ms(200), "{small}");
        // Sixteen messages, at 5 GB/s.
        assert!(large > Span::from_ms(850), "{large}");
        let mut most = of_size(Bytes::mib(256));
        (most.params.buffers, most.params.repetitions) = (256, 5);
        assert!(most.estimate() < LONGEST_CELL * 4, "{}", most.estimate());
    }

    /// On a path of 100 ms a stream was measured while it filled and drained the path.
    #[test]
    fn a_cell_on_a_long_path_lasts_twenty_round_trips() {
        let delay = Span::from_ms(100);
        let mut cell = of_size(Bytes::kib(64));
        let short = cell.simulation();
        cell.params.path.impairment = Some(Impairment {
            delay,
            ..Impairment::default()
        });
        let all = Span::from_ms(90);
        assert_eq!(cell.repetition(all), delay * 2 * LEAST_ROUND_TRIPS);
        assert!(cell.estimate() > delay * 2 * LEAST_ROUND_TRIPS);
        assert!(cell.timeout() > Span::from_secs(310));
        // Four messages in a round trip.
        assert!(cell.simulation() < short, "{}", cell.simulation());
    }

    #[test]
    fn a_simulation_takes_as_long_as_its_packets() {
        let sizes = [Bytes::kib(1), Bytes::kib(64), Bytes::mib(256)];
        let [small, medium, large] = sizes.map(|size| {
            let mut cell = of_size(size);
            cell.params.length = Length::Duration(Span::from_ms(5));
            cell.simulation()
        });
        assert!(medium < small * 2, "{medium}, {small}");
        assert!(large > small * 100, "{large}, {small}");
    }
}
