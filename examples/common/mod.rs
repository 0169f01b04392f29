//! What the examples share: a queue pair with its memory, connected with that of another role.

#![allow(dead_code, unreachable_pub, reason = "each example uses a part")]

use std::error::Error;

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, Connection, Context, Endpoint, MemoryRegion, Operation, PathOptions, QpAttr,
    QpCaps, QpInit, QpType, QueuePair, RemoteAddress, Rkey, RoleId, SendFlags, SendRequest, Sge,
    Station, WorkCompletion, WrId,
};

pub type Failure = Box<dyn Error + Send + Sync>;

pub const TIMEOUT: Span = Span::from_secs(10);

/// An RC queue pair with a completion queue and 4 KiB of registered memory.
pub struct Connected<'s, S: Station> {
    pub station: &'s S,
    pub mr: <S::Context as Context>::Mr,
    pub cq: <S::Context as Context>::Cq,
    pub qp: <S::Context as Context>::Qp,
    /// Start of the peer's memory.
    pub remote: RemoteAddress,
}

impl<'s, S: Station> Connected<'s, S> {
    /// Connects with `peer`, which has to do the same.
    pub fn new(station: &'s S, peer: RoleId) -> Result<Self, Failure> {
        let context = station.context();
        let port = context.port(context.port_num())?;
        let pd = context.alloc_pd()?;
        let access = AccessFlags::all();
        let mr = context.alloc_mr(&pd, Bytes::kib(4), access)?;
        let cq = context.create_cq(16, None)?;
        let caps = QpCaps {
            max_inline_data: 64,
            ..QpCaps::default()
        };
        let qp = context.create_qp(&pd, &QpInit::new(QpType::Rc, &cq, caps))?;
        qp.modify(&QpAttr::to_init(context.port_num(), access))?;

        let at = (context.port_num(), &port);
        let local = Endpoint {
            cm: qp.listen()?,
            ..Endpoint::new(qp.qpn(), station.secret(), at)
        };
        station.send(peer, &serde_json::to_vec(&(local, mr.addr(), mr.rkey().0))?)?;
        let answer = station.receive(peer, TIMEOUT)?;
        let (remote, addr, rkey) = serde_json::from_slice(&answer)?;
        let (path_mtu, options) = (port.active_mtu, PathOptions::default());
        let (max_rd_atomic, max_dest_rd_atomic) = (1, 1);
        qp.connect(&Connection {
            local,
            remote,
            path_mtu,
            max_rd_atomic,
            max_dest_rd_atomic,
            options,
        })?;
        // A queue pair must not send before the peer's is ready to receive.
        station.send(peer, b"ready")?;
        station.receive(peer, TIMEOUT)?;
        let remote = RemoteAddress {
            addr,
            rkey: Rkey(rkey),
        };
        Ok(Connected {
            station,
            mr,
            cq,
            qp,
            remote,
        })
    }

    /// Posts a signaled request and polls for its completion.
    pub fn execute(
        &self,
        operation: Operation,
        sge: Sge<'_>,
        flags: SendFlags,
    ) -> Result<(), Failure> {
        let sges = [sge];
        let request = SendRequest::new(WrId(1), operation, &sges);
        let signaled = flags | SendFlags::SIGNALED;
        self.qp.post_send(&[request.with_flags(signaled)])?;
        self.completion().map(drop)
    }

    /// Polls for a completion, which must be a success.
    pub fn completion(&self) -> Result<WorkCompletion, Failure> {
        let mut completions = [WorkCompletion::default()];
        self.station.spin(&self.cq, &mut completions, TIMEOUT)?;
        let [completion] = completions;
        match completion.status.is_success() {
            true => Ok(completion),
            false => Err(format!("completed with {}", completion.status).into()),
        }
    }
}
