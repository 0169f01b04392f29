//! Opening the device.

use std::net::IpAddr;
use std::sync::Arc;

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, AhRef, AtomicCap, Context, Counters, CreateError,
    Device, DeviceCaps, DeviceName, GidType, Lid, LinkLayer, OpenError, PathMtu, PortCaps, PortNum,
    ProtectionDomain, QpInit, QpType, RegisterError, Unsupported,
};

use crate::channel::SoftChannel;
use crate::cq::{MAX_CQE, SoftCq};
use crate::dir::Dir;
use crate::engine::Engine;
use crate::layout::{FIRST_QP, MAX_CQ, MAX_MR, MAX_QP};
use crate::memory::{MAX_MR_SIZE, SoftMr};
use crate::port::Port;
use crate::qp::SoftQp;
use crate::quiesce;
use crate::udp::{Udp, UdpAddress};

/// Longest message, as of InfiniBand (IBTA vol. 1, 9.7.7: 2^31 bytes).
pub(crate) const MAX_MESSAGE: Bytes = Bytes::new(1 << 31);
/// Most requests of a queue.
pub(crate) const MAX_WR: u32 = 1 << 15;
/// Most pieces of a request.
pub(crate) const MAX_SGE: u32 = 16;
/// Most READs and atomics of a queue pair at a time. Here each has ended when the next begins: the
/// number only says whether there may be any.
pub(crate) const MAX_RD_ATOM: u8 = 16;
/// Largest packet: a datagram's message is at most one.
pub(crate) const ACTIVE_MTU: PathMtu = PathMtu::B4096;
/// Most inline payload.
pub(crate) const MAX_INLINE: u32 = 1024;

/// The user-space NIC.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftDevice {
    at: Option<IpAddr>,
}

impl SoftDevice {
    /// The device with a local port only; opening it makes this process's port.
    pub fn new() -> Self {
        SoftDevice::default()
    }

    /// The device with a UDP port, too: at an address of this host and network namespace.
    pub fn at(ip: IpAddr) -> Self {
        SoftDevice {
            at: Some(ip.to_canonical()),
        }
    }
}

impl Device for SoftDevice {
    type Context = SoftContext;

    fn name(&self) -> DeviceName {
        DeviceName(match self.at {
            None => "soft".into(),
            Some(ip) => format!("soft@{ip}"),
        })
    }

    fn open(&self) -> Result<SoftContext, OpenError> {
        quiesce::register().map_err(|e| OpenError::Unavailable {
            device: "soft".into(),
            reason: format!("the kernel has no membarrier for other processes ({e})"),
            remedy: "Linux 4.16 or later is needed, with no seccomp filter against membarrier"
                .into(),
        })?;
        let dir = Dir::from_env();
        let port = Arc::new(match self.at {
            None => Port::open(&dir, None)?,
            Some(ip) => Port::open(&dir.of_address(ip), Some(UdpAddress::new(ip)?))?,
        });
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
            atomics: AtomicCap::System,
        };
        Ok(SoftContext {
            device: *self,
            handle: Arc::new(Handle {
                port,
                _engine: engine,
            }),
            caps,
        })
    }
}

/// A port with its running engine, held by what needs one.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) port: Arc<Port>,
    _engine: Engine,
}

/// The opened user-space NIC.
#[derive(Debug)]
pub struct SoftContext {
    device: SoftDevice,
    handle: Arc<Handle>,
    caps: DeviceCaps,
}

/// A protection domain of the user-space NIC.
#[derive(Clone, Debug)]
pub struct SoftPd {
    pub(crate) handle: Arc<Handle>,
    pub(crate) number: u32,
}

impl ProtectionDomain for SoftPd {}

/// An address handle of the user-space NIC. There is one address, this host's: the number of the
/// queue pair tells the port.
#[derive(Clone, Copy, Debug)]
pub struct SoftAh {
    pd: u32,
}

impl AddressHandle for SoftAh {
    fn handle(&self) -> AhRef<'_> {
        // SAFETY: the device's name for a handle is its domain's number, which is never reused.
        unsafe { AhRef::from_raw(self.pd.into()) }
    }
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
    /// For tests: has what arrives over UDP pass a rule.
    pub fn mangle(&self, rule: impl FnMut(&[u8]) -> crate::Fate + Send + 'static) {
        if let Some(udp) = &self.handle.port.udp {
            udp.mangle(rule);
        }
    }
}

impl Context for SoftContext {
    type Pd = SoftPd;
    type Mr = SoftMr;
    type Channel = SoftChannel;
    type Cq = SoftCq;
    type Qp = SoftQp;
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
        let (link_layer, gid_type) = match port.udp {
            None => (LinkLayer::SharedMemory, None),
            Some(_) => (LinkLayer::Ethernet, Some(GidType::RoceV2)),
        };
        Ok(PortCaps {
            link_layer,
            active_mtu: port.mtu(),
            max_msg_sz: MAX_MESSAGE,
            lid: Lid(0),
            gid: port.gid,
            gid_index: 0,
            gid_type,
        })
    }

    /// What the UDP port counted; the local port has no packets that could be lost or repeated.
    fn counters(&self) -> Counters {
        let udp = self.handle.port.udp.as_ref();
        udp.map_or_else(Counters::new, Udp::counters)
    }

    fn provenance(&self) -> Vec<(String, String)> {
        let port = match &self.handle.port.udp {
            None => "local (shared memory)".to_owned(),
            Some(udp) => format!(
                "UDP (RoCEv2 at {}); to the same address local (shared memory)",
                udp.socket_addr()
            ),
        };
        vec![
            ("port".into(), port),
            (
                "memory".into(),
                self.handle.port.dir.path().display().to_string(),
            ),
        ]
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
        SoftMr::new(&self.handle.port, pd.number, length, access)
    }

    fn create_qp(&self, pd: &SoftPd, init: &QpInit<'_, SoftCq>) -> Result<SoftQp, CreateError> {
        if !Arc::ptr_eq(&pd.handle, &self.handle) {
            return Err(CreateError::Foreign {
                what: "the protection domain",
            });
        }
        if !matches!(init.qp_type, QpType::Rc | QpType::Uc | QpType::Ud) {
            return Err(Unsupported {
                feature: "queue pairs of this type",
                device: "soft".into(),
            }
            .into());
        }
        init.caps.check(&self.caps)?;
        SoftQp::new(pd, init)
    }

    fn create_ah(&self, pd: &SoftPd, address: &AddressVector) -> Result<SoftAh, CreateError> {
        if !Arc::ptr_eq(&pd.handle, &self.handle) {
            return Err(CreateError::Foreign {
                what: "the protection domain",
            });
        }
        check_port(address.port)?;
        let here = self.handle.port.gid;
        if address.dgid != here {
            return Err(CreateError::System {
                action: format!("make an address handle for {}", address.dgid),
                source: std::io::ErrorKind::NetworkUnreachable.into(),
                remedy: format!(
                    "; datagrams go by the local port, which reaches only {here}: this version sends none over UDP"
                ),
            });
        }
        Ok(SoftAh { pd: pd.number })
    }
}
