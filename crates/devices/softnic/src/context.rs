//! The device and its context.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, AhRef, AsyncEvent, AtomicCap, Context, Counters,
    CreateError, Device, DeviceCaps, DeviceName, GidType, Impairment, Lid, LinkLayer, MAX_MESSAGE,
    OpenError, PacketMarking, PollError, PortCaps, PortNum, QpCaps, QpInit, QpType, Qpn,
    RegisterError, SrqCaps, Unsupported,
};

use crate::channel::SoftChannel;
use crate::cq::{MAX_CQE, SoftCq};
use crate::domain::{Handle, SoftPd};
use crate::engine::Engine;
use crate::memory::{MAX_MR_SIZE, Registration, SoftMr};
use crate::port::Port;
#[cfg(feature = "testing")]
use crate::port::PrivateReach;
use crate::qp::{MAX_RD_ATOM, SoftQp};
use crate::shm::dir::DirPath;
use crate::shm::layout::{FIRST_QP, MAX_CQ, MAX_MR, MAX_QP, MAX_SRQ, qp_index, slot_of};
use crate::shm::peer::check_pidfd;
use crate::shm::quiesce;
use crate::shm::sync::lock;
use crate::srq::SoftSrq;
use crate::udp::{Udp, UdpAddress, UdpPeers, ip_of};
use crate::xrc::SoftXrcd;

/// Maximum number of requests in a queue (`max_qp_wr`).
pub(crate) const MAX_WR: u32 = 1 << 15;
/// Maximum number of SGEs of a request (`max_sge`).
pub(crate) const MAX_SGE: u32 = 16;
/// Maximum inline payload in bytes (`max_inline_data`).
pub(crate) const MAX_INLINE: u32 = 1024;

/// The user-space NIC.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftDevice {
    udp: Option<UdpBinding>,
    memory: NewMemory,
}

/// Where regions are that a program asks the device to allocate.
#[derive(Clone, Copy, Debug, Default)]
enum NewMemory {
    /// In files of shared memory.
    #[default]
    Files,
    /// In private memory of the process, which is registered.
    #[cfg(feature = "testing")]
    Private(PrivateReach),
}

/// The address of the UDP port, and the peers that it reaches.
#[derive(Clone, Copy, Debug)]
struct UdpBinding {
    ip: IpAddr,
    peers: UdpPeers,
}

impl SoftDevice {
    /// The device with a local port only. Opening it creates this process's port.
    pub fn new() -> Self {
        SoftDevice::default()
    }

    /// The device with a UDP port at an address of this host and network namespace.
    pub fn at(ip: IpAddr) -> Self {
        SoftDevice::reaching(ip, UdpPeers::Unshared)
    }

    /// The same, with faults injected into sent packets. All peers are reached over UDP, also those that share
    /// memory; they have to be opened with fault injection, too.
    pub fn impaired_at(ip: IpAddr, how: Impairment) -> Self {
        SoftDevice::reaching(ip, UdpPeers::All(how))
    }

    fn reaching(ip: IpAddr, peers: UdpPeers) -> Self {
        let ip = ip.to_canonical();
        SoftDevice {
            udp: Some(UdpBinding { ip, peers }),
            ..SoftDevice::default()
        }
    }

    /// The same device, whose regions are private memory of the process, registered as a program would register its own.
    #[cfg(feature = "testing")]
    pub fn with_private_memory(self, reach: PrivateReach) -> Self {
        SoftDevice {
            memory: NewMemory::Private(reach),
            ..self
        }
    }
}

impl Device for SoftDevice {
    type Context = SoftContext;

    fn name(&self) -> DeviceName {
        DeviceName(match self.udp {
            None => "soft".into(),
            Some(UdpBinding { ip, .. }) => format!("soft@{ip}"),
        })
    }

    fn open(&self) -> Result<SoftContext, OpenError> {
        check_kernel()?;
        let path = DirPath::from_env();
        let port = Arc::new(match self.udp {
            None => Port::open(&path, None)?,
            Some(UdpBinding { ip, peers }) => {
                Port::open(&path.of_address(ip), Some(UdpAddress::new(ip, peers)?))?
            }
        });
        #[cfg(feature = "testing")]
        if let NewMemory::Private(reach) = self.memory {
            let _ = port.private_reach.set(reach);
        }
        let engine = Engine::start(port.clone()).map_err(|source| OpenError::System {
            device: "soft".into(),
            action: "start the engine thread".into(),
            source,
        })?;
        let caps = DeviceCaps {
            max_qp: MAX_QP - FIRST_QP,
            max_qp_wr: MAX_WR,
            max_sge: MAX_SGE,
            max_cq: MAX_CQ,
            max_cqe: MAX_CQE,
            max_mr: MAX_MR,
            max_mr_size: MAX_MR_SIZE,
            max_qp_rd_atom: MAX_RD_ATOM,
            max_inline_data: MAX_INLINE,
            max_srq: MAX_SRQ,
            max_srq_wr: MAX_WR,
            max_srq_sge: MAX_SGE,
            atomics: AtomicCap::System,
        };
        Ok(SoftContext {
            device: *self,
            handle: Arc::new(Handle::new(port, engine)),
            caps,
        })
    }
}

/// The opened user-space NIC.
#[derive(Debug)]
pub struct SoftContext {
    device: SoftDevice,
    handle: Arc<Handle>,
    caps: DeviceCaps,
}

/// An address handle of the user-space NIC. Dropping it destroys it.
#[derive(Debug)]
pub struct SoftAh {
    target: AhTarget,
}

/// The destination of its datagrams.
#[derive(Debug)]
enum AhTarget {
    /// Ports of this host at the same address; the queue pair number determines the port.
    SharedMemory { pd: u32 },
    /// Another address, over UDP. The UDP port stores it under this name.
    Udp { name: u64, handle: Arc<Handle> },
}

impl AddressHandle for SoftAh {
    fn handle(&self) -> AhRef<'_> {
        let name = match self.target {
            AhTarget::SharedMemory { pd } => pd.into(),
            AhTarget::Udp { name, .. } => name,
        };
        // SAFETY: the device's name for a handle is its domain's number, or a name from the UDP port. Neither
        // is ever reused.
        unsafe { AhRef::from_raw(name) }
    }
}

impl Drop for SoftAh {
    fn drop(&mut self) {
        if let AhTarget::Udp { name, handle } = &self.target
            && !handle.port.is_inherited()
            && let Some(udp) = &handle.port.udp
        {
            udp.forget_handle(*name);
        }
    }
}

/// Checks the system calls that have no replacement, so that a missing one fails the opening of the device and
/// nothing later.
fn check_kernel() -> Result<(), OpenError> {
    let unavailable = |reason: String, remedy: &str| OpenError::Unavailable {
        device: "soft".into(),
        reason,
        remedy: remedy.into(),
    };
    quiesce::register().map_err(|e| {
        let reason = format!("the kernel refuses membarrier for other processes ({e})");
        unavailable(
            reason,
            "Linux 4.16 or later is needed; in a container, allow membarrier in its seccomp profile",
        )
    })?;
    check_pidfd().map_err(|e| unavailable(format!("pidfd_open failed ({})", e.0), e.remedy()))
}

fn check_port(port: PortNum) -> Result<(), CreateError> {
    if port == PortNum::ONE {
        return Ok(());
    }
    Err(CreateError::OutOfRange {
        what: "port number",
        value: port.0.into(),
        min: 1,
        max: 1,
    })
}

#[cfg(feature = "testing")]
impl SoftContext {
    /// Injects the faults that a closure chooses into all packets that arrive over UDP from now on.
    pub fn inject_faults(&self, rule: impl FnMut(&[u8]) -> Option<crate::Fault> + Send + 'static) {
        if let Some(udp) = &self.handle.port.udp {
            udp.inject(rule);
        }
    }
}

impl Context for SoftContext {
    type Pd = SoftPd;
    type Mr = SoftMr;
    type Channel = SoftChannel;
    type Cq = SoftCq;
    type Qp = SoftQp;
    type Srq = SoftSrq;
    type Ah = SoftAh;

    fn name(&self) -> DeviceName {
        self.device.name()
    }

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn port_num(&self) -> PortNum {
        PortNum::ONE
    }

    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError> {
        check_port(port)?;
        let port = &self.handle.port;
        let (link_layer, gid_type, marking) = match port.udp {
            None => (LinkLayer::SharedMemory, None, PacketMarking::None),
            Some(_) => (
                LinkLayer::Ethernet,
                Some(GidType::RoceV2),
                PacketMarking::TrafficClass,
            ),
        };
        Ok(PortCaps {
            link_layer,
            active_mtu: port.mtu(),
            max_msg_sz: MAX_MESSAGE,
            lid: Lid(0),
            gid: port.gid,
            gid_index: 0,
            gid_type,
            marking,
            max_rate_mbps: None,
        })
    }

    /// Returns the UDP port's counters. The local port has none, because it sends no packets.
    fn counters(&self) -> Counters {
        let udp = self.handle.port.udp.as_ref();
        udp.map_or_else(Counters::new, Udp::counters)
    }

    fn provenance(&self) -> Vec<(String, String)> {
        let port = match &self.handle.port.udp {
            None => "local (shared memory)".to_owned(),
            Some(udp) if udp.carries_all() => format!("UDP (RoCEv2 at {})", udp.socket_addr()),
            Some(udp) => format!(
                "UDP (RoCEv2 at {}); to the same address local (shared memory)",
                udp.socket_addr()
            ),
        };
        let memory = self.handle.port.dir.path().display().to_string();
        let mut all = vec![("port".into(), port), ("memory".into(), memory)];
        if let Some(way) = self.handle.port.way_to_program_memory() {
            all.push(("program_memory".into(), way.into()));
        }
        all
    }

    fn alloc_pd(&self) -> Result<SoftPd, CreateError> {
        Ok(SoftPd {
            handle: self.handle.clone(),
            number: self.handle.port.next_serial(),
        })
    }

    fn create_channel(&self) -> Result<SoftChannel, CreateError> {
        SoftChannel::new(&self.handle.port)
    }

    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&SoftChannel>,
    ) -> Result<SoftCq, CreateError> {
        SoftCq::new(&self.handle.port, entries, channel)
    }

    fn alloc_mr(
        &self,
        pd: &SoftPd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<SoftMr, RegisterError> {
        if !Arc::ptr_eq(&pd.handle, &self.handle) {
            return Err(RegisterError::Foreign);
        }
        let port = &self.handle.port;
        match self.device.memory {
            NewMemory::Files => SoftMr::new(port, pd.number, length, access),
            #[cfg(feature = "testing")]
            NewMemory::Private(_) => SoftMr::in_private_memory(port, pd.number, length, access),
        }
    }

    fn create_qp(&self, pd: &SoftPd, init: &QpInit<'_, SoftCq>) -> Result<SoftQp, CreateError> {
        self.make_qp(pd, init, None)
    }

    fn create_srq(&self, pd: &SoftPd, caps: &SrqCaps) -> Result<SoftSrq, CreateError> {
        self.check_domain(pd)?;
        caps.check(&self.caps, "soft")?;
        SoftSrq::new(pd, caps)
    }

    fn create_qp_with_srq(
        &self,
        pd: &SoftPd,
        init: &QpInit<'_, SoftCq>,
        srq: &SoftSrq,
    ) -> Result<SoftQp, CreateError> {
        let caps = QpCaps {
            max_recv_wr: 0,
            max_recv_sge: 0,
            ..init.caps
        };
        self.make_qp(pd, &QpInit { caps, ..*init }, Some(srq))
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        Ok(self.handle.port.async_event())
    }

    fn create_ah(&self, pd: &SoftPd, address: &AddressVector) -> Result<SoftAh, CreateError> {
        self.check_domain(pd)?;
        check_port(address.port)?;
        let port = &self.handle.port;
        let target = if address.dgid == port.gid && !port.uses_udp_for_all() {
            address.check_marking(LinkLayer::SharedMemory, PacketMarking::None)?;
            AhTarget::SharedMemory { pd: pd.number }
        } else {
            AhTarget::Udp {
                name: self.make_udp_handle(pd, address)?,
                handle: self.handle.clone(),
            }
        };
        Ok(SoftAh { target })
    }
}

impl SoftContext {
    /// Removes the files of the context, for a process that is about to exit without dropping its objects. The
    /// queue pairs of peers notice its end as if it had destroyed its own.
    pub fn remove_files(&self) {
        self.handle.port.release();
    }

    /// Returns a descriptor that is readable while asynchronous events wait: a semaphore (`eventfd`) from which the reader
    /// takes 8 bytes for each before it calls [`Context::async_event`].
    ///
    /// # Errors
    /// The process has no descriptors left, or the context has returned one before.
    pub fn open_async_events(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.handle.port.open_async_events()
    }

    pub(crate) const fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Makes an address handle to another address or a multicast group; returns its name.
    fn make_udp_handle(&self, pd: &SoftPd, address: &AddressVector) -> Result<u64, CreateError> {
        let to = address.dgid;
        let unreachable = |(source, remedy)| CreateError::System {
            action: format!("make an address handle for {to}"),
            source,
            remedy,
        };
        let port = &self.handle.port;
        let Some(udp) = &port.udp else {
            let remedy = format!(
                "; the local port reaches only {}: open the device as soft@ADDR, ADDR an address of this host",
                port.gid
            );
            let source = std::io::ErrorKind::NetworkUnreachable.into();
            return Err(unreachable((source, remedy)));
        };
        address.check_marking(LinkLayer::Ethernet, PacketMarking::TrafficClass)?;
        let made = udp.make_handle(&**port, pd.number, (ip_of(to), address.traffic_class));
        made.map_err(|refusal| unreachable(refusal.explain()))
    }
}

impl SoftContext {
    /// Registers memory that the program already has, as `ibv_reg_mr` does. Requests name its bytes by their addresses.
    ///
    /// # Safety
    /// While the region exists, this process and its peers read the range at any time, and write it if `access` allows
    /// that. The range may be unmapped or moved before the region is dropped; then the region must not be accessed
    /// by the functions of [`MemoryRegion`](adverb_verbs::MemoryRegion) or local requests.
    ///
    /// # Errors
    /// [`RegisterError::Fault`] if the process does not have the whole range, or must not access it.
    pub unsafe fn register(
        &self,
        pd: &SoftPd,
        addr: *mut u8,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<SoftMr, RegisterError> {
        let iova = addr.expose_provenance() as u64;
        // SAFETY: as the caller promises.
        unsafe { self.register_iova(pd, (addr, iova), length, access) }
    }

    /// The same, but requests name the first byte by the address `iova`, as with `ibv_reg_mr_iova`; 0 makes the region
    /// zero-based.
    ///
    /// # Safety
    /// As for [`SoftContext::register`].
    ///
    /// # Errors
    /// As for [`SoftContext::register`].
    pub unsafe fn register_iova(
        &self,
        pd: &SoftPd,
        (addr, iova): (*mut u8, u64),
        length: Bytes,
        access: AccessFlags,
    ) -> Result<SoftMr, RegisterError> {
        if !Arc::ptr_eq(&pd.handle, &self.handle) {
            return Err(RegisterError::Foreign);
        }
        let memory = Registration {
            base: addr,
            length,
            iova,
            access,
        };
        SoftMr::of_program(&self.handle.port, pd.number, &memory)
    }

    fn check_domain(&self, pd: &SoftPd) -> Result<(), CreateError> {
        if Arc::ptr_eq(&pd.handle, &self.handle) {
            return Ok(());
        }
        Err(CreateError::Foreign {
            what: "the protection domain",
        })
    }

    /// Whether queue pairs with this number belong to the context.
    pub fn numbers(&self, qpn: Qpn) -> bool {
        slot_of(qpn) == self.handle.port.slot
    }

    /// Whether a queue pair of the context has completions that were not polled, of messages that have arrived or of
    /// send requests.
    pub fn has_unpolled_completions(&self, qpn: Qpn) -> bool {
        let qps = lock(&self.handle.port.qps);
        let qp = qps
            .get(&qp_index(qpn))
            .filter(|_| self.numbers(qpn))
            .cloned();
        drop(qps);
        qp.is_some_and(|qp| qp.has_unpolled_completions())
    }

    /// Opens an XRC domain (`ibv_open_xrcd`).
    ///
    /// # Errors
    /// The domain needs a completion queue: there are too many, or there is no memory for it.
    pub fn open_xrcd(&self) -> Result<SoftXrcd, CreateError> {
        SoftXrcd::new(self.alloc_pd()?)
    }

    /// Creates an XRC shared receive queue (`ibv_create_srq_ex`), whose receives complete in `cq`.
    ///
    /// # Errors
    /// As for [`Context::create_srq`].
    pub fn create_xrc_srq(
        &self,
        pd: &SoftPd,
        caps: &SrqCaps,
        of: (&SoftXrcd, &SoftCq),
    ) -> Result<SoftSrq, CreateError> {
        self.check_domain(pd)?;
        caps.check(&self.caps, "soft")?;
        let (xrcd, cq) = of;
        xrcd.create_srq(pd, caps, cq)
    }

    /// Creates a receive queue pair of an XRC domain. Send queue pairs are created by `create_qp`, like other types.
    ///
    /// # Errors
    /// There are too many queue pairs, there is no memory for one, or the domain belongs to another context.
    pub fn create_xrc_recv_qp(&self, xrcd: &SoftXrcd) -> Result<SoftQp, CreateError> {
        self.check_domain(&xrcd.pd)?;
        SoftQp::of_xrcd(xrcd)
    }

    fn make_qp(
        &self,
        pd: &SoftPd,
        init: &QpInit<'_, SoftCq>,
        srq: Option<&SoftSrq>,
    ) -> Result<SoftQp, CreateError> {
        self.check_domain(pd)?;
        let has_receives = match init.qp_type {
            QpType::Rc | QpType::Uc | QpType::Ud => true,
            QpType::XrcSend => false,
            _ => {
                return Err(Unsupported {
                    feature: "queue pairs of this type",
                    device: "soft".into(),
                }
                .into());
            }
        };
        if srq.is_some() && !has_receives {
            return Err(Unsupported {
                feature: "shared receive queues of queue pairs that only send",
                device: "soft".into(),
            }
            .into());
        }
        init.caps.check(&self.caps)?;
        SoftQp::new(pd, init, srq)
    }
}
