//! An opened device: making objects and querying it.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use adverb_abi as abi;
use adverb_sysfs::Sysfs;
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressVector, AsyncEvent, AtomicCap, Context, Counters, CreateError, Device,
    DeviceCaps, DeviceName, Lid, LinkLayer, OpenError, PageKind, PathMtu, PollError, PortCaps,
    PortNum, PostApi, ProtectionDomain, QpCaps, QpInit, QpType, RegisterError, SrqCaps,
};

use crate::address::{VerbsAh, marking_of, signalled_mbps};
use crate::channel::VerbsChannel;
use crate::choice::{GidChoice, Interface, VerbsDevice};
use crate::cm::Manager;
use crate::cq::VerbsCq;
use crate::explain::{memlock_remedy, object_error};
use crate::faults::Faults;
use crate::gid::choose;
use crate::handle::{DeviceAttr, Handle, PdInner};
use crate::library::Library;
use crate::mapping::PageCounts;
use crate::memory::VerbsMr;
use crate::provenance;
use crate::qp::VerbsQp;
use crate::raw::RawContext;
use crate::srq::VerbsSrq;

/// An opened device. It stays open as long as an object made from it exists.
#[derive(Debug)]
pub struct VerbsContext {
    handle: Arc<Handle>,
}

impl VerbsContext {
    pub(crate) fn new(device: &VerbsDevice, raw: RawContext) -> Result<Self, OpenError> {
        let attr = raw
            .query_device()
            .map_err(|e| device.system("query the device", e))?;
        let port = device.find_port(&raw, attr.phys_port_cnt)?;
        let port_attr = raw
            .query_port(port)
            .map_err(|e| device.system(&format!("query port {port}"), e))?;
        let layer = raw.link_layer(&port_attr);
        let gid = device.find_gid(&raw, (port, layer))?;
        let manager = Manager::of(device, &raw, (port, layer), gid)?;
        let faults =
            Faults::watch(&raw).map_err(|e| device.system("watch asynchronous events", e))?;
        let inline = probe_inline(&raw).map_err(|source| {
            let action = "make a queue pair to find the inline maximum";
            let remedy = memlock_remedy(&source, Bytes::kib(64));
            let reason = format!("cannot {action}: {source}");
            device.unavailable(reason, remedy.trim_start_matches("; "))
        })?;
        let handle = Arc::new(Handle {
            name: device.name(),
            caps: caps(&attr, inline),
            attr: DeviceAttr {
                ports: attr.phys_port_cnt,
                max_qp_init_rd_atom: attr.max_qp_init_rd_atom,
                vendor: (attr.vendor_id, attr.vendor_part_id),
                firmware: crate::raw::text(&attr.fw_ver),
            },
            port,
            layer,
            max_message: Bytes::new(port_attr.max_msg_sz.into()),
            gid,
            manager,
            posting: device.posting,
            polling: device.polling,
            next_cq: AtomicU32::new(1),
            next_srq: AtomicU32::new(1),
            faults,
            pages: PageCounts::default(),
            raw,
        });
        let context = VerbsContext { handle };
        context.try_interfaces(device)?;
        Ok(context)
    }

    /// Creates a queue pair to find out whether the driver has the requested interfaces.
    fn try_interfaces(&self, device: &VerbsDevice) -> Result<(), OpenError> {
        if (device.posting, device.polling) == (Interface::Classic, Interface::Classic) {
            return Ok(());
        }
        let made = self.alloc_pd().and_then(|pd| {
            let cq = self.create_cq(1, None)?;
            let init = QpInit::new(QpType::Rc, &cq, QpCaps::new(1, 1));
            self.create_qp(&pd, &init).map(drop)
        });
        made.map_err(|error| device.unavailable(error.to_string(), "use the classic interface"))
    }
}

fn caps(attr: &abi::ibv_device_attr, max_inline_data: u32) -> DeviceCaps {
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    DeviceCaps {
        max_qp: count(attr.max_qp),
        max_qp_wr: count(attr.max_qp_wr),
        max_sge: count(attr.max_sge),
        max_cq: count(attr.max_cq),
        max_cqe: count(attr.max_cqe),
        max_mr: count(attr.max_mr),
        // Drivers without a limit report 2^64 - 1; an allocation is at most half the address space.
        max_mr_size: Bytes::new(attr.max_mr_size.min(isize::MAX as u64)),
        max_qp_rd_atom: u8::try_from(attr.max_qp_rd_atom.max(0)).unwrap_or(u8::MAX),
        max_inline_data,
        max_srq: count(attr.max_srq),
        max_srq_wr: count(attr.max_srq_wr),
        max_srq_sge: count(attr.max_srq_sge),
        atomics: match attr.atomic_cap {
            abi::IBV_ATOMIC_HCA => AtomicCap::Device,
            abi::IBV_ATOMIC_GLOB => AtomicCap::System,
            _ => AtomicCap::None,
        },
    }
}

/// Returns the largest `max_inline_data` that a queue pair with one SGE accepts. `ibv_device_attr`
/// does not contain it, so this creates queue pairs in a binary search.
fn probe_inline(raw: &RawContext) -> io::Result<u32> {
    const BEYOND: u32 = 1 << 14;
    let library = raw.library;
    // SAFETY: the context is open; the CQ is destroyed below, after the queue pairs.
    let cq =
        unsafe { (library.ibv_create_cq)(raw.as_ptr(), 1, ptr::null_mut(), ptr::null_mut(), 0) };
    let cq = NonNull::new(cq).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the context is open; the domain is deallocated below, after the queue pairs.
    let pd = unsafe { (library.ibv_alloc_pd)(raw.as_ptr()) };
    let found = match NonNull::new(pd) {
        None => Err(io::Error::last_os_error()),
        Some(pd) => {
            let found = largest_inline(library, (pd, cq), BEYOND);
            // SAFETY: `largest_inline` has destroyed the queue pairs of the domain.
            unsafe { (library.ibv_dealloc_pd)(pd.as_ptr()) };
            found
        }
    };
    // SAFETY: the queue pairs that used the CQ are destroyed.
    unsafe { (library.ibv_destroy_cq)(cq.as_ptr()) };
    found
}

fn largest_inline(
    library: &Library,
    (pd, cq): (NonNull<abi::ibv_pd>, NonNull<abi::ibv_cq>),
    beyond: u32,
) -> io::Result<u32> {
    let makes = |max_inline_data| -> io::Result<()> {
        let mut init = abi::ibv_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            cap: abi::ibv_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data,
            },
            qp_type: abi::IBV_QPT_RC,
            ..abi::ibv_qp_init_attr::zeroed()
        };
        // SAFETY: the caller destroys domain and CQ after this returns.
        let qp = unsafe { (library.ibv_create_qp)(pd.as_ptr(), &raw mut init) };
        let qp = NonNull::new(qp).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: it was just created and nothing refers to it.
        unsafe { (library.ibv_destroy_qp)(qp.as_ptr()) };
        Ok(())
    };
    makes(0)?;
    let (mut fits, mut refused) = (0, beyond);
    while fits + 1 < refused {
        let middle = fits.midpoint(refused);
        match makes(middle) {
            Ok(()) => fits = middle,
            Err(_) => refused = middle,
        }
    }
    Ok(fits)
}

impl Context for VerbsContext {
    type Pd = VerbsPd;
    type Mr = VerbsMr;
    type Channel = VerbsChannel;
    type Cq = VerbsCq;
    type Qp = VerbsQp;
    type Srq = VerbsSrq;
    type Ah = VerbsAh;

    fn name(&self) -> DeviceName {
        self.handle.name.clone()
    }

    fn caps(&self) -> &DeviceCaps {
        &self.handle.caps
    }

    fn port_num(&self) -> PortNum {
        self.handle.port
    }

    fn connects_by_manager(&self) -> bool {
        self.handle.manager.is_some()
    }

    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError> {
        let handle = &self.handle;
        let ports = handle.attr.ports;
        if !(1..=ports).contains(&port.0) {
            return Err(CreateError::OutOfRange {
                what: "port number",
                value: port.0.into(),
                min: 1,
                max: ports.into(),
            });
        }
        let failed = |what: &str, source| object_error(&format!("{what} of port {port}"), source);
        let attr = handle.raw.query_port(port);
        let attr = attr.map_err(|e| failed("query the state", e))?;
        let link_layer = handle.raw.link_layer(&attr);
        let gid = if port == handle.port {
            handle.gid
        } else {
            let gids = handle.raw.gids(port, link_layer);
            let gids = gids.map_err(|e| failed("read the table of GIDs", e))?;
            choose(&gids, link_layer, GidChoice::Automatic)
                .map_err(|e| failed("choose a GID", io::Error::other(e)))?
        };
        Ok(PortCaps {
            link_layer,
            active_mtu: path_mtu(attr.active_mtu),
            max_msg_sz: Bytes::new(attr.max_msg_sz.into()),
            lid: Lid(attr.lid),
            gid: gid.gid,
            gid_index: gid.index,
            gid_type: gid.gid_type,
            marking: marking_of(link_layer),
            max_rate_mbps: (link_layer == LinkLayer::InfiniBand).then(|| signalled_mbps(&attr)),
        })
    }

    fn counters(&self) -> Counters {
        let handle = &self.handle;
        Sysfs::default()
            .counters(&handle.raw.name(), handle.port)
            .unwrap_or_default()
    }

    fn provenance(&self) -> Vec<(String, String)> {
        provenance::of(&self.handle)
    }

    fn numa_node(&self) -> Option<u32> {
        let device = Sysfs::default().device_without_gids(&self.handle.raw.name());
        device.ok().flatten()?.numa_node
    }

    fn alloc_pd(&self) -> Result<VerbsPd, CreateError> {
        let handle = self.handle.clone();
        // SAFETY: the context is open.
        let pd = unsafe { (handle.library().ibv_alloc_pd)(handle.raw.as_ptr()) };
        let raw = NonNull::new(pd).ok_or_else(|| {
            object_error("allocate a protection domain", io::Error::last_os_error())
        })?;
        Ok(VerbsPd {
            inner: Arc::new(PdInner { raw, handle }),
        })
    }

    fn create_channel(&self) -> Result<VerbsChannel, CreateError> {
        VerbsChannel::new(&self.handle)
    }

    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&VerbsChannel>,
    ) -> Result<VerbsCq, CreateError> {
        VerbsCq::new(&self.handle, entries, channel)
    }

    fn alloc_mr(
        &self,
        pd: &VerbsPd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<VerbsMr, RegisterError> {
        if !Arc::ptr_eq(&pd.inner.handle, &self.handle) {
            return Err(RegisterError::Foreign);
        }
        VerbsMr::new(&pd.inner, (length, access), None)
    }

    fn alloc_mr_on(
        &self,
        pages: PageKind,
        pd: &VerbsPd,
        region: (Bytes, AccessFlags),
    ) -> Result<VerbsMr, RegisterError> {
        if !Arc::ptr_eq(&pd.inner.handle, &self.handle) {
            return Err(RegisterError::Foreign);
        }
        VerbsMr::new(&pd.inner, region, Some(pages))
    }

    fn create_qp(&self, pd: &VerbsPd, init: &QpInit<'_, VerbsCq>) -> Result<VerbsQp, CreateError> {
        self.check_domain(pd)?;
        VerbsQp::new(&pd.inner, init, None, self.handle.posting)
    }

    fn create_qp_with_api(
        &self,
        pd: &VerbsPd,
        init: &QpInit<'_, VerbsCq>,
        api: PostApi,
    ) -> Result<VerbsQp, CreateError> {
        self.check_domain(pd)?;
        VerbsQp::new(&pd.inner, init, None, api.into())
    }

    fn create_srq(&self, pd: &VerbsPd, caps: &SrqCaps) -> Result<VerbsSrq, CreateError> {
        self.check_domain(pd)?;
        VerbsSrq::new(&pd.inner, caps)
    }

    fn create_qp_with_srq(
        &self,
        pd: &VerbsPd,
        init: &QpInit<'_, VerbsCq>,
        srq: &VerbsSrq,
    ) -> Result<VerbsQp, CreateError> {
        self.check_domain(pd)?;
        let caps = QpCaps {
            max_recv_wr: 0,
            max_recv_sge: 0,
            ..init.caps
        };
        let init = QpInit { caps, ..*init };
        VerbsQp::new(&pd.inner, &init, Some(&srq.inner), self.handle.posting)
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        let handle = &self.handle;
        handle.faults.collect(&handle.raw);
        if handle.faults.device_failed() {
            let name = &handle.name;
            return Err(PollError::Device(format!("{name} reports a fatal error")));
        }
        Ok(handle.faults.take_event())
    }

    fn create_ah(&self, pd: &VerbsPd, address: &AddressVector) -> Result<VerbsAh, CreateError> {
        self.check_domain(pd)?;
        VerbsAh::new(&pd.inner, address)
    }
}

impl VerbsContext {
    fn check_domain(&self, pd: &VerbsPd) -> Result<(), CreateError> {
        if Arc::ptr_eq(&pd.inner.handle, &self.handle) {
            return Ok(());
        }
        Err(CreateError::Foreign {
            what: "the protection domain",
        })
    }
}

/// Converts an `ibv_mtu`; an unknown value counts as the largest known MTU.
fn path_mtu(code: u32) -> PathMtu {
    match code {
        abi::IBV_MTU_256 => PathMtu::B256,
        abi::IBV_MTU_512 => PathMtu::B512,
        abi::IBV_MTU_1024 => PathMtu::B1024,
        abi::IBV_MTU_2048 => PathMtu::B2048,
        _ => PathMtu::B4096,
    }
}

/// A protection domain.
#[derive(Debug)]
pub struct VerbsPd {
    pub(crate) inner: Arc<PdInner>,
}

impl ProtectionDomain for VerbsPd {}
