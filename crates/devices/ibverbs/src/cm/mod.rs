//! Connections through `librdmacm` (IBTA vol. 1, chapter 12; for iWARP RFC 5044 and 6581).
//!
//! The queue pair belongs to this crate's context, not to the connection manager. The manager sends
//! its number to the peer and provides the attributes of each transition (`rdma_init_qp_attr`), which
//! are applied here. Attributes that the program chooses (path MTU, timers, retries, depths) override
//! the manager's. All waits have a timeout.

mod address;
pub(crate) mod connect;
mod event;
mod id;
pub(crate) mod multicast;
mod reason;

use std::io;
use std::net::SocketAddr;

use adverb_verbs::{LinkLayer, OpenError, PortNum};

use crate::choice::{Connecting, VerbsDevice};
use crate::gid::GidTableEntry;
use crate::library::CmLibrary;
use crate::raw::RawContext;

pub(crate) use id::{Id, Listener};

/// The connection manager for a port.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) library: &'static CmLibrary,
    /// The address of the RDMA port, to which listeners and outgoing connections are bound. Its port
    /// number is 0 (any).
    pub(crate) address: SocketAddr,
}

impl Manager {
    /// Returns the manager if it connects the queue pairs of this device, or `None` if the program does.
    pub(crate) fn of(
        device: &VerbsDevice,
        raw: &RawContext,
        (port, layer): (PortNum, LinkLayer),
        gid: GidTableEntry,
    ) -> Result<Option<Self>, OpenError> {
        if device.connecting() == Connecting::ByHand && layer != LinkLayer::Iwarp {
            return Ok(None);
        }
        let library =
            CmLibrary::get().map_err(|e| device.unavailable(e.to_string(), e.remedy()))?;
        event::Channel::new(library).map_err(|error| {
            let reason = format!("the connection manager does not answer: {error}");
            device.unavailable(reason, channel_remedy(&error))
        })?;
        let address = address::of(device, raw, (port, layer), gid)?;
        Ok(Some(Manager { library, address }))
    }
}

fn channel_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "let this user read and write /dev/infiniband/rdma_cm (rdma-core's udev rules do)"
        }
        _ => "load the kernel module rdma_ucm (`modprobe rdma_ucm`)",
    }
}
