//! The parameters of the model, with their units and ranges.
//!
//! Values come from preset files, each with its source ([`crate::preset`]).

use adverb_units::Span;

use crate::preset::kind::Kind;
use crate::rate::ns;

/// Describes a parameter.
#[derive(Clone, Copy)]
pub struct Field {
    /// `group.name`; the end of the name is the unit, where there is one.
    pub path: &'static str,
    /// What it means, in a sentence.
    pub doc: &'static str,
    /// Which numbers it may be.
    pub numbers: Numbers,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Reads its value.
    pub get: fn(&Params) -> f64,
    /// Writes its value.
    pub(crate) set: fn(&mut Params, f64),
}

impl Field {
    /// Returns `number` if it is possible, else which numbers are.
    pub(crate) fn check(&self, number: f64) -> Result<f64, String> {
        let is_one = match self.numbers {
            Numbers::All => true,
            Numbers::Whole => number.fract() == 0.0,
            Numbers::PowersOfTwo => number > 0.0 && number.log2().fract() == 0.0,
        };
        if is_one && (self.min..=self.max).contains(&number) {
            return Ok(number);
        }
        let (min, max) = (self.min, self.max);
        Err(match self.numbers {
            Numbers::All => format!("{min} to {max}"),
            Numbers::Whole => format!("a whole number, {min} to {max}"),
            Numbers::PowersOfTwo => format!("a power of two, {min} to {max}"),
        })
    }

    /// Whether hardware of `kind` has it.
    pub fn is_of(&self, kind: Kind) -> bool {
        let group = self.path.split('.').next();
        match kind {
            Kind::Nic => group != Some("device"),
            Kind::BareDevice => {
                !matches!(group, Some("cpu" | "nic" | "link" | "tcp")) || self.path == "cpu.cores"
            }
        }
    }
}

/// The numbers that a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Any number: a measure.
    All,
    /// Whole numbers: a count, or a size in bytes.
    Whole,
    /// Powers of two: lanes and packet sizes, as the specifications demand.
    PowersOfTwo,
}

/// A power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerOfTwo(u32);

impl PowerOfTwo {
    /// # Panics
    /// If `number` is not a power of two.
    pub(crate) const fn new(number: u32) -> Self {
        assert!(number.is_power_of_two());
        PowerOfTwo(number)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The type of a parameter's value. Presets give all of them as numbers.
trait Parameter {
    const NUMBERS: Numbers;

    /// Converts a number that was checked.
    fn of(number: f64) -> Self;

    fn number(self) -> f64;
}

macro_rules! parameter {
    ($type:ty, $numbers:ident, $of:expr, $number:expr) => {
        impl Parameter for $type {
            const NUMBERS: Numbers = Numbers::$numbers;

            fn of(number: f64) -> Self {
                $of(number)
            }

            fn number(self) -> f64 {
                $number(self)
            }
        }
    };
}

parameter!(f64, All, f64::from, f64::from);
// Presets give times in nanoseconds.
parameter!(Span, All, ns, Span::as_ns_f64);
parameter!(u32, Whole, |number| number as u32, f64::from);
// Parameters that hardware of this kind lacks are 0.
parameter!(
    PowerOfTwo,
    PowersOfTwo,
    |number| match number as u32 {
        0 => PowerOfTwo::default(),
        number => PowerOfTwo::new(number),
    },
    |power: PowerOfTwo| power.get().into()
);

macro_rules! params {
    ($($(#[doc = $group_doc:literal])* $group:ident: $type:ident {
        $($(#[doc = $doc:literal])* $name:ident: $value:ty = $min:literal ..= $max:literal;)*
    })*) => {
        $(
            $(#[doc = $group_doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            pub struct $type {
                $($(#[doc = $doc])* pub $name: $value,)*
            }
        )*

        /// All parameters of a machine with its NIC and link.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Params {
            $($(#[doc = $group_doc])* pub $group: $type,)*
        }

        /// All parameters.
        pub const FIELDS: &[Field] = &[
            $($(Field {
                path: concat!(stringify!($group), ".", stringify!($name)),
                doc: concat!($($doc),*),
                numbers: <$value as Parameter>::NUMBERS,
                min: $min as f64,
                max: $max as f64,
                get: |p| p.$group.$name.number(),
                set: |p, value| p.$group.$name = Parameter::of(value),
            },)*)*
        ];
    };
}

impl MemoryParams {
    /// Moving a line that another core has modified, while no other one wants it.
    pub(crate) fn hand_over(&self) -> Span {
        self.llc_ns + self.line_transfer_ns
    }
}

params! {
    /// The host's processors.
    cpu: CpuParams {
        /// Cores of one socket.
        cores: u32 = 1..=512;
        /// Hyper-threads of a core.
        threads_per_core: u32 = 1..=16;
        /// Throughput of all hyper-threads of a core together, relative to one alone.
        smt_gain: f64 = 1.0..=8.0;
        /// One load or store of a loop over lines that are in the core's cache.
        access_ns: Span = 0.1..=10000.0;
        /// Building one WQE in memory, including the post call, without writing to the NIC.
        wqe_build_ns: Span = 0.1..=100000.0;
        /// Copying one further 64 B line of inline data or WQE.
        wqe_line_ns: Span = 0.0..=10000.0;
        /// One 64 B line written to the NIC through a write-combining buffer.
        mmio_line_ns: Span = 0.1..=100000.0;
        /// Ringing a doorbell.
        doorbell_ns: Span = 0.1..=100000.0;
        /// Posting one receive request, without its doorbell record.
        recv_build_ns: Span = 0.1..=100000.0;
        /// One poll of a completion queue or of memory that finds nothing.
        poll_empty_ns: Span = 0.1..=100000.0;
        /// Polling one completion.
        poll_hit_ns: Span = 0.1..=100000.0;
        /// Decoding one request of a program that is in the cache, and noting the client to answer.
        request_ns: Span = 0.0..=100000.0;
        /// Hashing and comparing one key of a table that is in the cache, and copying its value.
        lookup_ns: Span = 0.0..=100000.0;
        /// An atomic instruction on a line that is in the core's cache.
        atomic_ns: Span = 0.0..=10000.0;
        /// Outstanding cache misses of a core (line fill buffers).
        line_fills: u32 = 1..=1024;
        /// Page walks of a core at a time, after a miss of its TLB.
        page_walks: u32 = 1..=64;
        /// Time from the interrupt until the sleeping program runs again.
        wake_ns: Span = 0.0..=10000000.0;
        /// The part of it for which the program's own CPU is busy.
        wake_cpu_ns: Span = 0.0..=10000000.0;
        /// The part of `wake_cpu_ns` that is user time: the program loads code and data again that the kernel and
        /// the idle loop have evicted from the core's caches.
        wake_user_ns: Span = 0.0..=10000000.0;
        /// One system call that need not wait.
        syscall_ns: Span = 0.0..=1000000.0;
        /// Pinning or unpinning a page of 4 KiB of a memory region.
        pin_page_ns: Span = 0.0..=100000.0;
        /// Reading the clock.
        clock_ns: Span = 0.0..=10000.0;
        /// One-way time of an out-of-band message.
        out_of_band_ns: Span = 0.0..=100000000.0;
    }
    /// Caches and memory.
    memory: MemoryParams {
        /// Loading a line from the last-level cache.
        llc_ns: Span = 0.1..=10000.0;
        /// Loading a line from memory.
        dram_ns: Span = 0.1..=10000.0;
        /// Time for which a line occupies the memory bus.
        line_ns: Span = 0.01..=1000.0;
        /// Serving a DMA read from the last-level cache, as seen by the root port.
        dma_ns: Span = 0.0..=10000.0;
        /// Additional time of a DMA read from memory rather than the last-level cache.
        dma_dram_extra_ns: Span = 0.0..=10000.0;
        /// Additional time of a DMA access to the other socket's memory.
        dma_numa_extra_ns: Span = 0.0..=10000.0;
        /// Additional time of a core's load from the other socket.
        numa_extra_ns: Span = 0.0..=10000.0;
        /// Time for which a line occupies the interconnect between the sockets, in one direction.
        interconnect_line_ns: Span = 0.01..=1000.0;
        /// Transferring a contended line between cores, or between a core and the NIC.
        line_transfer_ns: Span = 0.0..=10000.0;
        /// Size of the last-level cache of a socket.
        llc_mib: f64 = 0.1..=4096.0;
        /// Ways of the last-level cache.
        llc_ways: u32 = 1..=64;
        /// Ways that the NIC's writes may allocate in.
        ddio_ways: u32 = 0..=64;
    }
    /// The link between root port and NIC.
    pcie: PcieParams {
        /// Generation, 1 to 6.
        generation: u32 = 1..=6;
        /// Lanes.
        lanes: PowerOfTwo = 1..=32;
        /// Largest payload of a write TLP.
        max_payload_bytes: PowerOfTwo = 64..=4096;
        /// Largest read request.
        max_read_request_bytes: PowerOfTwo = 64..=4096;
        /// Payload of the completion TLPs that the root port answers reads with.
        completion_bytes: PowerOfTwo = 64..=4096;
        /// Share of the bandwidth that acknowledgements and flow control leave.
        efficiency: f64 = 0.1..=1.0;
        /// One-way latency between CPU or memory and NIC, without the transmission time of the bytes.
        one_way_ns: Span = 1.0..=100000.0;
        /// Outstanding reads of the NIC.
        read_tags: u32 = 1..=4096;
    }
    /// The IOMMU, if it is in use.
    iommu: IommuParams {
        /// Size of a page.
        page_bytes: u32 = 64..=1073741824;
        /// Entries of its IOTLB.
        tlb_entries: u32 = 1..=10000000;
        /// Levels of page tables that a walk reads after an IOTLB miss.
        walk_levels: u32 = 1..=8;
        /// Reading one level.
        walk_read_ns: Span = 0.0..=100000.0;
        /// Concurrent walks.
        walks: u32 = 1..=4096;
    }
    /// A bare PCIe device, which has no queue pairs and no link.
    device: DeviceParams {
        /// Time from passing an operation to the DMA engine until the first TLP.
        issue_ns: Span = 0.0..=100000.0;
        /// Copying one byte of an operation between its own memories, before a write or after a read.
        copy_byte_ns: f64 = 0.0..=1000.0;
        /// Writes that it may send before the root port returns credits (PCIe 3.0, 2.6.1).
        write_credits: u32 = 1..=4096;
    }
    /// The NIC.
    nic: NicParams {
        /// Latency of the transmit side for a request, in addition to the time for which it is occupied.
        tx_ns: Span = 0.0..=100000.0;
        /// Latency of the receive side for a packet, in addition to the time for which it is occupied.
        rx_ns: Span = 0.0..=100000.0;
        /// Processing units: requests of different queue pairs that it processes concurrently.
        processing_units: u32 = 1..=4096;
        /// Time for which a request occupies a processing unit.
        unit_wqe_ns: Span = 0.0..=100000.0;
        /// Payloads of a queue pair that the NIC reads concurrently: of its requests, or parts of 4 KiB of a longer one.
        gathers: u32 = 1..=4096;
        /// Requests of one 64 B line that the transmit side sends per microsecond.
        send_mops: f64 = 0.001..=10000.0;
        /// Time for which each further line of a request occupies the transmit side.
        send_line_ns: Span = 0.0..=100000.0;
        /// READ requests sent per microsecond.
        read_request_mops: f64 = 0.001..=10000.0;
        /// READ responses sent per microsecond.
        read_response_mops: f64 = 0.001..=10000.0;
        /// WRITEs received per microsecond.
        write_mops: f64 = 0.001..=10000.0;
        /// Messages with payload received into receive requests per microsecond.
        recv_mops: f64 = 0.001..=10000.0;
        /// Messages without payload received into receive requests per microsecond.
        recv_header_only_mops: f64 = 0.001..=10000.0;
        /// READ requests, READ responses and acknowledgements received per microsecond.
        response_mops: f64 = 0.001..=10000.0;
        /// Entries of the context cache; requester and responder of a queue pair have one each.
        context_entries: u32 = 1..=10000000;
        /// Size of a context.
        context_bytes: u32 = 1..=65536;
        /// Contexts that it can load concurrently without stalling.
        context_fetches: u32 = 1..=4096;
        /// Time to load a context, in addition to the read over PCIe.
        context_load_ns: Span = 0.0..=100000.0;
        /// Contexts for DC initiators; 0 without the dynamically connected transport.
        dc_contexts: u32 = 0..=1000000;
        /// Entries of the address translation cache.
        translation_entries: u32 = 1..=100000000;
        /// Page size of registered memory: what one translation covers.
        page_bytes: u32 = 4096..=1073741824;
        /// One command of the driver, such as registering or deregistering a memory region.
        command_ns: Span = 0.0..=100000000.0;
        /// Outstanding reads of a queue pair's WQEs that doorbells have announced, each one read request of PCIe; 0:
        /// it reads a WQE only when the request is to be sent.
        wqe_prefetches: u32 = 0..=64;
        /// Bytes of the send queue that it reads for a WQE that it does not prefetch, or has evicted; with one line, it
        /// reads the first line, then the rest.
        wqe_read_bytes: u32 = 64..=4096;
        /// Entries of the WQE cache. It holds a WQE until the request is sent, and the WQE of a READ or an atomic operation
        /// until the answer.
        wqe_entries: u32 = 1..=10000000;
        /// Evicted WQEs that it can fetch again concurrently.
        wqe_fetches: u32 = 1..=4096;
        /// Locks for atomic operations, selected by address.
        atomic_buckets: u32 = 1..=1000000;
        /// Outstanding atomic operations.
        atomic_slots: u32 = 1..=4096;
        /// Time of a locked read-modify-write, in addition to the read over PCIe.
        atomic_ns: Span = 0.0..=100000.0;
        /// Longest inline payload.
        max_inline_bytes: u32 = 0..=4096;
        /// Longest payload that a completion carries to a receive.
        max_inline_recv_bytes: u32 = 0..=4096;
        /// Longest WQE that the CPU writes by MMIO.
        blueflame_bytes: u32 = 0..=4096;
        /// Queue pairs of a process that have a BlueFlame register of their own.
        blueflame_registers: u32 = 1..=65536;
        /// Size of a completion.
        cqe_bytes: u32 = 16..=128;
        /// Outstanding READs and atomics of a queue pair.
        max_rd_atomic: u32 = 1..=255;
    }
    /// Kernel TCP through a plain Ethernet NIC.
    tcp: TcpParams {
        /// Protocol and driver processing of one piece of a stream, on either side.
        process_ns: Span = 0.0..=1000000.0;
        /// Copying one byte between a program and the kernel.
        copy_byte_ns: f64 = 0.0..=1000.0;
        /// Largest piece that the kernel handles at once (GSO, GRO); at least the payload of a frame.
        piece_bytes: u32 = 1..=1000000;
        /// Latency of the NIC for a frame in either direction, without PCIe and port.
        nic_ns: Span = 0.0..=1000000.0;
        /// Interrupt moderation delay of the NIC.
        interrupt_delay_ns: Span = 0.0..=10000000.0;
        /// Window: bytes that may be unacknowledged.
        window_bytes: u32 = 4096..=1000000000;
    }
    /// Ports, cables and switches.
    link: LinkParams {
        /// Data rate of a port.
        gbps: f64 = 0.01..=10000.0;
        /// Ports in use.
        ports: u32 = 1..=16;
        /// Path MTU.
        mtu_bytes: PowerOfTwo = 256..=4096;
        /// Propagation delay of one cable.
        cable_ns: Span = 0.0..=1000000000.0;
        /// Switches between two machines.
        switches: u32 = 0..=64;
        /// Receive buffer of a port, for which credits are granted (IBTA vol. 1, 7.9).
        buffer_bytes: u32 = 256..=100000000;
        /// Delay of one switch.
        switch_ns: Span = 0.0..=1000000.0;
    }
}

impl LinkParams {
    /// Returns the delay of the cables and switches between two machines.
    pub(crate) fn way(&self) -> Span {
        let switches = u64::from(self.switches);
        self.cable_ns * (switches + 1) + self.switch_ns * switches
    }
}

/// Returns the parameter named `path`.
pub fn field(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}
