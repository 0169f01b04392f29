//! What a machine's CPUs take for things.

use adverb_units::Span;

use crate::host::root::Root;
use crate::params::Params;
use crate::rate::ns;

/// What CPUs take for things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    pub(crate) wqe_build: Span,
    pub(crate) wqe_line: Span,
    pub(crate) mmio_line: Span,
    pub(crate) doorbell: Span,
    pub(crate) recv_build: Span,
    pub(crate) poll_empty: Span,
    pub(crate) poll_hit: Span,
    /// Loading a line that the NIC has just written.
    pub(crate) fresh_line: Span,
    pub(crate) wake: Span,
    pub(crate) wake_cpu: Span,
    pub(crate) syscall: Span,
    pub(crate) clock: Span,
    pub(crate) pin_page: Span,
    pub(crate) out_of_band: Span,
}

impl CpuTimes {
    pub(crate) fn new(p: &Params, root: &Root) -> Self {
        let c = &p.cpu;
        Self {
            wqe_build: ns(c.wqe_build_ns),
            wqe_line: ns(c.wqe_line_ns),
            mmio_line: ns(c.mmio_line_ns),
            doorbell: ns(c.doorbell_ns),
            recv_build: ns(c.recv_build_ns),
            poll_empty: ns(c.poll_empty_ns),
            poll_hit: ns(c.poll_hit_ns),
            fresh_line: if root.allocates() {
                ns(p.memory.llc_ns)
            } else {
                ns(p.memory.dram_ns)
            },
            wake: ns(c.wake_ns),
            wake_cpu: ns(c.wake_cpu_ns),
            syscall: ns(c.syscall_ns),
            clock: ns(c.clock_ns),
            pin_page: ns(c.pin_page_ns),
            out_of_band: ns(c.out_of_band_ns),
        }
    }
}
