//! The link between root port and NIC: TLPs, both directions, reads in flight.

use adverb_units::{Span, Time};

use crate::params::Pcie as Params;
use crate::rate::ByteTime;
use crate::resource::{Server, Slots};
use crate::trace::{Act, Subject, Tracer};

/// Bytes around a TLP, on the wire.
#[derive(Clone, Copy, Debug)]
struct Overhead {
    /// Of a memory read or write request.
    request: u64,
    /// Of a completion with data.
    completion: u64,
}

/// The line that host memory is counted in.
pub(crate) const LINE: u64 = 64;

/// What the link has carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Lines written to the NIC by MMIO, doorbells among them.
    pub(crate) mmio_writes: u64,
    /// Lines that the NIC read from memory.
    pub(crate) read_lines: u64,
    /// Lines that the NIC wrote to memory.
    pub(crate) write_lines: u64,
}

/// When the data of a read come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// When the first ones had come if nothing else were on the link.
    pub(crate) idle: Time,
}

/// One NIC's link.
#[derive(Debug)]
pub(crate) struct Pcie {
    /// NIC to memory.
    up: Server,
    /// Memory to NIC.
    down: Server,
    /// Reads of few bytes, among others.
    few: Server,
    /// CPU to NIC.
    mmio: Server,
    /// Time that read requests took of the way up, and MMIO of the way down, since the last packet
    /// with data.
    up_debt: Span,
    down_debt: Span,
    tags: Slots,
    byte: ByteTime,
    overhead: Overhead,
    max_payload: u64,
    max_read_request: u64,
    completion: u64,
    one_way: Span,
    pub(crate) traffic: Traffic,
    pub(crate) trace: Tracer,
}

/// Bandwidth of a lane in each direction, after encoding, in bytes per second.
fn lane(generation: u32) -> f64 {
    match generation {
        1 => 2.5e9 * 8.0 / 10.0 / 8.0,
        2 => 5e9 * 8.0 / 10.0 / 8.0,
        3 => 8e9 * 128.0 / 130.0 / 8.0,
        4 => 16e9 * 128.0 / 130.0 / 8.0,
        5 => 32e9 * 128.0 / 130.0 / 8.0,
        // 242 of 256 bytes of a flit are TLPs and DLLPs.
        _ => 64e9 * 242.0 / 256.0 / 8.0,
    }
}

impl Pcie {
    pub(crate) fn new(params: &Params) -> Self {
        // Frames are 2 B shorter on the links with 8b/10b encoding: one start and one end symbol
        // instead of a token of four bytes.
        let overhead = if params.generation < 3 {
            Overhead {
                request: 24,
                completion: 20,
            }
        } else {
            Overhead {
                request: 26,
                completion: 22,
            }
        };
        let bandwidth = lane(params.generation) * f64::from(params.lanes.get()) * params.efficiency;
        Pcie {
            up: Server::default(),
            down: Server::default(),
            few: Server::default(),
            mmio: Server::default(),
            up_debt: Span::ZERO,
            down_debt: Span::ZERO,
            tags: Slots::new(params.read_tags as usize),
            byte: ByteTime::of_rate(bandwidth),
            overhead,
            max_payload: params.max_payload_bytes.get().into(),
            max_read_request: params.max_read_request_bytes.get().into(),
            completion: params.completion_bytes.get().into(),
            one_way: Span::from_secs_f64(params.one_way_ns * 1e-9),
            traffic: Traffic::default(),
            trace: Tracer::default(),
        }
    }

    /// The same link, its root port's memory one hop between sockets farther.
    pub(crate) fn across(mut self, hop: Span) -> Self {
        self.one_way += hop;
        self
    }

    /// What a read of `bytes` takes on an idle link.
    pub(crate) fn round_trip(&self, bytes: u64, latency: Span) -> Span {
        let completions = bytes.div_ceil(self.completion);
        let wire = self.overhead.request + bytes + completions * self.overhead.completion;
        self.one_way * 2 + latency + self.byte.of(wire)
    }

    /// One-way latency, without the time that the bytes take.
    pub(crate) fn way(&self) -> Span {
        self.one_way
    }

    /// Of `bytes` that the CPU has written to the NIC the first ones come at `at`; returns when all are
    /// there.
    ///
    /// They do not wait for answers that are on their way down; what they take of the bandwidth, the
    /// next answer finds missing.
    pub(crate) fn mmio(&mut self, at: Time, bytes: u64) -> Time {
        let tlps = bytes.div_ceil(LINE).max(1);
        self.traffic.mmio_writes += tlps;
        let span = self.byte.of(bytes + tlps * self.overhead.request);
        self.down_debt += span;
        let end = self.mmio.serve(at, span);
        self.trace.note(Act::MmioData(bytes), at, end);
        end
    }

    /// The NIC writes `bytes` to memory, `delay` after it was decided at `at`; returns when they can be
    /// seen there.
    pub(crate) fn write(&mut self, at: Time, delay: Span, bytes: u64) -> Time {
        self.traffic.write_lines += bytes.div_ceil(LINE);
        let wire = bytes + bytes.div_ceil(self.max_payload) * self.overhead.request;
        let debt = std::mem::take(&mut self.up_debt);
        let span = self.byte.of(wire) + debt;
        let goes = self.up.begin(at, span) + delay;
        let seen = goes + span + self.one_way;
        let act = Act::Write(self.trace.subject(), bytes);
        self.trace.note(Act::PcieWait, at + delay, goes);
        self.trace.note(act, goes, seen);
        seen
    }

    /// What writing `bytes` takes on an idle link, until they can be seen.
    pub(crate) fn write_time(&self, bytes: u64) -> Span {
        let wire = bytes + bytes.div_ceil(self.max_payload) * self.overhead.request;
        self.byte.of(wire) + self.one_way
    }

    /// Memory takes what was written last only at `until`; writes keep their order and wait.
    pub(crate) fn hold_writes(&mut self, until: Time) {
        self.up.serve(until, Span::ZERO);
    }

    /// When the NIC may begin a write at the earliest, asking at `at`: it is ahead of memory by no more
    /// than what is on the way.
    #[inline]
    pub(crate) fn admit_write(&self, at: Time) -> Time {
        at + (self.up.free() - at).saturating_sub(self.one_way)
    }

    /// The NIC reads `bytes`, `delay` after it was decided at `at`, from memory that answers after
    /// `latency`.
    pub(crate) fn read(&mut self, at: Time, delay: Span, bytes: u64, latency: Span) -> Arrival {
        self.traffic.read_lines += bytes.div_ceil(LINE);
        let requests = bytes.div_ceil(self.max_read_request).max(1);
        let request = self.byte.of(self.overhead.request);
        self.up_debt += request * requests;
        let start = self.tags.admit(at);
        let completions = bytes.div_ceil(self.completion);
        let wire = self.byte.of(bytes + completions * self.overhead.completion);
        let head = bytes.min(self.completion) + self.overhead.completion;
        let debt = std::mem::take(&mut self.down_debt);
        // All reads take the same way, so they keep their order: the answer's place in the stream is
        // settled now, and comes when the request has been there.
        let begin = self.down.begin(start, wire + debt) + debt;
        let round_trip = request + self.one_way * 2 + latency;
        let way = delay + round_trip;
        self.tags.occupy(begin + wire + round_trip);
        let arrival = Arrival {
            first: begin + self.byte.of(head) + way,
            last: begin + wire + way,
            idle: at + self.byte.of(head) + way,
        };
        let asked = [at + delay, begin + delay];
        self.note_read(asked, bytes, (request, latency), arrival);
        arrival
    }

    /// The same of few bytes, among many: of data that were asked for before they wait only for as many
    /// as can be asked for at a time. Returns when the last byte comes.
    pub(crate) fn read_few(&mut self, at: Time, delay: Span, bytes: u64, latency: Span) -> Time {
        let asked = self.tags.count() as u64 * self.max_read_request;
        let completions = bytes.div_ceil(self.completion);
        let wire = self.byte.of(bytes + completions * self.overhead.completion);
        let begin = at.max(self.down.free());
        let wait = (begin - at).min(self.byte.of(asked));
        // Among themselves they keep their order.
        let early = begin - self.few.begin(at + wait, wire);
        let arrival = self.read(at, delay, bytes, latency);
        at + (arrival.last - at).saturating_sub(early)
    }
}

impl Pcie {
    /// What the next access is for.
    #[inline]
    pub(crate) fn about(&mut self, subject: Subject) -> &mut Self {
        self.trace.about(subject);
        self
    }

    #[inline]
    fn note_read(
        &mut self,
        [asked, goes]: [Time; 2],
        bytes: u64,
        (request, latency): (Span, Span),
        arrival: Arrival,
    ) {
        let subject = self.trace.subject();
        let there = goes + request + self.one_way;
        let answered = there + latency;
        let Arrival { first, last, .. } = arrival;
        self.trace.note(Act::PcieWait, asked, goes);
        self.trace.note(Act::ReadRequest(subject), goes, there);
        self.trace.note(Act::MemoryRead(subject), there, answered);
        let data = Act::ReadData(subject, bytes);
        self.trace.note(data, answered, first);
        self.trace.note(Act::ReadRest(subject), first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::PowerOfTwo;

    fn link(generation: u32, lanes: u32, efficiency: f64) -> Pcie {
        Pcie::new(&Params {
            generation,
            lanes: PowerOfTwo::new(lanes),
            max_payload_bytes: PowerOfTwo::new(256),
            max_read_request_bytes: PowerOfTwo::new(512),
            completion_bytes: PowerOfTwo::new(128),
            efficiency,
            one_way_ns: 100.0,
            read_tags: 64,
        })
    }

    /// Payload bandwidth of many writes, in Gb/s.
    fn gbps(link: &mut Pcie, bytes: u64) -> f64 {
        let writes = 1_000;
        let end = (0..writes).fold(Time::ZERO, |_, _| link.write(Time::ZERO, Span::ZERO, bytes));
        let span = (end - Time::ZERO).saturating_sub(link.one_way);
        (writes * bytes * 8) as f64 / span.as_secs_f64() / 1e9
    }

    #[test]
    fn bandwidths_are_those_of_the_generations() {
        // Kalia et al., ATC 2016, Fig. 2a: 500 and 984.6 MB/s a lane.
        assert_eq!(lane(2), 500e6);
        assert!((lane(3) - 984.6e6).abs() < 0.1e6);
        // Computed with pcie-bench's pcie-model for payloads of 256 B: 28.68, 57.88, 113.70 Gb/s
        // (with its acknowledgements, 2 to 5 %).
        for (generation, lanes, expected) in [(2, 8, 28.68), (3, 8, 57.88), (3, 16, 113.70)] {
            let found = gbps(&mut link(generation, lanes, 1.0), 256);
            assert!(
                (found / expected - 1.0).abs() < 0.03,
                "{found} instead of {expected}"
            );
        }
    }

    #[test]
    fn a_read_takes_its_round_trip_and_tags_bound_how_many_overlap() {
        let mut link = link(3, 8, 1.0);
        let latency = Span::from_ns(200);
        let one = link.read(Time::ZERO, Span::ZERO, 64, latency).last - Time::ZERO;
        assert!(
            one > Span::from_ns(400) && one < Span::from_ns(420),
            "{one}"
        );
        for _ in 1..64 {
            link.read(Time::ZERO, Span::ZERO, 64, latency);
        }
        let next = link.read(Time::ZERO, Span::ZERO, 64, latency).last - Time::ZERO;
        assert!(next >= one * 2, "{next} for the 65th of 64 tags");
        assert_eq!(link.traffic.read_lines, 65);
    }

    #[test]
    fn long_reads_stream_behind_their_first_completion() {
        let mut link = link(3, 8, 1.0);
        let arrival = link.read(Time::ZERO, Span::ZERO, 65_536, Span::from_ns(200));
        let stream = arrival.last - arrival.first;
        // 65536 B in completions of 128 + 22 B at 7.877 GB/s.
        assert!((stream.as_ns_f64() - 9_731.0).abs() < 60.0, "{stream}");
    }
}
