//! A member's objects, and how they are connected with those of its peers.

use adverb_units::{Bytes, Span};
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, Connection, Context, Endpoint, MemoryRegion,
    ModifyQpError, OutOfBandError, PathOptions, PortNum, Psn, QpAttr, QpCaps, QpInit, QpState,
    QpType, QueuePair, RemoteAddress, Rkey, RoleId, Station, first_psn,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::pattern::dc;
use crate::pattern::error::PatternError;
use crate::pattern::load::{Load, Seen, Transport};
use crate::pattern::polled;
use crate::pattern::reap::Wait;
use crate::pattern::shape::{GRH, Landing, Member, Part, Pattern};

/// How long members wait for one another.
const PATIENCE: Span = Span::from_secs(60);
/// Queue key of all datagram queue pairs.
pub const QKEY: u32 = 0x1d7e_0001;

/// What members tell each other.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
enum Word {
    Hello { end: Endpoint, addr: u64, rkey: u32 },
    Ready,
    Go,
    Done,
}

/// One link, connected.
pub struct Wire<C: Context> {
    /// The peer's memory.
    pub remote: RemoteAddress,
    /// The peer's queue pair.
    pub number: adverb_verbs::Qpn,
    /// The way to it, if requests carry their address.
    pub ah: Option<C::Ah>,
    /// The key that a datagram or a request of a DC initiator brings.
    qkey: u32,
}

/// A member's objects.
pub struct Wiring<C: Context> {
    /// Completion queue of all its queue pairs.
    pub cq: C::Cq,
    /// Where the queue's events go, if members sleep.
    pub channel: Option<C::Channel>,
    /// Its memory.
    pub mr: C::Mr,
    /// Where in it the places begin that READs land in, if the member polls them.
    pub polled: u64,
    /// Its queue pairs.
    pub qps: Vec<C::Qp>,
    /// What DC initiators of others reach.
    target: Option<C::Qp>,
    /// Its links, in order.
    pub wires: Vec<Wire<C>>,
    /// Longest payload that requests may have inline.
    pub inline: u32,
}

/// Sizes of a member's queues.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// Send requests of each queue pair.
    pub send: u32,
    /// Receives of each.
    pub recv: u32,
    /// Longest inline payload.
    pub inline: u32,
    /// READs and atomics outstanding on each.
    pub rd_atomic: u8,
    /// Whether one queue pair serves all links.
    pub shares_qp: bool,
}

impl Depths {
    fn of(part: &Part, transport: Transport) -> Self {
        match part {
            Part::Request(load) | Part::Strand(load) => Depths {
                send: send_depth(load),
                recv: 1,
                inline: if load.inline { load.payload() } else { 0 },
                rd_atomic: load.limits.rd_atomic,
                shares_qp: false,
            },
            Part::Serve | Part::Count | Part::Compute(_) | Part::Churn { .. } => Depths {
                send: 1,
                recv: 1,
                inline: 0,
                rd_atomic: u8::MAX,
                shares_qp: false,
            },
            Part::Receive { depth, .. } => Depths {
                send: 1,
                recv: *depth,
                inline: 0,
                rd_atomic: u8::MAX,
                // Datagrams of all peers come to one queue pair.
                shares_qp: transport == QpType::Ud,
            },
        }
    }
}

/// Payload that a member's receives get within their completions.
fn inline_recv(landing: Landing, part: &Part) -> u32 {
    match (landing, part) {
        (Landing::Completion, Part::Receive { size, .. }) => size - GRH,
        _ => 0,
    }
}

/// Requests that a queue pair has room for.
pub fn send_depth(load: &Load) -> u32 {
    let most = match load.seen {
        Seen::Completion => load.limits.per_qp.min(load.limits.per_member),
        Seen::Memory => load.limits.per_qp,
    };
    most.max(load.list()).saturating_add(1)
}

/// Sends a message to another role, out of band.
pub fn send<S: Station>(
    station: &S,
    to: RoleId,
    word: &impl Serialize,
) -> Result<(), PatternError> {
    let text = postcard::to_stdvec(word).map_err(|_| PatternError::Protocol("a message"))?;
    Ok(station.send(to, &text)?)
}

/// Receives the next message of another role.
pub fn receive<S: Station, W: DeserializeOwned>(
    station: &S,
    from: RoleId,
) -> Result<W, PatternError> {
    let text = station.receive(from, PATIENCE)?;
    postcard::from_bytes(&text).map_err(|_| PatternError::Protocol("a message"))
}

/// Tells a member that takes messages that no more will come.
pub fn say_done<S: Station>(station: &S, to: RoleId) -> Result<(), PatternError> {
    send(station, to, &Word::Done)
}

/// Whether a member has said, within `patience`, that no more messages will come.
pub fn is_done<S: Station>(
    station: &S,
    from: RoleId,
    patience: Span,
) -> Result<bool, PatternError> {
    let text = match station.receive(from, patience) {
        Err(OutOfBandError::TimedOut { .. }) => return Ok(false),
        text => text?,
    };
    match postcard::from_bytes(&text) {
        Ok(Word::Done) => Ok(true),
        _ => Err(PatternError::Protocol("the end")),
    }
}

/// Waits until all `members` are here; member 0 counts.
pub fn meet<S: Station>(station: &S, me: RoleId, members: u32) -> Result<(), PatternError> {
    let first = RoleId(0);
    if me == first {
        for other in (1..members).map(RoleId) {
            if receive::<_, Word>(station, other)? != Word::Ready {
                return Err(PatternError::Protocol("readiness"));
            }
        }
        return (1..members).try_for_each(|other| send(station, RoleId(other), &Word::Go));
    }
    send(station, first, &Word::Ready)?;
    match receive(station, first)? {
        Word::Go => Ok(()),
        _ => Err(PatternError::Protocol("the start")),
    }
}

impl<C: Context> Wiring<C> {
    /// Makes a member's objects and connects them.
    pub fn new<S: Station<Context = C>>(
        station: &S,
        pattern: &Pattern,
        member: &Member,
    ) -> Result<Self, PatternError> {
        let depths = Depths::of(&member.part, member.transport);
        Self::with_depths(station, pattern, member, depths)
    }

    /// The same, with queues of other sizes than those of the member's part.
    pub fn with_depths<S: Station<Context = C>>(
        station: &S,
        pattern: &Pattern,
        member: &Member,
        depths: Depths,
    ) -> Result<Self, PatternError> {
        let transport = member.transport;
        let context = station.context();
        let caps = context.caps();
        let port = context.port(context.port_num())?;
        let pd = context.alloc_pd()?;
        let all = AccessFlags::all();
        let memory = member.memory.max(64) + polled::bytes(&member.part);
        let mr = context.alloc_mr(&pd, Bytes::new(memory), all)?;
        let links = member.links.len();
        let qps = queue_pairs(transport, member, &depths);
        let entries = depths
            .send
            .saturating_add(depths.recv)
            .saturating_mul(qps.max(1) as u32);
        let channel = match pattern.wait {
            Wait::Event => Some(context.create_channel()?),
            Wait::Poll => None,
        };
        let cq = context.create_cq(entries.clamp(1, caps.max_cqe), channel.as_ref())?;
        let init = QpInit {
            qp_type: transport,
            send_cq: &cq,
            recv_cq: &cq,
            caps: QpCaps {
                max_send_wr: depths.send.min(caps.max_qp_wr),
                max_recv_wr: depths.recv.min(caps.max_qp_wr),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: depths.inline,
            },
        };
        let inline_recv = inline_recv(pattern.landing, &member.part);
        let qps = (0..qps).map(|_| context.create_qp_with_inline_recv(&pd, &init, inline_recv));
        let qps = qps.collect::<Result<Vec<_>, _>>()?;
        let target = if transport == QpType::Dci {
            let qp_type = QpType::Dct;
            Some(context.create_qp(&pd, &QpInit { qp_type, ..init })?)
        } else {
            None
        };
        let mut wiring = Self {
            cq,
            channel,
            mr,
            qps,
            target,
            wires: Vec::with_capacity(links),
            inline: depths.inline,
            polled: member.memory.max(64),
        };
        let path = (context.port_num(), port.active_mtu);
        for qp in &wiring.qps {
            let first = first_psn(qp.qpn(), wiring.mr.rkey());
            if transport == QpType::Dci {
                let most = depths.rd_atomic.min(caps.max_qp_rd_atom);
                dc::ready_initiator(qp, path, first, most)?;
            } else {
                prepare(transport, qp, path.0, first)?;
            }
        }
        if let Some(target) = &wiring.target {
            dc::ready_target(target, path)?;
        }
        wiring.greet(station, member)?;
        wiring.connect(station, &pd, member, (transport, &depths))?;
        Ok(wiring)
    }

    /// What the other end of a link reaches.
    fn reached_by(&self, place: usize) -> &C::Qp {
        match &self.target {
            Some(target) => target,
            None => &self.qps[place % self.qps.len()],
        }
    }

    fn greet<S: Station<Context = C>>(
        &self,
        station: &S,
        member: &Member,
    ) -> Result<(), PatternError> {
        for (place, link) in member.links.iter().enumerate() {
            let hello = Word::Hello {
                end: endpoint(station.context(), self.reached_by(place), &self.mr)?,
                addr: self.mr.addr(),
                rkey: self.mr.rkey().0,
            };
            send(station, link.peer, &hello)?;
        }
        Ok(())
    }

    fn connect<S: Station<Context = C>>(
        &mut self,
        station: &S,
        pd: &C::Pd,
        member: &Member,
        (transport, depths): (Transport, &Depths),
    ) -> Result<(), PatternError> {
        let context = station.context();
        let most = context.caps().max_qp_rd_atom;
        for (place, link) in member.links.iter().enumerate() {
            let Word::Hello { end, addr, rkey } = receive(station, link.peer)? else {
                return Err(PatternError::Protocol("an address"));
            };
            let mut ah = None;
            if transport.is_addressed() {
                ah = Some(context.create_ah(pd, &address_of(&end, context.port_num()))?);
            } else {
                let qp = &self.qps[place % self.qps.len().max(1)];
                let connection = Connection {
                    local: endpoint(context, qp, &self.mr)?,
                    remote: end,
                    path_mtu: context.port(context.port_num())?.active_mtu,
                    max_rd_atomic: depths.rd_atomic.min(most),
                    max_dest_rd_atomic: most,
                    options: PathOptions::default(),
                };
                connection.by_hand_as(transport, qp)?;
            }
            self.wires.push(Wire {
                remote: RemoteAddress {
                    addr,
                    rkey: Rkey(rkey),
                },
                number: end.qpn,
                ah,
                qkey: match transport {
                    QpType::Dci => dc::KEY,
                    _ => QKEY,
                },
            });
        }
        Ok(())
    }

    /// Whether requests go by DC initiators.
    pub fn is_dc(&self) -> bool {
        self.target.is_some()
    }

    /// Where a datagram, or a request of a DC initiator, over this link goes.
    pub fn destination(&self, wire: usize) -> Option<adverb_verbs::Destination<'_>> {
        let wire = &self.wires[wire];
        let ah = wire.ah.as_ref()?;
        Some(adverb_verbs::Destination {
            ah: ah.handle(),
            qpn: wire.number,
            qkey: wire.qkey,
        })
    }
}

/// How many queue pairs a member has: one for each link, but where one serves several.
fn queue_pairs(transport: Transport, member: &Member, depths: &Depths) -> usize {
    let links = member.links.len();
    match (transport, &member.part) {
        (QpType::Dci, Part::Request(load)) => load.dc.initiators as usize,
        (QpType::Dci, _) => 0,
        _ if depths.shares_qp => links.min(1),
        _ => links,
    }
}

/// A queue pair of a side whose region is `mr`, as its peer needs it.
pub fn endpoint<C: Context>(context: &C, qp: &C::Qp, mr: &C::Mr) -> Result<Endpoint, PatternError> {
    let port_num = context.port_num();
    let port = context.port(port_num)?;
    Ok(Endpoint {
        qpn: qp.qpn(),
        psn: first_psn(qp.qpn(), mr.rkey()),
        gid: port.gid,
        lid: port.lid,
        port: port_num,
        cm: None,
    })
}

/// The way to a peer out of a port.
pub fn address_of(end: &Endpoint, port: PortNum) -> AddressVector {
    AddressVector::new(end.gid, end.lid, port)
}

/// To INIT; a datagram queue pair goes on to RTS, since it needs no peer.
pub fn prepare<Q: QueuePair>(
    transport: QpType,
    qp: &Q,
    port: PortNum,
    first: Psn,
) -> Result<(), ModifyQpError> {
    if transport != QpType::Ud {
        return qp.modify(&QpAttr::to_init(port, AccessFlags::all()));
    }
    let mut init = QpAttr::to_init(port, AccessFlags::empty());
    (init.access, init.qkey) = (None, Some(QKEY));
    let mut rts = QpAttr::to(QpState::Rts);
    rts.sq_psn = Some(first);
    [init, QpAttr::to(QpState::Rtr), rts]
        .iter()
        .try_for_each(|attr| qp.modify(attr))
}
