//! `ibv_context` and its queries, in terms of C.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::mem::offset_of;
use std::ptr::NonNull;

use adverb_abi as abi;
use adverb_sysfs::{Open, Sysfs};
use adverb_verbs::{Gid, GidType, LinkLayer, PortNum};

use crate::gid::GidTableEntry;
use crate::library::Library;

/// `ibv_context`, closed when dropped.
#[derive(Debug)]
pub(crate) struct RawContext {
    pub(crate) library: &'static Library,
    context: NonNull<abi::ibv_context>,
}

// SAFETY: verbs are thread-safe (IBTA vol. 1, 10.2.1), and this crate only reads the `ibv_context`.
unsafe impl Send for RawContext {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawContext {}

impl Drop for RawContext {
    fn drop(&mut self) {
        // SAFETY: objects of the context hold an `Arc` of its owner, so none is left; it is closed once.
        unsafe { (self.library.ibv_close_device)(self.as_ptr()) };
    }
}

impl RawContext {
    /// Takes ownership of `context`, which `library` opened.
    pub(crate) fn new(library: &'static Library, context: NonNull<abi::ibv_context>) -> Self {
        RawContext { library, context }
    }

    pub(crate) fn as_ptr(&self) -> *mut abi::ibv_context {
        self.context.as_ptr()
    }

    /// Returns the name of the device in the library.
    pub(crate) fn name(&self) -> String {
        // SAFETY: the context is open, so its device is valid.
        text(unsafe { &(*(*self.as_ptr()).device).name })
    }

    /// Whether the device is an iWARP adapter.
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: the context is open, so its device is valid.
        unsafe { (*(*self.as_ptr()).device).transport_type == abi::IBV_TRANSPORT_IWARP }
    }

    /// Returns the descriptor from which asynchronous events are read.
    pub(crate) fn async_fd(&self) -> c_int {
        // SAFETY: the context is open.
        unsafe { (*self.as_ptr()).async_fd }
    }

    /// `ibv_query_device`.
    pub(crate) fn query_device(&self) -> io::Result<abi::ibv_device_attr> {
        let mut attr = abi::ibv_device_attr::zeroed();
        // SAFETY: the context is open, the structure is exclusive.
        check(unsafe { (self.library.ibv_query_device)(self.as_ptr(), &raw mut attr) })?;
        Ok(attr)
    }

    /// `ibv_query_port`.
    pub(crate) fn query_port(&self, port: PortNum) -> io::Result<abi::ibv_port_attr> {
        type QueryPort = unsafe extern "C" fn(
            *mut abi::ibv_context,
            u8,
            *mut abi::ibv_port_attr,
            usize,
        ) -> c_int;
        let mut attr = abi::ibv_port_attr::zeroed();
        let (context, to) = (self.as_ptr(), &raw mut attr);
        // SAFETY: the context is open; rdma-core declares this member with the type `QueryPort`.
        let op = unsafe {
            abi::verbs_context::op::<QueryPort>(context, offset_of!(abi::verbs_context, query_port))
        };
        // SAFETY: the structure is exclusive. The newer function gets its size; the older one writes
        // only the beginning of it.
        check(unsafe {
            match op {
                Some(query) => query(context, port.0, to, size_of_val(&attr)),
                None => (self.library.ibv_query_port)(context, port.0, to),
            }
        })?;
        Ok(attr)
    }

    /// Returns the GID table of a port without its empty entries.
    pub(crate) fn gids(&self, port: PortNum, layer: LinkLayer) -> io::Result<Vec<GidTableEntry>> {
        match self.library.query_gid_table {
            Some(query) => self.gid_table(query, port, layer),
            None => self.gids_of_sysfs(port),
        }
    }

    fn gid_table(
        &self,
        query: unsafe extern "C" fn(
            *mut abi::ibv_context,
            *mut abi::ibv_gid_entry,
            usize,
            u32,
            usize,
        ) -> isize,
        port: PortNum,
        layer: LinkLayer,
    ) -> io::Result<Vec<GidTableEntry>> {
        let ports = self.query_device()?.phys_port_cnt;
        let mut length = 0;
        for port in 1..=ports {
            length += self.query_port(PortNum(port))?.gid_tbl_len.max(0) as usize;
        }
        let mut entries = vec![abi::ibv_gid_entry::zeroed(); length];
        let size = size_of::<abi::ibv_gid_entry>();
        // SAFETY: `entries` has room for `length` entries of `size` bytes.
        let found = unsafe { query(self.as_ptr(), entries.as_mut_ptr(), length, 0, size) };
        let found = usize::try_from(found)
            .map_err(|_| io::Error::from_raw_os_error((-found).try_into().unwrap_or(libc::EIO)))?;
        entries.truncate(found);
        Ok(entries
            .iter()
            .filter(|entry| entry.port_num == u32::from(port.0))
            .map(|entry| table_entry(entry, layer))
            .collect())
    }

    fn gids_of_sysfs(&self, port: PortNum) -> io::Result<Vec<GidTableEntry>> {
        let device = Sysfs::default().device(&self.name());
        let device = device.map_err(io::Error::other)?;
        let port = device.as_ref().and_then(|device| device.port(port));
        let known = |kind: &Open<GidType>| kind.known();
        Ok(port
            .iter()
            .flat_map(|port| &port.gids)
            .map(|entry| GidTableEntry {
                index: entry.index,
                gid: entry.gid,
                gid_type: entry.gid_type.as_ref().and_then(known),
            })
            .collect())
    }

    /// Returns the link layer of a port.
    pub(crate) fn link_layer(&self, attr: &abi::ibv_port_attr) -> LinkLayer {
        match attr.link_layer {
            _ if self.is_iwarp() => LinkLayer::Iwarp,
            abi::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        }
    }
}

fn table_entry(entry: &abi::ibv_gid_entry, layer: LinkLayer) -> GidTableEntry {
    let gid_type = match (entry.gid_type, layer) {
        (_, LinkLayer::Iwarp) => None,
        (abi::IBV_GID_TYPE_IB, _) => Some(GidType::InfiniBand),
        (abi::IBV_GID_TYPE_ROCE_V1, _) => Some(GidType::RoceV1),
        (abi::IBV_GID_TYPE_ROCE_V2, _) => Some(GidType::RoceV2),
        _ => None,
    };
    GidTableEntry {
        index: entry.gid_index,
        // SAFETY: any bytes are a valid GID.
        gid: Gid(unsafe { entry.gid.raw }),
        gid_type,
    }
}

/// Converts the result of a verb: 0, an errno or its negative, or -1 with `errno` set.
pub(crate) fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        errno => Err(io::Error::from_raw_os_error(errno.abs())),
    }
}

/// Converts a C string in an array.
pub(crate) fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes);
    text.map_or_else(
        |_| String::new(),
        |text| text.to_string_lossy().into_owned(),
    )
}
