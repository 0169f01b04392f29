//! The parameters of the model: what there is, in which unit, and within which range.
//!
//! Values come from preset files, each with its source ([`crate::preset`]).

use crate::preset::kind::Kind;

/// What a parameter is.
#[derive(Clone, Copy)]
pub struct Field {
    /// `group.name`; the end of the name is the unit, where there is one.
    pub path: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Which numbers it can be.
    pub numbers: Numbers,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Reads it.
    pub get: fn(&Params) -> f64,
    /// Writes it.
    pub(crate) set: fn(&mut Params, f64),
}

impl Field {
    /// The number, if it can be that.
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

    /// Whether hardware of that kind has it.
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

/// The numbers that a parameter can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// A measure: any.
    All,
    /// A count, or a size in bytes: whole ones.
    Whole,
    /// What the specifications let only be a power of two: lanes, packet sizes.
    PowersOfTwo,
}

/// A power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerOfTwo(u32);

impl PowerOfTwo {
    /// # Panics
    /// If it is none.
    pub(crate) const fn new(number: u32) -> Self {
        assert!(number.is_power_of_two());
        PowerOfTwo(number)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl From<PowerOfTwo> for f64 {
    fn from(number: PowerOfTwo) -> f64 {
        number.0.into()
    }
}

/// The type of a parameter's value; presets write all of them as numbers.
trait Parameter {
    const NUMBERS: Numbers;

    /// The value that a number within the range, and of those that it can be, stands for.
    fn of(number: f64) -> Self;
}

impl Parameter for f64 {
    const NUMBERS: Numbers = Numbers::All;

    fn of(number: f64) -> f64 {
        number
    }
}

impl Parameter for u32 {
    const NUMBERS: Numbers = Numbers::Whole;

    fn of(number: f64) -> u32 {
        number as u32
    }
}

impl Parameter for PowerOfTwo {
    const NUMBERS: Numbers = Numbers::PowersOfTwo;

    fn of(number: f64) -> PowerOfTwo {
        // What hardware of another kind lacks is 0.
        if number == 0.0 {
            return PowerOfTwo::default();
        }
        PowerOfTwo::new(number as u32)
    }
}

macro_rules! params {
    ($($(#[doc = $group_doc:literal])* $group:ident: $type:ident {
        $($(#[doc = $doc:literal])* $name:ident: $value:ty = $min:literal ..= $max:literal;)*
    })*) => {
        $(
            $(#[doc = $group_doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
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
                get: |p| p.$group.$name.into(),
                set: |p, value| p.$group.$name = Parameter::of(value),
            },)*)*
        ];
    };
}

params! {
    /// The host's processors.
    cpu: Cpu {
        /// Cores of one socket.
        cores: u32 = 1..=512;
        /// Hyper-threads of a core.
        threads_per_core: u32 = 1..=16;
        /// What the hyper-threads of a core do together, of what one does alone.
        smt_gain: f64 = 1.0..=8.0;
        /// One load or store of a thread that walks over lines that its core has, with its loop.
        access_ns: f64 = 0.1..=10000.0;
        /// Building one work request in memory, with the call that posts it, without writes to the NIC.
        wqe_build_ns: f64 = 0.1..=100000.0;
        /// Copying one further 64 B line of inline data or WQE.
        wqe_line_ns: f64 = 0.0..=10000.0;
        /// One 64 B line written to the NIC through a write-combining buffer.
        mmio_line_ns: f64 = 0.1..=100000.0;
        /// Ringing a doorbell.
        doorbell_ns: f64 = 0.1..=100000.0;
        /// Posting one receive request, without its doorbell record.
        recv_build_ns: f64 = 0.1..=100000.0;
        /// One look at a completion queue or at memory that finds nothing.
        poll_empty_ns: f64 = 0.1..=100000.0;
        /// Taking one completion.
        poll_hit_ns: f64 = 0.1..=100000.0;
        /// Looking at one request of a program's own that has been loaded, and noting whom to answer.
        request_ns: f64 = 0.0..=100000.0;
        /// Hashing and comparing one key of a table whose lines have been loaded, and copying its value.
        lookup_ns: f64 = 0.0..=100000.0;
        /// An atomic instruction on a line that the core has.
        atomic_ns: f64 = 0.0..=10000.0;
        /// Lines that a core can wait for at a time.
        line_fills: u32 = 1..=1024;
        /// From the interrupt at the CPU until the sleeping program runs again.
        wake_ns: f64 = 0.0..=10000000.0;
        /// Of it, time that the program's own CPU is busy.
        wake_cpu_ns: f64 = 0.0..=10000000.0;
        /// One system call that finds its answer at hand.
        syscall_ns: f64 = 0.0..=1000000.0;
        /// Pinning or unpinning a page of 4 KiB that is registered.
        pin_page_ns: f64 = 0.0..=100000.0;
        /// Reading the clock.
        clock_ns: f64 = 0.0..=10000.0;
        /// Message of the out-of-band channel, one way.
        out_of_band_ns: f64 = 0.0..=100000000.0;
    }
    /// Caches and memory.
    memory: Memory {
        /// Loading a line from the last-level cache.
        llc_ns: f64 = 0.1..=10000.0;
        /// Loading a line from memory.
        dram_ns: f64 = 0.1..=10000.0;
        /// The time that a line takes of memory's bandwidth.
        line_ns: f64 = 0.01..=1000.0;
        /// Serving a DMA read out of the last-level cache, from the root port on.
        dma_ns: f64 = 0.0..=10000.0;
        /// What a DMA read of memory takes longer than one of the last-level cache.
        dma_dram_extra_ns: f64 = 0.0..=10000.0;
        /// What a DMA access to the other socket's memory takes longer.
        dma_numa_extra_ns: f64 = 0.0..=10000.0;
        /// Passing a line on among cores, and between them and the NIC, that fight for it.
        line_transfer_ns: f64 = 0.0..=10000.0;
        /// Size of the last-level cache of a socket.
        llc_mib: f64 = 0.1..=4096.0;
        /// Its ways.
        llc_ways: u32 = 1..=64;
        /// Ways that the NIC's writes may allocate in.
        ddio_ways: u32 = 0..=64;
    }
    /// The link between root port and NIC.
    pcie: Pcie {
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
        /// Share of the bandwidth left by acknowledgements and flow control.
        efficiency: f64 = 0.1..=1.0;
        /// One way between CPU or memory and NIC, without the time of the bytes.
        one_way_ns: f64 = 1.0..=100000.0;
        /// Reads that the NIC can have in flight.
        read_tags: u32 = 1..=4096;
    }
    /// The translation of devices' addresses, where it is in use.
    iommu: Iommu {
        /// Size of a page.
        page_bytes: u32 = 64..=1073741824;
        /// Translations that it keeps.
        tlb_entries: u32 = 1..=10000000;
        /// Levels of page tables that a walk reads for a translation that it does not keep.
        walk_levels: u32 = 1..=8;
        /// Reading one of them.
        walk_read_ns: f64 = 0.0..=100000.0;
        /// Walks in progress at a time.
        walks: u32 = 1..=4096;
    }
    /// A bare PCIe device, which has no queue pairs and no link.
    device: Device {
        /// Handing an operation to its DMA engine, until the first TLP.
        issue_ns: f64 = 0.0..=100000.0;
        /// Copying one byte of an operation between its own memories, before a write or after a read.
        copy_byte_ns: f64 = 0.0..=1000.0;
        /// Writes that it may send before the root port gives credits back (PCIe 3.0, 2.6.1).
        write_credits: u32 = 1..=4096;
    }
    /// The NIC.
    nic: Nic {
        /// Time of a request through the sending side, in addition to its occupancy.
        tx_ns: f64 = 0.0..=100000.0;
        /// Time of a packet through the receiving side, in addition to its occupancy.
        rx_ns: f64 = 0.0..=100000.0;
        /// Processing units; queue pairs are bound to them in turn.
        processing_units: u32 = 1..=4096;
        /// Time for which a request that came by MMIO occupies its queue pair's processing unit.
        unit_wqe_ns: f64 = 0.0..=100000.0;
        /// What a request that the NIC fetched occupies it longer.
        unit_fetch_ns: f64 = 0.0..=100000.0;
        /// Requests of a queue pair whose payload is on its way to the NIC at a time.
        gathers: u32 = 1..=4096;
        /// Sending requests of one 64 B line, per microsecond.
        send_mops: f64 = 0.001..=10000.0;
        /// What each further line of a request costs in the sending side.
        send_line_ns: f64 = 0.0..=100000.0;
        /// Requesting READs, per microsecond.
        read_request_mops: f64 = 0.001..=10000.0;
        /// Answering READs, per microsecond.
        read_response_mops: f64 = 0.001..=10000.0;
        /// Taking WRITEs, per microsecond.
        write_mops: f64 = 0.001..=10000.0;
        /// Taking messages with payload into receive requests, per microsecond.
        recv_mops: f64 = 0.001..=10000.0;
        /// Taking messages without payload into receive requests, per microsecond.
        recv_header_only_mops: f64 = 0.001..=10000.0;
        /// Taking READ requests, READ responses and acknowledgements, per microsecond.
        response_mops: f64 = 0.001..=10000.0;
        /// Contexts that it caches: one for each half of a queue pair, requester and responder.
        context_entries: u32 = 1..=10000000;
        /// Size of a context.
        context_bytes: u32 = 1..=65536;
        /// Contexts that it can load at a time without standing still.
        context_fetches: u32 = 1..=4096;
        /// What loading a context takes beyond the read over PCIe.
        context_load_ns: f64 = 0.0..=100000.0;
        /// Contexts that it can hold for initiators of the dynamically connected transport; 0: it has none.
        dc_contexts: u32 = 0..=1000000;
        /// Translations of addresses that it caches.
        translation_entries: u32 = 1..=100000000;
        /// Memory that one translation covers: the page size of registered memory.
        page_bytes: u32 = 4096..=1073741824;
        /// One command of the driver, such as registering or deregistering a region.
        command_ns: f64 = 0.0..=100000000.0;
        /// Send queue that it reads at a time, at the doorbell; of one line or less: only when a request
        /// is the next, the first line of it and then the rest.
        wqe_read_bytes: u32 = 64..=4096;
        /// WQEs that it keeps, the newest ones.
        wqe_entries: u32 = 1..=10000000;
        /// WQEs that it can read again at a time without its sending side standing still.
        wqe_fetches: u32 = 1..=4096;
        /// Atomic operations at different addresses that it locks apart.
        atomic_buckets: u32 = 1..=1000000;
        /// Atomic operations in progress at a time.
        atomic_slots: u32 = 1..=4096;
        /// What a locked read-modify-write takes beyond the read over PCIe.
        atomic_ns: f64 = 0.0..=100000.0;
        /// Longest inline payload.
        max_inline_bytes: u32 = 0..=4096;
        /// Longest payload that a receive gets within its completion.
        max_inline_recv_bytes: u32 = 0..=4096;
        /// Longest WQE that is written by MMIO.
        blueflame_bytes: u32 = 0..=4096;
        /// Queue pairs of a process that have an MMIO register of their own.
        blueflame_registers: u32 = 1..=65536;
        /// Size of a completion.
        cqe_bytes: u32 = 16..=128;
        /// READs and atomics that a queue pair may have in flight.
        max_rd_atomic: u32 = 1..=255;
    }
    /// TCP in the kernel, through a NIC that does no protocol.
    tcp: Tcp {
        /// Protocol and driver for one piece of a stream, sending or receiving.
        process_ns: f64 = 0.0..=1000000.0;
        /// Copying one byte between a program and the kernel.
        copy_byte_ns: f64 = 0.0..=1000.0;
        /// Largest piece that the kernel handles at once; at least a frame's.
        piece_bytes: u32 = 1..=1000000;
        /// A frame through the NIC, either way, in addition to PCIe and port.
        nic_ns: f64 = 0.0..=1000000.0;
        /// How long the NIC waits with an interrupt for more frames.
        interrupt_delay_ns: f64 = 0.0..=10000000.0;
        /// Bytes that may be unacknowledged.
        window_bytes: u32 = 4096..=1000000000;
    }
    /// Ports, cables and switches.
    link: Link {
        /// Data rate of a port.
        gbps: f64 = 0.01..=10000.0;
        /// Ports in use.
        ports: u32 = 1..=16;
        /// Path MTU.
        mtu_bytes: PowerOfTwo = 256..=4096;
        /// One cable.
        cable_ns: f64 = 0.0..=1000000000.0;
        /// Switches between two machines.
        switches: u32 = 0..=64;
        /// Room for arriving packets in a port, which credits are given for (IBTA vol. 1, 7.9).
        buffer_bytes: u32 = 256..=100000000;
        /// One switch.
        switch_ns: f64 = 0.0..=1000000.0;
    }
}

/// The parameter named `path`.
pub fn field(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}
