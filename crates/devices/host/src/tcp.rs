//! The device `tcp`: a host without RDMA, whose stations have streams and no verbs.

use std::fs;

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, AhRef, AtomicCap, CompletionChannel,
    CompletionQueue, Context, Counters, CqId, CreateError, Device, DeviceCaps, DeviceName, Gid,
    Lid, LinkLayer, Lkey, McastError, MemoryAccessError, MemoryRegion, ModifyQpError, NoSrq,
    NotifyOn, OpenError, PacketMarking, PathMtu, PollError, PortCaps, PortNum, PostError,
    ProtectionDomain, QpAttr, QpCaps, QpInit, QpState, Qpn, QueuePair, RecvRequest, RegisterError,
    Rkey, SendRequest, Sge, Unsupported, WorkCompletion,
};

/// The device `tcp`.
#[derive(Clone, Copy, Debug)]
pub struct TcpDevice;

/// The opened device `tcp`: all that it refuses.
#[derive(Debug)]
pub struct TcpContext(());

impl Device for TcpDevice {
    type Context = TcpContext;

    fn name(&self) -> DeviceName {
        DeviceName("tcp".to_owned())
    }

    fn open(&self) -> Result<TcpContext, OpenError> {
        Ok(TcpContext(()))
    }
}

const CAPS: DeviceCaps = DeviceCaps {
    max_qp: 0,
    max_qp_wr: 0,
    max_sge: 0,
    max_cq: 0,
    max_cqe: 0,
    max_mr: 0,
    // Limits the memory of a side.
    max_mr_size: Bytes::mib(1024),
    max_qp_rd_atom: 0,
    max_inline_data: 0,
    max_srq: 0,
    max_srq_wr: 0,
    max_srq_sge: 0,
    atomics: AtomicCap::None,
};

fn refused<T>(feature: &'static str) -> Result<T, CreateError> {
    let device = TcpDevice.name().0;
    Err(Unsupported { feature, device }.into())
}

impl Context for TcpContext {
    type Pd = NoVerbs;
    type Mr = NoVerbs;
    type Channel = NoVerbs;
    type Cq = NoVerbs;
    type Qp = NoVerbs;
    type Srq = NoSrq;
    type Ah = NoVerbs;

    fn name(&self) -> DeviceName {
        TcpDevice.name()
    }

    fn caps(&self) -> &DeviceCaps {
        &CAPS
    }

    fn port_num(&self) -> PortNum {
        PortNum(1)
    }

    fn port(&self, _port: PortNum) -> Result<PortCaps, CreateError> {
        Ok(PortCaps {
            link_layer: LinkLayer::KernelTcp,
            active_mtu: PathMtu::B4096,
            max_msg_sz: Bytes::new(u64::MAX),
            lid: Lid(0),
            gid: Gid::default(),
            gid_index: 0,
            gid_type: None,
            marking: PacketMarking::None,
            max_rate_mbps: None,
        })
    }

    fn counters(&self) -> Counters {
        Counters::new()
    }

    /// What the kernel does with a connection.
    fn provenance(&self) -> Vec<(String, String)> {
        let setting = |name: &str| {
            let value = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
            let words: Vec<_> = value.split_whitespace().collect();
            Some((name.to_owned(), words.join(" ")))
        };
        let settings = ["tcp_congestion_control", "tcp_rmem", "tcp_wmem"];
        let nodelay = ("TCP_NODELAY".to_owned(), "on".to_owned());
        settings
            .into_iter()
            .filter_map(setting)
            .chain([nodelay])
            .collect()
    }

    fn alloc_pd(&self) -> Result<NoVerbs, CreateError> {
        refused("protection domains (verbs)")
    }

    fn create_channel(&self) -> Result<NoVerbs, CreateError> {
        refused("completion channels (verbs)")
    }

    fn create_cq(&self, _entries: u32, _on: Option<&NoVerbs>) -> Result<NoVerbs, CreateError> {
        refused("completion queues (verbs)")
    }

    fn alloc_mr(
        &self,
        pd: &NoVerbs,
        _length: Bytes,
        _access: AccessFlags,
    ) -> Result<NoVerbs, RegisterError> {
        match *pd {}
    }

    fn create_qp(&self, pd: &NoVerbs, _: &QpInit<'_, NoVerbs>) -> Result<NoVerbs, CreateError> {
        match *pd {}
    }

    fn create_ah(&self, pd: &NoVerbs, _address: &AddressVector) -> Result<NoVerbs, CreateError> {
        match *pd {}
    }
}

/// A verbs object of a device without verbs: there is none.
#[derive(Debug)]
pub enum NoVerbs {}

/// Methods that nothing can call.
macro_rules! never {
    ($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)* }) => {
        impl $trait for NoVerbs {
            $(fn $name(&self, $($argument: $type),*) $(-> $result)? {
                $(let _ = $argument;)*
                match *self {}
            })*
        }
    };
}

never!(ProtectionDomain {});
never!(AddressHandle { fn handle() -> AhRef<'_>; });
never!(MemoryRegion {
    fn addr() -> u64;
    fn length() -> Bytes;
    fn lkey() -> Lkey;
    fn rkey() -> Rkey;
    fn read(offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError>;
    fn write(offset: u64, from: &[u8]) -> Result<(), MemoryAccessError>;
    fn load(offset: u64) -> Result<u8, MemoryAccessError>;
    fn sge(offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError>;
});
never!(CompletionChannel {
    fn get_event(timeout: Span) -> std::io::Result<Option<CqId>>;
});
never!(CompletionQueue {
    fn id() -> CqId;
    fn entries() -> u32;
    fn poll(into: &mut [WorkCompletion]) -> Result<usize, PollError>;
    fn req_notify(on: NotifyOn) -> Result<(), PollError>;
    fn ack_events(events: u32);
});
never!(QueuePair {
    fn qpn() -> Qpn;
    fn caps() -> QpCaps;
    fn state() -> QpState;
    fn modify(attr: &QpAttr) -> Result<(), ModifyQpError>;
    fn attach_mcast(gid: Gid, lid: Lid) -> Result<(), McastError>;
    fn detach_mcast(gid: Gid, lid: Lid) -> Result<(), McastError>;
    fn post_send(requests: &[SendRequest<'_>]) -> Result<(), PostError>;
    fn post_recv(requests: &[RecvRequest<'_>]) -> Result<(), PostError>;
});
