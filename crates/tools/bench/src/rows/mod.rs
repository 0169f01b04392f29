//! The comparisons, in the order in which they are measured and shown.

mod degen;
mod guests;
mod local;
mod model;
mod programs;
mod store;
mod tcp;
mod transport;
mod udp;
mod unmodified;

use crate::row::Bound;

/// Comparisons that belong together: a table.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    pub(crate) bounds: &'static [Bound],
}

pub(crate) const SECTIONS: &[Section] = &[
    Section {
        title: "User-space NIC, both ends on this host",
        bounds: local::ROWS,
    },
    Section {
        title: "Unmodified programs on the user-space NIC, by `adverb run`",
        bounds: unmodified::ROWS,
    },
    Section {
        title: "Programs: one engine, however its roles are started and whatever its queue pairs share",
        bounds: programs::ROWS,
    },
    Section {
        title: "Services, compared with services over TCP",
        bounds: store::ROWS,
    },
    Section {
        title: "User-space NIC, UDP port over the loopback device",
        bounds: udp::ROWS,
    },
    Section {
        title: "Kernel TCP over the loopback device, without RDMA",
        bounds: tcp::ROWS,
    },
    Section {
        title: "A long path: `degen` between two network namespaces, TUN and a router in user space",
        bounds: degen::ROWS,
    },
    Section {
        title: "Transport: two queue pairs joined by a buffer, both on one core; packets with and without ICRC",
        bounds: transport::ROWS,
    },
    Section {
        title: "Model: its own speed",
        bounds: model::ROWS,
    },
    Section {
        title: "In two virtual machines: emulated processors, so that only the ratios mean something",
        bounds: guests::ROWS,
    },
];
