//! A bare PCIe device: it moves bytes to and from the memory of its host, and nothing else.
//!
//! It has no queue pairs, no link and no driver, so what it measures is the link to the root port,
//! the IOMMU, the last-level cache and memory alone. Programs: schema.md, `pcie_dma_*`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use adverb_sim::{Random, Seed};
use adverb_units::{Bytes, Span, Time};

use crate::host::iommu::Iommu;
use crate::host::llc::{Access, Evicted, Found, Line, Llc};
use crate::host::pcie::{LINE, Pcie};
use crate::host::placement::Placement;
use crate::params::Params;
use crate::preset::{Kind, Preset};
use crate::rate::ns;
use crate::resource::Slots;

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dma {
    /// Reading memory: it ends with the last byte.
    Read,
    /// Writing memory, posted: it ends when the bytes are on the link.
    Write,
    /// Writing, and reading the same bytes at once: the read may not pass the write.
    WriteRead,
}

/// When the device begins operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It waits for each before it prepares the next.
    OneByOne,
    /// It keeps this many in flight on the link, and prepares the next ones during that time.
    Overlapping(NonZeroU32),
}

/// Whether the device's addresses are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// They are those of memory.
    #[default]
    Physical,
    /// The root port's IOMMU translates them.
    Translated,
}

/// The memory that random addresses are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its size.
    pub bytes: Bytes,
    /// Where it lies. Cached: a core has written all of it before the run; it stays in the cache as
    /// far as it fits.
    pub placement: Placement,
    /// How it is addressed.
    pub addressing: Addressing,
}

/// Why a device cannot do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BareDeviceError {
    /// The preset is of another kind.
    #[error("{name} is not a bare PCIe device")]
    NotBare {
        /// Its name.
        name: String,
    },
    /// A window that cannot be.
    #[error("a window of {given}: from {LINE} B to {MAX_WINDOW}")]
    Window {
        /// What was asked for.
        given: Bytes,
    },
    /// An operation that cannot be.
    #[error("a transfer of {given} in a window of {window}: from 1 B to that, rounded to lines")]
    Size {
        /// What was asked for.
        given: Bytes,
        /// What there is.
        window: Bytes,
    },
}

/// Largest window: as much memory as the modelled hosts have.
const MAX_WINDOW: Bytes = Bytes::mib(128 * 1024);
/// Operations that are measured.
const OPERATIONS: u64 = 40_000;

/// What a run has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transferred {
    /// Mean time of an operation, as the device sees it.
    pub mean: Span,
    /// Operations a second.
    pub per_second: f64,
}

/// The device in its host.
#[derive(Debug)]
pub struct BareDevice {
    pcie: Pcie,
    llc: Llc,
    iommu: Option<Iommu>,
    /// Writes that the root port has given no credit back for.
    credits: Slots,
    /// When the last write was in memory: they keep their order.
    committed: Time,
    window: Window,
    times: Times,
    max_payload: u64,
    max_read_request: u64,
    page: u64,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    issue: Span,
    copy_byte_ns: f64,
    /// What the root port takes for any access to the window.
    root: Span,
    /// What it takes longer where memory has to be read or written first.
    dram: Span,
}

/// One TLP's share of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    address: u64,
    bytes: u64,
}

impl Piece {
    fn lines(self) -> impl Iterator<Item = Line> {
        (Line::of(self.address).0..=Line::of(self.address + self.bytes - 1).0).map(Line)
    }

    /// Whether it writes some of the bytes of `line` and not the others.
    fn is_part_of(self, line: Line) -> bool {
        let begin = line.0 * LINE;
        self.address > begin || self.address + self.bytes < begin + LINE
    }
}

/// When a write was sent, and how much later than it came to the root port it was in memory.
struct Written {
    sent: Time,
    latency: Span,
}

impl BareDevice {
    /// The device of a preset in a host whose memory is in the state that `window` says.
    ///
    /// # Errors
    /// The preset is not of a bare device, or the window is impossible.
    pub fn new(preset: &Preset, window: Window, seed: Seed) -> Result<Self, BareDeviceError> {
        if preset.kind != Kind::BareDevice {
            let name = preset.name.clone();
            return Err(BareDeviceError::NotBare { name });
        }
        let given = window.bytes;
        if !(Bytes::new(LINE)..=MAX_WINDOW).contains(&given) {
            return Err(BareDeviceError::Window { given });
        }
        let p = &preset.params;
        let iommu = || Iommu::new(&p.iommu, seed.stream("iommu", 0).bits());
        let mut device = BareDevice {
            pcie: Pcie::new(&p.pcie),
            llc: Llc::new(&p.memory, seed.stream("llc", 0).bits()),
            iommu: (window.addressing == Addressing::Translated).then(iommu),
            credits: Slots::new(p.device.write_credits as usize),
            committed: Time::ZERO,
            window,
            times: times(p, window.placement),
            max_payload: p.pcie.max_payload_bytes.get().into(),
            max_read_request: p.pcie.max_read_request_bytes.get().into(),
            page: p.iommu.page_bytes.into(),
            random: seed.stream("addresses", 0),
        };
        device.prepare();
        Ok(device)
    }

    /// A core writes the window, or so much else that nothing of the window is left in the cache.
    fn prepare(&mut self) {
        let lines = self.window.bytes.get() / LINE;
        let most = 2 * self.llc.capacity();
        let written = if self.window.placement.is_memory() {
            lines..lines + most
        } else {
            lines.saturating_sub(most)..lines
        };
        for line in written {
            self.llc.core(Line(line), Access::Store);
        }
    }

    /// Does operations of `size` at random places of the window, each at the beginning of a line.
    ///
    /// # Errors
    /// The window has no place for it.
    pub fn run(
        &mut self,
        dma: Dma,
        size: Bytes,
        pace: Pace,
    ) -> Result<Transferred, BareDeviceError> {
        let unit = size.get().next_multiple_of(LINE);
        if size.get() == 0 || unit > self.window.bytes.get() {
            let (given, window) = (size, self.window.bytes);
            return Err(BareDeviceError::Size { given, window });
        }
        let places = self.window.bytes.get() / unit;
        // Until writes have brought as much of the window into their share of the cache as will stay.
        let share = (self.llc.device_capacity() * LINE).div_ceil(unit);
        let warm_up = 4 * places.min(share);
        let all = warm_up + OPERATIONS;
        let mut free = match pace {
            Pace::OneByOne => BinaryHeap::from([Reverse(Time::ZERO)]),
            Pace::Overlapping(n) => (0..n.get()).map(|_| Reverse(Time::ZERO)).collect(),
        };
        let prepared = self.times.issue + ns(self.times.copy_byte_ns * size.get() as f64);
        let (mut began, mut total) = (Time::ZERO, Span::ZERO);
        for operation in 0..all {
            let Reverse(at) = free.pop().expect("as many as it keeps under way");
            if operation == warm_up {
                began = at;
            }
            let address = self.random.below(places) * unit;
            let end = self.one(dma, at, address, size.get());
            let took = (end - at) + prepared;
            if operation >= warm_up {
                total += took;
            }
            free.push(Reverse(match pace {
                Pace::OneByOne => at + took,
                Pace::Overlapping(_) => end,
            }));
        }
        let Reverse(end) = free.pop().expect("as many as it keeps under way");
        Ok(Transferred {
            mean: total / OPERATIONS,
            per_second: OPERATIONS as f64 / (end - began).as_secs_f64(),
        })
    }

    /// One operation that begins at `at`; when it ends on the link.
    fn one(&mut self, dma: Dma, at: Time, address: u64, bytes: u64) -> Time {
        match dma {
            Dma::Read => self.read(at, Span::ZERO, address, bytes),
            Dma::Write => self.write(at, address, bytes).sent,
            Dma::WriteRead => {
                let written = self.write(at, address, bytes);
                self.read(written.sent, written.latency, address, bytes)
            }
        }
    }

    /// The root port looks at the request only `held` after it came.
    fn read(&mut self, at: Time, held: Span, address: u64, bytes: u64) -> Time {
        let comes = at + self.pcie.way();
        pieces(address, bytes, self.max_read_request, self.page).fold(at, |end, piece| {
            let wait = self.translate(comes, piece.address).max(held);
            let latency = wait + self.read_latency(piece);
            let arrival = self.pcie.read(at, Span::ZERO, piece.bytes, latency);
            end.max(arrival.last)
        })
    }

    fn write(&mut self, at: Time, address: u64, bytes: u64) -> Written {
        let mut written = Written {
            sent: at,
            latency: Span::ZERO,
        };
        for piece in pieces(address, bytes, self.max_payload, self.page) {
            let begin = self.credits.admit(written.sent);
            let comes = self.pcie.write(begin, Span::ZERO, piece.bytes);
            let wait = self.translate(comes, piece.address);
            // What they need is fetched at once for all that have come; they take effect in order.
            let done = comes + wait + self.write_latency(piece);
            self.committed = self.committed.max(done);
            self.credits.occupy(self.committed + self.pcie.way());
            written = Written {
                sent: begin + ((comes - begin).saturating_sub(self.pcie.way())),
                latency: self.committed - comes,
            };
        }
        written
    }

    fn translate(&mut self, at: Time, address: u64) -> Span {
        let iommu = self.iommu.as_mut();
        iommu.map_or(Span::ZERO, |iommu| iommu.translate(at, address))
    }

    fn read_latency(&self, piece: Piece) -> Span {
        let is_cached = |line| self.llc.dma_read(line).is_hit();
        if piece.lines().all(is_cached) {
            self.times.root
        } else {
            self.times.root + self.times.dram
        }
    }

    /// Until a write can be seen: the root port owns the line, has fetched what of it is not written, and
    /// has made room for it.
    fn write_latency(&mut self, piece: Piece) -> Span {
        let mut latency = self.times.root;
        for line in piece.lines() {
            let needs_memory = match self.place(line) {
                Found::Hit => false,
                Found::Filled(Evicted::Dirty(_)) => true,
                Found::Filled(_) | Found::Absent => piece.is_part_of(line),
            };
            if needs_memory {
                latency = self.times.root + self.times.dram;
            }
        }
        latency
    }

    /// Where a written line goes: those of the other socket past its cache.
    fn place(&mut self, line: Line) -> Found {
        if !self.window.placement.is_remote() {
            return self.llc.dma_write(line);
        }
        self.llc.flush(line);
        Found::Absent
    }
}

fn times(p: &Params, placement: Placement) -> Times {
    let node = if placement.is_remote() {
        p.memory.dma_numa_extra_ns
    } else {
        0.0
    };
    Times {
        issue: ns(p.device.issue_ns),
        copy_byte_ns: p.device.copy_byte_ns,
        root: ns(p.memory.dma_ns + node),
        dram: ns(p.memory.dma_dram_extra_ns),
    }
}

/// An operation's TLPs: of `most` bytes, and none crosses a page.
fn pieces(address: u64, bytes: u64, most: u64, page: u64) -> impl Iterator<Item = Piece> {
    let end = address + bytes;
    let mut next = address;
    std::iter::from_fn(move || {
        let address = next;
        next = end.min(address + most).min((address / page + 1) * page);
        (address < end).then_some(Piece {
            address,
            bytes: next - address,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, window: Window) -> BareDevice {
        let preset = Preset::built_in(name).expect("it comes with Adverb");
        BareDevice::new(&preset, window, Seed(1)).expect("a possible window")
    }

    fn window(bytes: Bytes, placement: Placement) -> Window {
        Window {
            bytes,
            placement,
            addressing: Addressing::Physical,
        }
    }

    fn mean(name: &str, dma: Dma, window: Window) -> f64 {
        let done = device(name, window).run(dma, Bytes::new(64), Pace::OneByOne);
        done.expect("it fits").mean.as_ns_f64()
    }

    const OVERLAPPING: Pace = Pace::Overlapping(NonZeroU32::new(32).unwrap());

    #[test]
    fn operations_are_cut_at_requests_and_pages() {
        let cut = |address, bytes| -> Vec<_> {
            let piece = |piece: Piece| (piece.address, piece.bytes);
            pieces(address, bytes, 512, 4096).map(piece).collect()
        };
        assert_eq!(cut(64, 1), [(64, 1)]);
        assert_eq!(cut(0, 1025), [(0, 512), (512, 512), (1024, 1)]);
        assert_eq!(cut(3968, 256), [(3968, 128), (4096, 128)]);
    }

    #[test]
    fn cached_windows_are_faster_as_far_as_the_cache_goes() {
        let read =
            |mib, placement| mean("nfp6000_snb", Dma::Read, window(Bytes::mib(mib), placement));
        let warm = read(1, Placement::Cached);
        assert!((read(1, Placement::Memory) - warm - 70.0).abs() < 0.5);
        let large = read(64, Placement::Cached);
        assert!(large > warm + 40.0 && large < warm + 70.0, "{large}");
        assert!((read(1, Placement::RemoteCached) - warm - 106.0).abs() < 0.5);
    }

    #[test]
    fn writes_find_room_only_in_their_ways() {
        let wrrd = |bytes| {
            mean(
                "nfp6000_snb",
                Dma::WriteRead,
                window(bytes, Placement::Memory),
            )
        };
        let (small, large) = (wrrd(Bytes::kib(64)), wrrd(Bytes::mib(16)));
        // Another line has to leave first; the read then finds what was written.
        assert!((large - small - 70.0).abs() < 8.0, "{small}, {large}");
    }

    #[test]
    fn an_iommu_costs_nothing_within_its_reach_and_much_beyond() {
        let rate = |bytes, addressing| {
            let window = Window {
                addressing,
                ..window(bytes, Placement::Cached)
            };
            let mut device = device("nfp6000_bdw", window);
            let done = device.run(Dma::Read, Bytes::new(64), OVERLAPPING);
            done.expect("it fits").per_second
        };
        let (near, far) = (Bytes::kib(128), Bytes::mib(4));
        let ratio = |bytes| rate(bytes, Addressing::Translated) / rate(bytes, Addressing::Physical);
        assert!(ratio(near) > 0.99, "{}", ratio(near));
        assert!(ratio(far) < 0.7, "{}", ratio(far));
    }

    #[test]
    fn more_under_way_is_never_slower_and_larger_is_never_faster() {
        let window = window(Bytes::kib(8), Placement::Cached);
        for dma in [Dma::Read, Dma::Write, Dma::WriteRead] {
            let mut last = 0.0;
            for n in [1, 2, 4, 8, 16, 32, 64] {
                let pace = Pace::Overlapping(NonZeroU32::new(n).expect("not 0"));
                let done = device("netfpga_hsw", window).run(dma, Bytes::new(64), pace);
                let rate = done.expect("it fits").per_second;
                assert!(rate >= last * 0.999, "{dma:?}, {n} under way: {rate}");
                last = rate;
            }
            let mut last = Span::ZERO;
            for size in [1, 8, 63, 64, 65, 128, 129, 512, 513, 1024, 2048] {
                let done = device("nfp6000_hsw", window).run(dma, Bytes::new(size), Pace::OneByOne);
                let mean = done.expect("it fits").mean;
                assert!(mean > last, "{dma:?} of {size} B: {mean}");
                last = mean;
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let some = window(Bytes::kib(4), Placement::Cached);
        let nic = Preset::built_in("cx3").expect("it comes with Adverb");
        let error = BareDevice::new(&nic, some, Seed(1)).expect_err("a NIC");
        assert_eq!(error.to_string(), "cx3 is not a bare PCIe device");
        let mut device = device("nfp6000_hsw", some);
        for size in [0, 4097] {
            let error = device.run(Dma::Read, Bytes::new(size), Pace::OneByOne);
            assert!(matches!(error, Err(BareDeviceError::Size { .. })));
        }
    }
}
