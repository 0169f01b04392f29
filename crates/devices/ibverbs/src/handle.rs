//! What the objects of a device share: the opened device and the protection domain.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use adverb_abi as abi;
use adverb_units::Bytes;
use adverb_verbs::{DeviceCaps, DeviceName, LinkLayer, PortNum, Unsupported};

use crate::choice::Interface;
use crate::cm::Manager;
use crate::faults::Faults;
use crate::gid::GidTableEntry;
use crate::library::Library;
use crate::mapping::PageCounts;
use crate::raw::RawContext;

/// The opened device, shared by all objects made from it: the last of them closes it.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) name: DeviceName,
    pub(crate) caps: DeviceCaps,
    pub(crate) attr: DeviceAttr,
    pub(crate) port: PortNum,
    pub(crate) layer: LinkLayer,
    pub(crate) max_message: Bytes,
    pub(crate) gid: GidTableEntry,
    /// Connects queue pairs; `None` if the program does that by hand.
    pub(crate) manager: Option<Manager>,
    pub(crate) posting: Interface,
    pub(crate) polling: Interface,
    pub(crate) next_cq: AtomicU32,
    pub(crate) next_srq: AtomicU32,
    pub(crate) faults: Faults,
    pub(crate) pages: PageCounts,
    pub(crate) raw: RawContext,
}

/// The fields of `ibv_device_attr` that [`DeviceCaps`] lacks.
#[derive(Clone, Debug)]
pub(crate) struct DeviceAttr {
    /// Number of ports (`phys_port_cnt`).
    pub(crate) ports: u8,
    /// READs and atomics that a queue pair may have outstanding as the requester.
    pub(crate) max_qp_init_rd_atom: i32,
    /// `vendor_id` and `vendor_part_id`.
    pub(crate) vendor: (u32, u32),
    /// Firmware version (`fw_ver`).
    pub(crate) firmware: String,
}

impl Handle {
    pub(crate) fn library(&self) -> &'static Library {
        self.raw.library
    }

    /// The error that this device lacks `feature`.
    pub(crate) fn unsupported(&self, feature: &'static str) -> Unsupported {
        Unsupported {
            feature,
            device: self.name.0.clone(),
        }
    }
}

/// A protection domain, shared by the objects made in it: the last of them deallocates it.
#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) raw: NonNull<abi::ibv_pd>,
    pub(crate) handle: Arc<Handle>,
}

// SAFETY: verbs are thread-safe, and the pointer is only passed to them.
unsafe impl Send for PdInner {}
// SAFETY: as for `Send`.
unsafe impl Sync for PdInner {}

impl Drop for PdInner {
    fn drop(&mut self) {
        // SAFETY: objects of the domain hold an `Arc` of it, so none is left; it is deallocated once.
        unsafe { (self.handle.library().ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}
