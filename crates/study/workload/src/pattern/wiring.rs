//! A member's objects and their connections to its peers.

use std::collections::{BTreeMap, VecDeque};

use adverb_verbs::{
    AccessFlags, Context, Destination, Endpoint, MemoryRegion, QpCaps, QpType, RemoteAddress,
    RoleId, Station,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attend::{Awaited, Members};
use crate::error::Fault;
use crate::load::{Load, Seen, Transport};
use crate::pattern::dc;
use crate::pattern::shape::{Landing, Member, Part, Pattern};
use crate::polled;
use crate::reap::Queue;
use crate::wiring::{GRH, Kit, PeerAddress, QKEY};

/// The message of a member to each of its peers before they connect. It has the ends of all links between the
/// two, because a send may wait until the peer receives: with a message for each link, both could wait.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    /// The sender's queue pairs, in the order of its links to the receiver.
    ends: VecDeque<Endpoint>,
    /// The sender's memory.
    memory: RemoteAddress,
}

/// One link, connected.
pub struct Wire<C: Context> {
    /// The peer's memory.
    pub remote: RemoteAddress,
    /// The address of its queue pair, if requests carry it.
    peer: Option<PeerAddress<C>>,
}

/// A member's objects.
pub struct Wiring<C: Context> {
    /// Completion queue of all its queue pairs.
    pub queue: Queue<C>,
    /// Its memory.
    pub mr: C::Mr,
    /// Offset of the destination memory of READs, if the member polls it.
    pub polled: u64,
    /// Its queue pairs.
    pub qps: Vec<C::Qp>,
    /// The target of other members' DC initiators.
    target: Option<C::Qp>,
    /// Its links, in order.
    pub wires: Vec<Wire<C>>,
    /// Maximum inline payload.
    pub inline: u32,
}

/// Sizes of a member's queues.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// Send requests of each queue pair.
    pub send: u32,
    /// Receives of each.
    pub recv: u32,
    /// Maximum inline payload.
    pub inline: u32,
    /// READs and atomics outstanding on each.
    pub rd_atomic: u8,
    /// Whether one queue pair serves all links.
    pub shares_qp: bool,
    /// What the peers may do with the member's memory.
    pub access: AccessFlags,
}

impl Depths {
    /// Sizes of a member that posts nothing: its peers access its memory.
    pub const PASSIVE: Depths = Depths {
        send: 1,
        recv: 1,
        inline: 0,
        rd_atomic: u8::MAX,
        shares_qp: false,
        access: AccessFlags::all(),
    };

    fn of(part: &Part, transport: Transport) -> Self {
        match part {
            Part::Request(load) | Part::Strand(load) => Depths {
                send: send_depth(load),
                inline: if load.inline { load.payload() } else { 0 },
                rd_atomic: load.limits.rd_atomic,
                ..Depths::PASSIVE
            },
            Part::Serve | Part::Work(_) | Part::Count | Part::Compute(_) | Part::Churn { .. } => {
                Depths::PASSIVE
            }
            Part::Receive { depth, .. } => Depths {
                recv: *depth,
                // Datagrams of all peers arrive at one queue pair.
                shares_qp: transport == QpType::Ud,
                ..Depths::PASSIVE
            },
        }
    }
}

/// Returns the maximum payload within receive completions.
fn inline_recv(landing: Landing, part: &Part) -> u32 {
    match (landing, part) {
        (Landing::Completion, Part::Receive { size, .. }) => size - GRH,
        _ => 0,
    }
}

/// Returns the send queue size of a queue pair.
pub fn send_depth(load: &Load) -> u32 {
    let most = match load.seen {
        Seen::Completion => load.limits.per_qp.min(load.limits.per_member),
        Seen::Memory => load.limits.per_qp,
    };
    most.max(load.list()).saturating_add(1)
}

/// Sends a message to another member, out of band.
///
/// # Errors
/// It is gone.
pub fn send<S: Station>(
    members: &Members<'_, S>,
    to: RoleId,
    word: &impl Serialize,
) -> Result<(), Fault> {
    let text = postcard::to_stdvec(word).map_err(|e| strange(&e))?;
    members.send(to, &text)
}

/// Receives the next message of another member.
///
/// # Errors
/// The member is gone.
pub fn receive<S: Station, W: DeserializeOwned>(
    members: &Members<'_, S>,
    from: RoleId,
) -> Result<W, Fault> {
    postcard::from_bytes(&members.receive(from)?).map_err(|e| strange(&e))
}

fn strange(error: &postcard::Error) -> Fault {
    Fault::Protocol {
        expected: "an address",
        found: error.to_string(),
    }
}

impl<C: Context> Wiring<C> {
    /// Makes a member's objects and connects them.
    ///
    /// # Errors
    /// The device refuses, or another member is gone.
    pub fn new<S: Station<Context = C>>(
        members: &Members<'_, S>,
        pattern: &Pattern,
        member: &Member,
    ) -> Result<Self, Fault> {
        let depths = Depths::of(&member.part, member.transport);
        Self::with_depths(members, pattern, member, depths)
    }

    /// The same, with other queue sizes than the member's part implies.
    ///
    /// # Errors
    /// The device refuses, or another member is gone.
    pub fn with_depths<S: Station<Context = C>>(
        members: &Members<'_, S>,
        pattern: &Pattern,
        member: &Member,
        depths: Depths,
    ) -> Result<Self, Fault> {
        let transport = member.transport;
        let context = members.station().context();
        let caps = context.caps();
        let memory = member.memory.max(64);
        let polled = match &member.part {
            Part::Request(load) => polled::bytes(load),
            _ => 0,
        };
        let bytes = memory + polled;
        let kit = Kit::new(members.station(), (bytes, depths.access), pattern.path)?;
        let count = queue_pairs(transport, member, &depths);
        let entries = depths.send.saturating_add(depths.recv);
        let entries = entries.saturating_mul(count.max(1) as u32);
        let queue = Queue::new(context, entries, pattern.wait, Awaited::OwnRequest)?;
        let sizes = QpCaps {
            max_inline_data: depths.inline,
            ..QpCaps::new(
                depths.send.min(caps.max_qp_wr),
                depths.recv.min(caps.max_qp_wr),
            )
        };
        let inline_recv = inline_recv(pattern.landing, &member.part);
        let make = |qp_type, inline| kit.queue_pair(qp_type, (&queue, &queue), sizes, inline);
        let qps = (0..count).map(|_| make(transport, inline_recv));
        let qps = qps.collect::<Result<Vec<_>, _>>()?;
        let mut target = None;
        if transport == QpType::Dci {
            let path = (context.port_num(), kit.port().active_mtu);
            for qp in &qps {
                let first = kit.first_psn(qp);
                let most = depths.rd_atomic.min(caps.max_qp_rd_atom);
                dc::ready_initiator(qp, path, first, most)?;
            }
            let qp = make(QpType::Dct, 0)?;
            dc::ready_target(&qp, path)?;
            target = Some(qp);
        }
        let mut wires = Vec::with_capacity(member.links.len());
        // The queue pair that the other end of a link addresses.
        let reached = |place: usize| target.as_ref().unwrap_or_else(|| &qps[place % qps.len()]);
        let mut hellos = exchange(members, member, &kit.mr, |place| {
            kit.endpoint(reached(place))
        })?;
        for (place, link) in member.links.iter().enumerate() {
            let hello = hellos.get_mut(&link.peer).expect("each peer sent a hello");
            let end = hello.ends.pop_front().expect("with an end for each link");
            let peer = match transport {
                QpType::Dci => Some(kit.peer_address(&end, dc::KEY)?),
                _ if transport.is_addressed() => Some(kit.peer_address(&end, QKEY)?),
                _ => {
                    let qp = reached(place);
                    let route = kit.route(depths.rd_atomic);
                    kit.connect((transport, qp), kit.endpoint(qp), end, &route)?;
                    None
                }
            };
            let remote = hello.memory;
            wires.push(Wire { remote, peer });
        }
        Ok(Wiring {
            queue,
            mr: kit.mr,
            qps,
            target,
            wires,
            inline: depths.inline,
            polled: memory,
        })
    }

    /// Whether requests are posted to DC initiators.
    pub fn is_dc(&self) -> bool {
        self.target.is_some()
    }

    /// Returns the destination of datagrams and of DC initiators' requests over this link.
    pub fn destination(&self, wire: usize) -> Option<Destination<'_>> {
        self.wires[wire].peer.as_ref().map(PeerAddress::destination)
    }
}

/// Exchanges the ends of a member's links with its peers; `end_of` returns its own end of a link.
fn exchange<S: Station>(
    members: &Members<'_, S>,
    member: &Member,
    mr: &impl MemoryRegion,
    end_of: impl Fn(usize) -> Endpoint,
) -> Result<BTreeMap<RoleId, Hello>, Fault> {
    let mut ours: BTreeMap<RoleId, VecDeque<Endpoint>> = BTreeMap::new();
    for (place, link) in member.links.iter().enumerate() {
        ours.entry(link.peer).or_default().push_back(end_of(place));
    }
    for (peer, ends) in &ours {
        let hello = Hello {
            ends: ends.clone(),
            memory: mr.remote(0),
        };
        send(members, *peer, &hello)?;
    }
    let receive_from = |(peer, ends): (RoleId, VecDeque<Endpoint>)| {
        let hello: Hello = receive(members, peer)?;
        if hello.ends.len() != ends.len() {
            return Err(Fault::Protocol {
                expected: "an address for each queue pair",
                found: format!("{} addresses for {}", hello.ends.len(), ends.len()),
            });
        }
        Ok((peer, hello))
    };
    ours.into_iter().map(receive_from).collect()
}

/// Returns the number of queue pairs of a member: one per link, unless several links share one.
fn queue_pairs(transport: Transport, member: &Member, depths: &Depths) -> usize {
    let links = member.links.len();
    match (transport, &member.part) {
        (QpType::Dci, Part::Request(load)) => load.dc.initiators as usize,
        (QpType::Dci, _) => 0,
        _ if depths.shares_qp => links.min(1),
        _ => links,
    }
}
