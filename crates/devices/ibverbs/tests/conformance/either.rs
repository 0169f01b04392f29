//! A device whose contexts belong to one of two devices: what a case does on two devices
//! at once.

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, AhRef, AsyncEvent, CompletionChannel,
    CompletionQueue, Context, Counters, CqId, CreateError, DeviceCaps, DeviceName, Gid, Lid, Lkey,
    McastError, MemoryAccessError, MemoryRegion, ModifyQpError, ModifySrqError, NotifyOn,
    PollError, PortCaps, PortNum, PostError, ProtectionDomain, QpAttr, QpCaps, QpInit, QpState,
    Qpn, QuerySrqError, QueuePair, RecvRequest, RegisterError, Rkey, SendRequest, Sge,
    SharedReceiveQueue, SrqAttr, SrqCaps, SrqId, WorkCompletion,
};

/// An object of one device or of the other.
#[derive(Debug)]
pub(crate) enum Either<A, B> {
    One(A),
    Other(B),
}

use Either::{One, Other};

/// The same done to whichever it is.
macro_rules! either {
    ($it:expr, $inner:ident => $done:expr) => {
        match $it {
            One($inner) => $done,
            Other($inner) => $done,
        }
    };
}

/// Two objects of one device. A case that mixes devices is a mistake of the case.
macro_rules! of_one_device {
    (($it:expr, $with:expr), ($inner:ident, $other:ident) => $done:expr) => {
        match ($it, $with) {
            (One($inner), One($other)) => One($done),
            (Other($inner), Other($other)) => Other($done),
            _ => panic!("objects of two devices"),
        }
    };
}

impl<A, B> Either<A, B> {
    fn one(&self) -> &A {
        match self {
            One(it) => it,
            Other(_) => panic!("an object of the other device"),
        }
    }

    fn other(&self) -> &B {
        match self {
            Other(it) => it,
            One(_) => panic!("an object of the other device"),
        }
    }
}

impl<A: Context, B: Context> Context for Either<A, B> {
    type Pd = Either<A::Pd, B::Pd>;
    type Mr = Either<A::Mr, B::Mr>;
    type Channel = Either<A::Channel, B::Channel>;
    type Cq = Either<A::Cq, B::Cq>;
    type Qp = Either<A::Qp, B::Qp>;
    type Srq = Either<A::Srq, B::Srq>;
    type Ah = Either<A::Ah, B::Ah>;

    fn name(&self) -> DeviceName {
        either!(self, it => it.name())
    }

    fn caps(&self) -> &DeviceCaps {
        either!(self, it => it.caps())
    }

    fn port_num(&self) -> PortNum {
        either!(self, it => it.port_num())
    }

    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError> {
        either!(self, it => it.port(port))
    }

    fn counters(&self) -> Counters {
        either!(self, it => it.counters())
    }

    fn provenance(&self) -> Vec<(String, String)> {
        either!(self, it => it.provenance())
    }

    fn alloc_pd(&self) -> Result<Self::Pd, CreateError> {
        Ok(match self {
            One(it) => One(it.alloc_pd()?),
            Other(it) => Other(it.alloc_pd()?),
        })
    }

    fn create_channel(&self) -> Result<Self::Channel, CreateError> {
        Ok(match self {
            One(it) => One(it.create_channel()?),
            Other(it) => Other(it.create_channel()?),
        })
    }

    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&Self::Channel>,
    ) -> Result<Self::Cq, CreateError> {
        Ok(match self {
            One(it) => One(it.create_cq(entries, channel.map(Either::one))?),
            Other(it) => Other(it.create_cq(entries, channel.map(Either::other))?),
        })
    }

    fn alloc_mr(
        &self,
        pd: &Self::Pd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self::Mr, RegisterError> {
        Ok(of_one_device!((self, pd), (it, pd) => it.alloc_mr(pd, length, access)?))
    }

    fn create_qp(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
    ) -> Result<Self::Qp, CreateError> {
        self.create_qp_with_inline_recv(pd, init, 0)
    }

    fn create_qp_with_inline_recv(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        max_inl_recv: u32,
    ) -> Result<Self::Qp, CreateError> {
        Ok(match self {
            One(it) => One(it.create_qp_with_inline_recv(
                pd.one(),
                &of(init, Either::one),
                max_inl_recv,
            )?),
            Other(it) => Other(it.create_qp_with_inline_recv(
                pd.other(),
                &of(init, Either::other),
                max_inl_recv,
            )?),
        })
    }

    fn create_srq(&self, pd: &Self::Pd, caps: &SrqCaps) -> Result<Self::Srq, CreateError> {
        Ok(of_one_device!((self, pd), (it, pd) => it.create_srq(pd, caps)?))
    }

    fn create_qp_with_srq(
        &self,
        pd: &Self::Pd,
        init: &QpInit<'_, Self::Cq>,
        srq: &Self::Srq,
    ) -> Result<Self::Qp, CreateError> {
        Ok(match self {
            One(it) => {
                let init = of(init, Either::one);
                One(it.create_qp_with_srq(pd.one(), &init, srq.one())?)
            }
            Other(it) => {
                let init = of(init, Either::other);
                Other(it.create_qp_with_srq(pd.other(), &init, srq.other())?)
            }
        })
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        either!(self, it => it.async_event())
    }

    fn create_ah(&self, pd: &Self::Pd, address: &AddressVector) -> Result<Self::Ah, CreateError> {
        Ok(of_one_device!((self, pd), (it, pd) => it.create_ah(pd, address)?))
    }
}

/// With more time for answers, where a case has the suite's usual time. On an emulated processor an
/// answer may take longer, and Soft-RoCE (Linux 6.1) may forget a READ whose response arrives just when
/// it repeats the request.
fn patient(mut attr: QpAttr) -> QpAttr {
    const USUAL: Option<AckTimeout> = AckTimeout::new(14);
    if attr.timeout == USUAL {
        attr.timeout = AckTimeout::new(18);
    }
    attr
}

/// The same, of one device.
fn of<'a, Cq, One>(init: &QpInit<'a, Cq>, one: impl Fn(&'a Cq) -> &'a One) -> QpInit<'a, One> {
    QpInit {
        qp_type: init.qp_type,
        send_cq: one(init.send_cq),
        recv_cq: one(init.recv_cq),
        caps: init.caps,
    }
}

impl<A: ProtectionDomain, B: ProtectionDomain> ProtectionDomain for Either<A, B> {}

impl<A: AddressHandle, B: AddressHandle> AddressHandle for Either<A, B> {
    fn handle(&self) -> AhRef<'_> {
        either!(self, it => it.handle())
    }
}

impl<A: MemoryRegion, B: MemoryRegion> MemoryRegion for Either<A, B> {
    fn addr(&self) -> u64 {
        either!(self, it => it.addr())
    }

    fn length(&self) -> Bytes {
        either!(self, it => it.length())
    }

    fn lkey(&self) -> Lkey {
        either!(self, it => it.lkey())
    }

    fn rkey(&self) -> Rkey {
        either!(self, it => it.rkey())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError> {
        either!(self, it => it.read(offset, into))
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        either!(self, it => it.write(offset, from))
    }

    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError> {
        either!(self, it => it.load(offset))
    }

    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        either!(self, it => it.sge(offset, length))
    }
}

impl<A: CompletionChannel, B: CompletionChannel> CompletionChannel for Either<A, B> {
    fn get_event(&self, timeout: Span) -> std::io::Result<Option<CqId>> {
        either!(self, it => it.get_event(timeout))
    }
}

impl<A: CompletionQueue, B: CompletionQueue> CompletionQueue for Either<A, B> {
    fn id(&self) -> CqId {
        either!(self, it => it.id())
    }

    fn entries(&self) -> u32 {
        either!(self, it => it.entries())
    }

    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        either!(self, it => it.poll(into))
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        either!(self, it => it.req_notify(on))
    }

    fn ack_events(&self, events: u32) {
        either!(self, it => it.ack_events(events));
    }
}

impl<A: QueuePair, B: QueuePair> QueuePair for Either<A, B> {
    fn qpn(&self) -> Qpn {
        either!(self, it => it.qpn())
    }

    fn caps(&self) -> QpCaps {
        either!(self, it => it.caps())
    }

    fn state(&self) -> QpState {
        either!(self, it => it.state())
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let attr = patient(*attr);
        either!(self, it => it.modify(&attr))
    }

    fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        either!(self, it => it.attach_mcast(gid, lid))
    }

    fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), McastError> {
        either!(self, it => it.detach_mcast(gid, lid))
    }

    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        either!(self, it => it.post_send(requests))
    }

    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        either!(self, it => it.post_recv(requests))
    }
}

impl<A: SharedReceiveQueue, B: SharedReceiveQueue> SharedReceiveQueue for Either<A, B> {
    fn id(&self) -> SrqId {
        either!(self, it => it.id())
    }

    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        either!(self, it => it.post_recv(requests))
    }

    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError> {
        either!(self, it => it.arm(srq_limit))
    }

    fn query(&self) -> Result<SrqAttr, QuerySrqError> {
        either!(self, it => it.query())
    }
}
