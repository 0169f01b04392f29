//! The PCIe link between root port and NIC.

use adverb_units::{Span, Time};

use crate::params::PcieParams;
use crate::rate::ByteTime;
use crate::resource::{Server, Slots};
use crate::trace::{StepKind, Subject, Tracer};

/// Overhead of a TLP on the wire, in bytes.
#[derive(Clone, Copy, Debug)]
struct Overhead {
    /// Of a memory read or write request.
    request: u64,
    /// Of a completion with data.
    completion: u64,
}

/// Size of a cache line, the unit of the counters.
pub(crate) const LINE: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Lines written to the NIC by MMIO, doorbells among them.
    pub(crate) mmio_writes: u64,
    /// The part of `mmio_writes` that is doorbells for WQEs that the NIC reads.
    pub(crate) doorbells: u64,
    pub(crate) read_lines: u64,
    /// Lines written by the NIC, completions among them.
    pub(crate) write_lines: u64,
    /// The part of `write_lines` that is completions.
    pub(crate) completions: u64,
}

/// When the data of a read arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) first: Time,
    pub(crate) last: Time,
    /// When the first ones would arrive on an idle link.
    pub(crate) idle: Time,
}

/// A direction of the link. Its data packets are served in turn; others share its bandwidth, but not the queue.
#[derive(Clone, Copy, Debug)]
struct Direction {
    data: Server,
    /// What others have used of the bandwidth that data packets would have had.
    owed: Span,
    /// How much of that a data packet can wait for.
    most: Span,
}

impl Direction {
    fn new(most: Span) -> Self {
        Direction {
            data: Server::default(),
            owed: Span::ZERO,
            most,
        }
    }

    /// Others use the link for `span`.
    fn share(&mut self, span: Span) {
        self.owed += span;
    }

    /// Serves a data packet that arrives at `at` for `span`; returns when its service begins. It waits for what others
    /// have used, unless they used it while there were no data.
    fn begin(&mut self, at: Time, span: Span) -> Time {
        let idle = at - self.data.free().min(at);
        self.owed = self.owed.saturating_sub(idle);
        let wait = self.owed.min(self.most);
        self.owed = self.owed.saturating_sub(wait);
        self.data.begin(at, wait + span) + wait
    }
}

#[derive(Debug)]
pub(crate) struct Pcie {
    /// NIC to memory: writes, and requests of reads.
    up: Direction,
    /// Memory to NIC: completions of reads, and MMIO.
    down: Direction,
    /// Short reads ([`Pcie::read_few`]), and MMIO.
    few: Direction,
    /// CPU to NIC.
    mmio: Server,
    tags: Slots,
    /// How long reads held a tag, except while they waited for the link.
    tagged: Span,
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
    pub(crate) fn new(params: &PcieParams) -> Self {
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
        let byte = ByteTime::of_rate(bandwidth);
        // A long read sends no more requests at once than there are tags.
        let requests = byte.of(overhead.request) * u64::from(params.read_tags);
        Pcie {
            up: Direction::new(requests),
            down: Direction::new(Span::MAX),
            few: Direction::new(Span::MAX),
            mmio: Server::default(),
            tags: Slots::new(params.read_tags as usize),
            tagged: Span::ZERO,
            byte,
            overhead,
            max_payload: params.max_payload_bytes.get().into(),
            max_read_request: params.max_read_request_bytes.get().into(),
            completion: params.completion_bytes.get().into(),
            one_way: params.one_way_ns,
            traffic: Traffic::default(),
            trace: Tracer::default(),
        }
    }

    /// The same link to memory of the other socket, `hop` farther away.
    pub(crate) fn across(mut self, hop: Span) -> Self {
        self.one_way += hop;
        self
    }

    /// Returns the time of a read of `bytes` on an idle link.
    pub(crate) fn round_trip(&self, bytes: u64, latency: Span) -> Span {
        let completions = bytes.div_ceil(self.completion);
        let wire = self.overhead.request + bytes + completions * self.overhead.completion;
        self.one_way * 2 + latency + self.byte.of(wire)
    }

    /// One-way latency, without the time that the bytes take.
    pub(crate) fn way(&self) -> Span {
        self.one_way
    }

    /// The first of `bytes` that the CPU wrote to the NIC arrive at `at`; returns when all have arrived.
    ///
    /// They do not wait for read completions on the way down. The bandwidth that they use is missing for
    /// the next completion.
    pub(crate) fn mmio(&mut self, at: Time, bytes: u64) -> Time {
        let tlps = bytes.div_ceil(LINE).max(1);
        self.traffic.mmio_writes += tlps;
        let span = self.byte.of(bytes + tlps * self.overhead.request);
        self.down.share(span);
        self.few.share(span);
        let end = self.mmio.serve(at, span);
        self.trace.note(StepKind::MmioData(bytes), at, end);
        end
    }

    /// As [`Pcie::mmio`], for a doorbell for WQEs that the NIC reads.
    pub(crate) fn doorbell(&mut self, at: Time, bytes: u64) -> Time {
        self.traffic.doorbells += bytes.div_ceil(LINE);
        self.mmio(at, bytes)
    }

    /// As [`Pcie::write`], for a completion of `bytes`.
    pub(crate) fn complete(&mut self, at: Time, delay: Span, bytes: u64) -> Time {
        self.traffic.completions += bytes.div_ceil(LINE);
        self.about(Subject::Cqe).write(at, delay, bytes)
    }

    /// The NIC decides at `at` to write `bytes` to memory `delay` later; returns when they are visible.
    pub(crate) fn write(&mut self, at: Time, delay: Span, bytes: u64) -> Time {
        self.traffic.write_lines += bytes.div_ceil(LINE);
        let wire = self.write_bytes(bytes);
        let span = self.byte.of(wire);
        let goes = self.up.begin(at, span) + delay;
        let seen = goes + span + self.one_way;
        let kind = StepKind::Write(self.trace.subject(), bytes);
        self.trace.note(StepKind::PcieWait, at + delay, goes);
        self.trace.note(kind, goes, seen);
        seen
    }

    /// Returns the size of a write of `bytes` on the link.
    #[inline]
    fn write_bytes(&self, bytes: u64) -> u64 {
        let tlps = match bytes {
            // The usual case, without a division.
            1.. if bytes <= self.max_payload => 1,
            _ => bytes.div_ceil(self.max_payload),
        };
        bytes + tlps * self.overhead.request
    }

    /// Delays further writes: memory accepts the last one only at `until`, and writes keep their order.
    pub(crate) fn hold_writes(&mut self, until: Time) {
        self.up.data.serve(until, Span::ZERO);
    }

    /// Returns how long each direction of the link, and a tag on average, was in use.
    pub(crate) fn busy(&self) -> [(&'static str, Span); 4] {
        [
            ("PCIe, NIC to memory", self.up.data.busy()),
            ("PCIe, memory to NIC", self.down.data.busy()),
            ("PCIe, CPU to NIC", self.mmio.busy()),
            (
                "PCIe reads in flight",
                self.tagged / self.tags.count() as u64,
            ),
        ]
    }

    /// Returns when a write that is requested at `at` may begin: the NIC is ahead of memory by no more than
    /// what is on the link.
    #[inline]
    pub(crate) fn admit_write(&self, at: Time) -> Time {
        at + (self.up.data.free() - at).saturating_sub(self.one_way)
    }

    /// The NIC decides at `at` to read `bytes` `delay` later; memory answers after `latency`.
    pub(crate) fn read(&mut self, at: Time, delay: Span, bytes: u64, latency: Span) -> Arrival {
        self.traffic.read_lines += bytes.div_ceil(LINE);
        let requests = bytes.div_ceil(self.max_read_request).max(1);
        let request = self.byte.of(self.overhead.request);
        self.up.share(request * requests);
        let start = self.tags.admit(at);
        let completions = bytes.div_ceil(self.completion);
        let wire = self.byte.of(bytes + completions * self.overhead.completion);
        let head = bytes.min(self.completion) + self.overhead.completion;
        // Reads keep their order, so the completion's place in the downstream is fixed now; it is used one
        // round trip later.
        let begin = self.down.begin(start, wire);
        let round_trip = request + self.one_way * 2 + latency;
        let way = delay + round_trip;
        self.tags.occupy(begin + wire + round_trip);
        self.tagged += wire + round_trip;
        let arrival = Arrival {
            first: begin + self.byte.of(head) + way,
            last: begin + wire + way,
            idle: at + self.byte.of(head) + way,
        };
        let asked = [at + delay, begin + delay];
        self.note_read(asked, bytes, (request, latency), arrival);
        arrival
    }

    /// As [`Pcie::read`], for few bytes among long reads: they wait only for data of earlier reads that the
    /// tags can have in flight. Returns when the last byte arrives.
    pub(crate) fn read_few(&mut self, at: Time, delay: Span, bytes: u64, latency: Span) -> Time {
        let asked = self.tags.count() as u64 * self.max_read_request;
        let completions = bytes.div_ceil(self.completion);
        let wire = self.byte.of(bytes + completions * self.overhead.completion);
        let begin = at.max(self.down.data.free());
        let wait = (begin - at).min(self.byte.of(asked));
        // Short reads keep their order among each other, and share the bandwidth with MMIO.
        let early = begin - self.few.begin(at + wait, wire);
        let arrival = self.read(at, delay, bytes, latency);
        at + (arrival.last - at).saturating_sub(early)
    }
}

impl Pcie {
    /// Sets what the next access is for, for the trace.
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
        self.trace.note(StepKind::PcieWait, asked, goes);
        self.trace.note(StepKind::ReadRequest(subject), goes, there);
        self.trace
            .note(StepKind::MemoryRead(subject), there, answered);
        let data = StepKind::ReadData(subject, bytes);
        self.trace.note(data, answered, first);
        self.trace.note(StepKind::ReadRest(subject), first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::PowerOfTwo;

    fn link(generation: u32, lanes: u32, efficiency: f64) -> Pcie {
        Pcie::new(&PcieParams {
            generation,
            lanes: PowerOfTwo::new(lanes),
            max_payload_bytes: PowerOfTwo::new(256),
            max_read_request_bytes: PowerOfTwo::new(512),
            completion_bytes: PowerOfTwo::new(128),
            efficiency,
            one_way_ns: Span::from_ns(100),
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
    fn bandwidths_match_the_generations() {
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
    fn a_read_takes_a_round_trip_and_tags_limit_concurrency() {
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

    /// Requests that the NIC reads after a doorbell took no bandwidth from one another's doorbells: short lists of many cores
    /// were as fast as long ones.
    #[test]
    fn short_reads_share_the_bandwidth_with_mmio() {
        let reads = |mmio| {
            let mut link = link(3, 16, 1.0);
            let ends = (0..1_000).map(|_| {
                link.mmio(Time::ZERO, mmio);
                link.read_few(Time::ZERO, Span::ZERO, 512, Span::from_ns(60))
            });
            (ends.last().unwrap() - Time::ZERO).as_ns_f64()
        };
        // 90 B for a line by MMIO, next to 600 B of completions, at 15.75 GB/s.
        let (none, line) = (reads(0), reads(64));
        let expected = 1_000.0 * (90.0 - 26.0) / 15.754;
        assert!(
            (line - none - expected).abs() < 300.0,
            "{none} ns, then {line}"
        );
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
