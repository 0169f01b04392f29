//! Verbs objects of a role, and their connection to the peer's.

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, Connection, Context, Destination, Endpoint, PathMtu,
    PathOptions, PortCaps, Psn, QpAttr, QpCaps, QpInit, QpState, QpType, Qpn, QueuePair, Station,
    first_psn,
};

use crate::error::Fault;
use crate::reap::Queue;

/// Queue key of all datagram queue pairs.
pub const QKEY: u32 = 0x1d7e_0001;
/// Room for the global routing header (GRH), which precedes the payload of each received datagram.
pub const GRH: u32 = 40;
/// Maximum number of outstanding READs and atomics of a queue pair.
pub const MAX_RD_ATOMIC: u8 = 16;

/// The objects that all queue pairs of a role share: a protection domain, one memory region, the port.
pub struct Kit<'s, S: Station> {
    station: &'s S,
    pd: <S::Context as Context>::Pd,
    /// The role's memory.
    pub mr: <S::Context as Context>::Mr,
    port: PortCaps,
    access: AccessFlags,
    options: PathOptions,
    /// For the first PSNs of its queue pairs.
    secret: u64,
}

/// Outstanding READs and atomics of a queue pair, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct RdAtomic {
    /// As requester.
    pub initiator: u8,
    /// As responder.
    pub responder: u8,
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Path MTU if `options` sets none.
    pub path_mtu: PathMtu,
    /// READs and atomics.
    pub rd_atomic: RdAtomic,
    /// Options of the path.
    pub options: PathOptions,
}

/// The address of a queue pair for datagrams or for DC initiators.
pub struct PeerAddress<C: Context> {
    ah: C::Ah,
    qpn: Qpn,
    qkey: u32,
}

impl<C: Context> PeerAddress<C> {
    /// Returns the destination for a request.
    pub fn destination(&self) -> Destination<'_> {
        Destination {
            ah: self.ah.handle(),
            qpn: self.qpn,
            qkey: self.qkey,
        }
    }
}

impl<'s, S: Station> Kit<'s, S> {
    /// Creates the objects, with a region of `bytes`, for queue pairs with these path options.
    ///
    /// # Errors
    /// The device refuses, or its port does not support an option.
    pub fn new(
        station: &'s S,
        (bytes, access): (u64, AccessFlags),
        options: PathOptions,
    ) -> Result<Self, Fault> {
        let context = station.context();
        let port = context.port(context.port_num())?;
        options.check(&port)?;
        let pd = context.alloc_pd()?;
        Ok(Kit {
            station,
            mr: context.alloc_mr(&pd, Bytes::new(bytes.max(64)), access)?,
            pd,
            port,
            access,
            options,
            secret: station.secret(),
        })
    }

    /// Returns the role's port.
    pub fn port(&self) -> &PortCaps {
        &self.port
    }

    /// Creates a queue pair that receives up to `inline_recv` bytes within completions. UD is moved to RTS, since
    /// it needs no peer, DC stays in RESET, and others are moved to INIT.
    ///
    /// # Errors
    /// The device refuses it.
    pub fn queue_pair(
        &self,
        qp_type: QpType,
        (send, recv): (&Queue<S::Context>, &Queue<S::Context>),
        caps: QpCaps,
        inline_recv: u32,
    ) -> Result<<S::Context as Context>::Qp, Fault> {
        let context = self.station.context();
        let init = QpInit {
            qp_type,
            send_cq: &send.cq,
            recv_cq: &recv.cq,
            caps,
        };
        let qp = match self.options.api {
            Some(api) => context.create_qp_with_api(&self.pd, &init, api)?,
            None => context.create_qp_with_inline_recv(&self.pd, &init, inline_recv)?,
        };
        let port = context.port_num();
        match qp_type {
            QpType::Dci | QpType::Dct => {}
            QpType::Ud => {
                let mut init = QpAttr::to_init(port, AccessFlags::empty());
                (init.access, init.qkey) = (None, Some(QKEY));
                let mut rts = QpAttr::to(QpState::Rts);
                rts.sq_psn = Some(self.first_psn(&qp));
                for attr in [init, QpAttr::to(QpState::Rtr), rts] {
                    qp.modify(&attr)?;
                }
            }
            _ => qp.modify(&QpAttr::to_init(port, self.access))?,
        }
        Ok(qp)
    }

    /// Returns the endpoint of a queue pair for its peer.
    pub fn endpoint(&self, qp: &<S::Context as Context>::Qp) -> Endpoint {
        let port = self.station.context().port_num();
        Endpoint::new(qp.qpn(), self.secret, (port, &self.port))
    }

    /// Returns the PSN of a queue pair's first packet.
    pub(crate) fn first_psn(&self, qp: &<S::Context as Context>::Qp) -> Psn {
        first_psn(qp.qpn(), self.secret)
    }

    /// Returns the address of a queue pair for datagrams.
    ///
    /// # Errors
    /// The device refuses it.
    pub fn peer_address(
        &self,
        end: &Endpoint,
        qkey: u32,
    ) -> Result<PeerAddress<S::Context>, Fault> {
        let context = self.station.context();
        let address = AddressVector {
            traffic_class: self.options.traffic_class.unwrap_or_default(),
            service_level: self.options.service_level.unwrap_or_default(),
            static_rate: self.options.rate,
            ..AddressVector::new(end.gid, end.lid, context.port_num())
        };
        Ok(PeerAddress {
            ah: context.create_ah(&self.pd, &address)?,
            qpn: end.qpn,
            qkey,
        })
    }

    /// Returns the default parameters: the port's MTU, and at most the device's maximum of READs.
    pub fn route(&self, rd_atomic: u8) -> Route {
        let most = self.station.context().caps().max_qp_rd_atom;
        Route {
            path_mtu: self.port.active_mtu,
            rd_atomic: RdAtomic {
                initiator: rd_atomic.min(most),
                responder: most,
            },
            options: self.options,
        }
    }

    /// Connects a queue pair, RC or UC, to the peer's.
    ///
    /// # Errors
    /// The device refuses, or the peer cannot be reached.
    pub fn connect(
        &self,
        (qp_type, qp): (QpType, &<S::Context as Context>::Qp),
        local: Endpoint,
        remote: Endpoint,
        route: &Route,
    ) -> Result<Connection, Fault> {
        let connection = Connection {
            local,
            remote,
            path_mtu: route.path_mtu,
            max_rd_atomic: route.rd_atomic.initiator,
            max_dest_rd_atomic: route.rd_atomic.responder,
            options: route.options,
        };
        match qp_type {
            QpType::Rc => qp.connect(&connection)?,
            _ => connection.by_hand_as(qp_type, qp)?,
        }
        Ok(connection)
    }
}
