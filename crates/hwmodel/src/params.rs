//! The parameters of the model: what there is, in which unit, and within which range.
//!
//! Values come from preset files, each with its source ([`crate::preset`]).

use crate::preset::Kind;

/// What a parameter is.
#[derive(Clone, Copy)]
pub struct Field {
    /// `group.name`; the end of the name is the unit, where there is one.
    pub path: &'static str,
    /// What it means.
    pub doc: &'static str,
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

macro_rules! params {
    ($($(#[doc = $group_doc:literal])* $group:ident: $type:ident {
        $($(#[doc = $doc:literal])* $name:ident: $min:literal ..= $max:literal;)*
    })*) => {
        $(
            $(#[doc = $group_doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $type {
                $($(#[doc = $doc])* pub $name: f64,)*
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
                min: $min,
                max: $max,
                get: |p| p.$group.$name,
                set: |p, value| p.$group.$name = value,
            },)*)*
        ];
    };
}

params! {
    /// The host's processors.
    cpu: Cpu {
        /// Cores of one socket.
        cores: 1.0..=512.0;
        /// Hyper-threads of a core.
        threads_per_core: 1.0..=16.0;
        /// What the hyper-threads of a core do together, of what one does alone.
        smt_gain: 1.0..=8.0;
        /// One load or store of a thread that walks over lines that its core has, with its loop.
        access_ns: 0.1..=10000.0;
        /// Making one work request in memory, with the call that posts it, but for what goes to the NIC.
        wqe_build_ns: 0.1..=100000.0;
        /// Copying one further 64 B line of inline data or WQE.
        wqe_line_ns: 0.0..=10000.0;
        /// One 64 B line written to the NIC through a write-combining buffer.
        mmio_line_ns: 0.1..=100000.0;
        /// Ringing a doorbell.
        doorbell_ns: 0.1..=100000.0;
        /// Posting one receive request, but for its doorbell record.
        recv_build_ns: 0.1..=100000.0;
        /// One look at a completion queue or at memory that finds nothing.
        poll_empty_ns: 0.1..=100000.0;
        /// Taking one completion.
        poll_hit_ns: 0.1..=100000.0;
        /// Looking at one request of a program's own that has been loaded, and noting whom to answer.
        request_ns: 0.0..=100000.0;
        /// Hashing and comparing one key of a table whose lines have been loaded, and copying its value.
        lookup_ns: 0.0..=100000.0;
        /// An atomic instruction on a line that the core has.
        atomic_ns: 0.0..=10000.0;
        /// Lines that a core can wait for at a time.
        line_fills: 1.0..=1024.0;
        /// From the interrupt at the CPU until the sleeping program runs again.
        wake_ns: 0.0..=10000000.0;
        /// Of it, time that the program's own CPU is busy.
        wake_cpu_ns: 0.0..=10000000.0;
        /// One system call that finds its answer at hand.
        syscall_ns: 0.0..=1000000.0;
        /// Pinning, or letting go, a page of 4 KiB that is registered.
        pin_page_ns: 0.0..=100000.0;
        /// Reading the clock.
        clock_ns: 0.0..=10000.0;
        /// Message of the out-of-band channel, one way.
        out_of_band_ns: 0.0..=100000000.0;
    }
    /// Caches and memory.
    memory: Memory {
        /// Loading a line from the last-level cache.
        llc_ns: 0.1..=10000.0;
        /// Loading a line from memory.
        dram_ns: 0.1..=10000.0;
        /// The time that a line takes of memory's bandwidth.
        line_ns: 0.01..=1000.0;
        /// Serving a DMA read out of the last-level cache, from the root port on.
        dma_ns: 0.0..=10000.0;
        /// What a DMA read of memory takes longer than one of the last-level cache.
        dma_dram_extra_ns: 0.0..=10000.0;
        /// What a DMA access to the other socket's memory takes longer.
        dma_numa_extra_ns: 0.0..=10000.0;
        /// Passing a line on among cores, and between them and the NIC, that fight for it.
        line_transfer_ns: 0.0..=10000.0;
        /// Size of the last-level cache of a socket.
        llc_mib: 0.1..=4096.0;
        /// Its ways.
        llc_ways: 1.0..=64.0;
        /// Ways that the NIC's writes may allocate in.
        ddio_ways: 0.0..=64.0;
    }
    /// The link between root port and NIC.
    pcie: Pcie {
        /// Generation, 1 to 6.
        generation: 1.0..=6.0;
        /// Lanes.
        lanes: 1.0..=32.0;
        /// Largest payload of a write TLP.
        max_payload_bytes: 64.0..=4096.0;
        /// Largest read request.
        max_read_request_bytes: 64.0..=4096.0;
        /// Payload of the completion TLPs that the root port answers reads with.
        completion_bytes: 64.0..=4096.0;
        /// Share of the bandwidth left by acknowledgements and flow control.
        efficiency: 0.1..=1.0;
        /// One way between CPU or memory and NIC, but for the time of the bytes.
        one_way_ns: 1.0..=100000.0;
        /// Reads that the NIC can have in flight.
        read_tags: 1.0..=4096.0;
    }
    /// The translation of devices' addresses, where it is in use.
    iommu: Iommu {
        /// Size of a page.
        page_bytes: 64.0..=1073741824.0;
        /// Translations that it keeps.
        tlb_entries: 1.0..=10000000.0;
        /// Levels of page tables that a walk reads for a translation that it does not keep.
        walk_levels: 1.0..=8.0;
        /// Reading one of them.
        walk_read_ns: 0.0..=100000.0;
        /// Walks under way at a time.
        walks: 1.0..=4096.0;
    }
    /// A bare PCIe device, which has no queue pairs and no link.
    device: Device {
        /// Handing an operation to its DMA engine, until the first TLP.
        issue_ns: 0.0..=100000.0;
        /// Copying one byte of an operation between its own memories, before a write or after a read.
        copy_byte_ns: 0.0..=1000.0;
        /// Writes that it may send before the root port gives credits back (PCIe 3.0, 2.6.1).
        write_credits: 1.0..=4096.0;
    }
    /// The NIC.
    nic: Nic {
        /// Time of a request through the sending side, beside its occupancy.
        tx_ns: 0.0..=100000.0;
        /// Time of a packet through the receiving side, beside its occupancy.
        rx_ns: 0.0..=100000.0;
        /// Processing units; queue pairs are bound to them in turn.
        processing_units: 1.0..=4096.0;
        /// Time for which a request that came by MMIO occupies its queue pair's processing unit.
        unit_wqe_ns: 0.0..=100000.0;
        /// What a request that the NIC fetched occupies it longer.
        unit_fetch_ns: 0.0..=100000.0;
        /// Requests of a queue pair whose payload is on its way to the NIC at a time.
        gathers: 1.0..=4096.0;
        /// Sending requests of one 64 B line, per microsecond.
        send_mops: 0.001..=10000.0;
        /// What each further line of a request costs in the sending side.
        send_line_ns: 0.0..=100000.0;
        /// Requesting READs, per microsecond.
        read_request_mops: 0.001..=10000.0;
        /// Answering READs, per microsecond.
        read_response_mops: 0.001..=10000.0;
        /// Taking WRITEs, per microsecond.
        write_mops: 0.001..=10000.0;
        /// Taking messages with payload into receive requests, per microsecond.
        recv_mops: 0.001..=10000.0;
        /// Taking messages without payload into receive requests, per microsecond.
        recv_header_only_mops: 0.001..=10000.0;
        /// Taking READ requests, READ responses and acknowledgements, per microsecond.
        response_mops: 0.001..=10000.0;
        /// Contexts that it caches: one for each half of a queue pair, requester and responder.
        context_entries: 1.0..=10000000.0;
        /// Size of a context.
        context_bytes: 1.0..=65536.0;
        /// Contexts that it can load at a time without standing still.
        context_fetches: 1.0..=4096.0;
        /// What loading a context takes beyond the read over PCIe.
        context_load_ns: 0.0..=100000.0;
        /// Contexts that it can hold for initiators of the dynamically connected transport; 0: it has none.
        dc_contexts: 0.0..=1000000.0;
        /// Translations of addresses that it caches.
        translation_entries: 1.0..=100000000.0;
        /// Memory that one translation covers: the page size of registered memory.
        page_bytes: 4096.0..=1073741824.0;
        /// One command of the driver, such as registering or deregistering a region.
        command_ns: 0.0..=100000000.0;
        /// Send queue that it reads at a time, at the doorbell; of one line or less: only when a request's
        /// turn comes, the first line of it and then the rest.
        wqe_read_bytes: 64.0..=4096.0;
        /// WQEs that it keeps: those that came last.
        wqe_entries: 1.0..=10000000.0;
        /// WQEs that it can read again at a time without its sending side standing still.
        wqe_fetches: 1.0..=4096.0;
        /// Atomic operations at different addresses that it locks apart.
        atomic_buckets: 1.0..=1000000.0;
        /// Atomic operations that it has under way.
        atomic_slots: 1.0..=4096.0;
        /// What a locked read-modify-write takes beyond the read over PCIe.
        atomic_ns: 0.0..=100000.0;
        /// Longest inline payload.
        max_inline_bytes: 0.0..=4096.0;
        /// Longest payload that a receive gets within its completion.
        max_inline_recv_bytes: 0.0..=4096.0;
        /// Longest WQE that goes by MMIO.
        blueflame_bytes: 0.0..=4096.0;
        /// Queue pairs of a process that have an MMIO register of their own.
        blueflame_registers: 1.0..=65536.0;
        /// Size of a completion.
        cqe_bytes: 16.0..=128.0;
        /// READs and atomics that a queue pair may have in flight.
        max_rd_atomic: 1.0..=255.0;
    }
    /// TCP in the kernel, through a NIC that does no protocol.
    tcp: Tcp {
        /// Protocol and driver for one piece of a stream, sending or receiving.
        process_ns: 0.0..=1000000.0;
        /// Copying one byte between a program and the kernel.
        copy_byte_ns: 0.0..=1000.0;
        /// Largest piece that the kernel handles at once; at least a frame's.
        piece_bytes: 1.0..=1000000.0;
        /// A frame through the NIC, either way, beside PCIe and port.
        nic_ns: 0.0..=1000000.0;
        /// How long the NIC waits with an interrupt for more frames.
        interrupt_delay_ns: 0.0..=10000000.0;
        /// Bytes that may be unacknowledged.
        window_bytes: 4096.0..=1000000000.0;
    }
    /// Ports, cables and switches.
    link: Link {
        /// Data rate of a port.
        gbps: 0.01..=10000.0;
        /// Ports in use.
        ports: 1.0..=16.0;
        /// Path MTU.
        mtu_bytes: 256.0..=4096.0;
        /// One cable.
        cable_ns: 0.0..=1000000000.0;
        /// Switches between two machines.
        switches: 0.0..=64.0;
        /// Room for arriving packets in a port, which credits are given for (IBTA vol. 1, 7.9).
        buffer_bytes: 256.0..=100000000.0;
        /// One switch.
        switch_ns: 0.0..=1000000.0;
    }
}

/// The parameter named `path`.
pub fn field(path: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.path == path)
}
