//! A bare PCIe device, which only reads and writes its host's memory.
//!
//! Without queue pairs, link and driver, it measures only the link to the root port, the IOMMU, the
//! last-level cache and memory. Programs: schema.md, `pcie_dma_*`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use adverb_sim::{Random, Seed};
use adverb_units::{Bytes, Span, Time};

use crate::host::iommu::Iommu;
use crate::host::llc::{AccessKind, Found, Line, Llc};
use crate::host::pcie::{LINE, Pcie};
use crate::host::placement::Placement;
use crate::params::DeviceParams;
use crate::preset::{Kind, Preset};
use crate::rate::ns;
use crate::resource::Slots;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dma {
    /// Reads memory; ends with the last byte.
    Read,
    /// Writes memory by posted writes; ends when the bytes are on the link.
    Write,
    /// Writes, then immediately reads the same bytes. The read may not pass the write.
    WriteRead,
}

/// When the device starts operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It waits for each operation before it prepares the next.
    OneByOne,
    /// It keeps this many in flight on the link, and prepares the next ones meantime.
    Overlapping(NonZeroU32),
}

/// Whether the device's addresses are translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// They are physical addresses.
    #[default]
    Physical,
    /// The root port's IOMMU translates them.
    Translated,
}

/// The memory that the device accesses at random addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its size.
    pub bytes: Bytes,
    /// Its placement. If cached, a core has written all of it before the run, and what fits is still in
    /// the cache.
    pub placement: Placement,
    /// How it is addressed.
    pub addressing: Addressing,
}

/// Why a device cannot run an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BareDeviceError {
    /// The preset of this name is of another kind.
    #[error("{0} is not a bare PCIe device")]
    NotBare(String),
    /// A window of this size is impossible.
    #[error("window of {0} is outside {LINE} B to {MAX_WINDOW}")]
    Window(Bytes),
    /// An operation of size `given` is impossible in a window of size `window`.
    #[error("transfer of {given}, rounded up to lines, is outside 1 B to the window of {window}")]
    #[allow(missing_docs, reason = "the variant's documentation names them")]
    Size { given: Bytes, window: Bytes },
}

/// Largest window: the memory of the modelled hosts.
const MAX_WINDOW: Bytes = Bytes::mib(128 * 1024);
const OPERATIONS: u64 = 40_000;

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transferred {
    /// Mean time of an operation, as the device sees it.
    pub mean: Span,
    /// Operations a second.
    pub per_second: f64,
}

/// A bare device in its host.
#[derive(Debug)]
pub struct BareDevice {
    pcie: Pcie,
    llc: Llc,
    iommu: Option<Iommu>,
    /// Writes that the root port has not returned credits for.
    credits: Slots,
    /// When the last write reached memory. Writes keep their order.
    committed: Time,
    window: Window,
    params: DeviceParams,
    /// The root port's time for any access to the window.
    root: Span,
    /// Additional time if memory must be read or written first.
    dram: Span,
    max_payload: u64,
    max_read_request: u64,
    page: u64,
    random: Random,
}

/// The part of an operation that one TLP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tlp {
    address: u64,
    bytes: u64,
}

impl Tlp {
    fn lines(self) -> impl Iterator<Item = Line> {
        (Line::of(self.address).0..=Line::of(self.address + self.bytes - 1).0).map(Line)
    }

    /// Whether it writes only part of `line`.
    fn is_part_of(self, line: Line) -> bool {
        let begin = line.0 * LINE;
        self.address > begin || self.address + self.bytes < begin + LINE
    }
}

/// When a write was sent, and how long it took from the root port to memory.
struct Written {
    sent: Time,
    latency: Span,
}

impl BareDevice {
    /// Creates the device of a preset, in a host whose memory is in the state that `window` describes.
    ///
    /// # Errors
    /// If the preset is not of a bare device, or the window is impossible.
    pub fn new(preset: &Preset, window: Window, seed: Seed) -> Result<Self, BareDeviceError> {
        if preset.kind != Kind::BareDevice {
            return Err(BareDeviceError::NotBare(preset.name.clone()));
        }
        let given = window.bytes;
        if !(Bytes::new(LINE)..=MAX_WINDOW).contains(&given) {
            return Err(BareDeviceError::Window(given));
        }
        let p = &preset.params;
        let iommu = || Iommu::new(&p.iommu, seed.stream("iommu", 0).bits());
        let hop = match window.placement.is_remote() {
            true => p.memory.dma_numa_extra_ns,
            false => Span::ZERO,
        };
        let mut device = BareDevice {
            pcie: Pcie::new(&p.pcie),
            llc: Llc::new(&p.memory, seed.stream("llc", 0).bits()),
            iommu: (window.addressing == Addressing::Translated).then(iommu),
            credits: Slots::new(p.device.write_credits as usize),
            committed: Time::ZERO,
            window,
            params: p.device,
            root: p.memory.dma_ns + hop,
            dram: p.memory.dma_dram_extra_ns,
            max_payload: p.pcie.max_payload_bytes.get().into(),
            max_read_request: p.pcie.max_read_request_bytes.get().into(),
            page: p.iommu.page_bytes.into(),
            random: seed.stream("addresses", 0),
        };
        device.prepare();
        Ok(device)
    }

    /// Lets a core write the window, or enough other memory to evict the window from the cache.
    fn prepare(&mut self) {
        let lines = self.window.bytes.get() / LINE;
        let most = 2 * self.llc.capacity();
        let written = if self.window.placement.is_memory() {
            lines..lines + most
        } else {
            lines.saturating_sub(most)..lines
        };
        for line in written {
            self.llc.core(Line(line), AccessKind::Store);
        }
    }

    /// Runs operations of `size` at random line-aligned addresses of the window.
    ///
    /// # Errors
    /// If the operation does not fit the window.
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
        // Until the ways of the cache that devices may fill are in steady state.
        let share = (self.llc.device_capacity() * LINE).div_ceil(unit);
        let warm_up = 4 * places.min(share);
        let all = warm_up + OPERATIONS;
        let mut free = match pace {
            Pace::OneByOne => BinaryHeap::from([Reverse(Time::ZERO)]),
            Pace::Overlapping(n) => (0..n.get()).map(|_| Reverse(Time::ZERO)).collect(),
        };
        let prepared = self.params.issue_ns + ns(self.params.copy_byte_ns * size.get() as f64);
        let (mut began, mut total) = (Time::ZERO, Span::ZERO);
        for operation in 0..all {
            let Reverse(at) = free.pop().expect("one entry per operation in flight");
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
        let Reverse(end) = free.pop().expect("one entry per operation in flight");
        Ok(Transferred {
            mean: total / OPERATIONS,
            per_second: OPERATIONS as f64 / (end - began).as_secs_f64(),
        })
    }

    /// Runs an operation that begins at `at`; returns when it ends on the link.
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

    /// Reads memory. The root port holds the request for `held` (behind a write) before it handles it.
    fn read(&mut self, at: Time, held: Span, address: u64, bytes: u64) -> Time {
        let comes = at + self.pcie.way();
        tlps(address, bytes, self.max_read_request, self.page).fold(at, |end, tlp| {
            let wait = self.translate(comes, tlp.address).max(held);
            let latency = wait + self.read_latency(tlp);
            let arrival = self.pcie.read(at, Span::ZERO, tlp.bytes, latency);
            end.max(arrival.last)
        })
    }

    fn write(&mut self, at: Time, address: u64, bytes: u64) -> Written {
        let mut written = Written {
            sent: at,
            latency: Span::ZERO,
        };
        for tlp in tlps(address, bytes, self.max_payload, self.page) {
            let begin = self.credits.admit(written.sent);
            let comes = self.pcie.write(begin, Span::ZERO, tlp.bytes);
            let wait = self.translate(comes, tlp.address);
            // The lines that writes need are fetched concurrently, but writes take effect in order.
            let done = comes + wait + self.write_latency(tlp);
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

    fn read_latency(&self, tlp: Tlp) -> Span {
        let is_cached = |line| self.llc.holds(line);
        if tlp.lines().all(is_cached) {
            self.root
        } else {
            self.root + self.dram
        }
    }

    /// Time until a write is visible: the root port must own the line, fetch the bytes that are not written,
    /// and evict another line.
    fn write_latency(&mut self, tlp: Tlp) -> Span {
        let mut latency = self.root;
        for line in tlp.lines() {
            let needs_memory = match self.write_line(line) {
                Found::Hit => false,
                Found::FilledOverDirty => true,
                Found::Filled | Found::Absent => tlp.is_part_of(line),
            };
            if needs_memory {
                latency = self.root + self.dram;
            }
        }
        latency
    }

    /// Writes a line into the cache, or past it if the buffer is on the other socket.
    fn write_line(&mut self, line: Line) -> Found {
        if !self.window.placement.is_remote() {
            return self.llc.dma_write(line);
        }
        self.llc.flush(line);
        Found::Absent
    }
}

/// The TLPs of an operation: at most `max` bytes each, and none crosses a page.
fn tlps(address: u64, bytes: u64, max: u64, page: u64) -> impl Iterator<Item = Tlp> {
    let end = address + bytes;
    let mut next = address;
    std::iter::from_fn(move || {
        let address = next;
        next = end.min(address + max).min((address / page + 1) * page);
        (address < end).then_some(Tlp {
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
    fn operations_are_split_at_requests_and_pages() {
        let cut = |address, bytes| -> Vec<_> {
            let tlp = |tlp: Tlp| (tlp.address, tlp.bytes);
            tlps(address, bytes, 512, 4096).map(tlp).collect()
        };
        assert_eq!(cut(64, 1), [(64, 1)]);
        assert_eq!(cut(0, 1025), [(0, 512), (512, 512), (1024, 1)]);
        assert_eq!(cut(3968, 256), [(3968, 128), (4096, 128)]);
    }

    #[test]
    fn cached_windows_are_faster_if_they_fit() {
        let read =
            |mib, placement| mean("nfp6000_snb", Dma::Read, window(Bytes::mib(mib), placement));
        let warm = read(1, Placement::Cached);
        assert!((read(1, Placement::Memory) - warm - 70.0).abs() < 0.5);
        let large = read(64, Placement::Cached);
        assert!(large > warm + 40.0 && large < warm + 70.0, "{large}");
        assert!((read(1, Placement::RemoteCached) - warm - 106.0).abs() < 0.5);
    }

    #[test]
    fn device_writes_fill_only_their_ways() {
        let wrrd = |bytes| {
            mean(
                "nfp6000_snb",
                Dma::WriteRead,
                window(bytes, Placement::Memory),
            )
        };
        let (small, large) = (wrrd(Bytes::kib(64)), wrrd(Bytes::mib(16)));
        // Another line must be evicted first; the read then hits what was written.
        assert!((large - small - 70.0).abs() < 8.0, "{small}, {large}");
    }

    #[test]
    fn an_iommu_costs_nothing_until_its_iotlb_is_exceeded() {
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
    fn more_in_flight_is_never_slower_and_larger_is_never_faster() {
        let window = window(Bytes::kib(8), Placement::Cached);
        for dma in [Dma::Read, Dma::Write, Dma::WriteRead] {
            let mut last = 0.0;
            for n in [1, 2, 4, 8, 16, 32, 64] {
                let pace = Pace::Overlapping(NonZeroU32::new(n).expect("not 0"));
                let done = device("netfpga_hsw", window).run(dma, Bytes::new(64), pace);
                let rate = done.expect("it fits").per_second;
                assert!(rate >= last * 0.999, "{dma:?}, {n} in flight: {rate}");
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
    fn impossible_runs_are_refused() {
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
