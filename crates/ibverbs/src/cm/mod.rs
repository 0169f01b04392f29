//! Connections through `librdmacm` (IBTA vol. 1, chapter 12; for iWARP RFC 5044 and 6581).
//!
//! The queue pair stays one of our own context: the connection manager carries its number to the
//! peer and tells the attributes for each transition (`rdma_init_qp_attr`), which are applied here.
//! Where the program chooses as well as it does by hand (path MTU, timers, retries, depths), its
//! choice stands. All waits are bounded.

mod address;
mod connect;
mod event;
mod id;
mod reason;

use std::io;
use std::net::SocketAddr;

use adverb_verbs::{LinkLayer, OpenError, PortNum};

use crate::choice::{Connecting, VerbsDevice};
use crate::gid::GidTableEntry;
use crate::library::CmLibrary;
use crate::raw::RawContext;

pub(crate) use connect::{active, passive};
pub(crate) use id::{Id, Listener};

/// The connection manager, for a port.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) library: &'static CmLibrary,
    /// The port's address, by which both the listener and outgoing connections are bound to it;
    /// its port number is 0: any.
    pub(crate) address: SocketAddr,
}

impl Manager {
    /// The manager of a device whose queue pairs it is to connect; none where that is done by hand.
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
