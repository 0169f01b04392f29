//! Creates and connects the objects of cores and clients.

use adverb_results::Completion;
use adverb_verbs::{
    AccessFlags, Context, Endpoint, MemoryRegion, QpCaps, QpType, QueuePair, RecvRequest,
    RemoteAddress, Rkey, RoleId, Station, WrId,
};
use adverb_workload::attend::{Awaited, Members};
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::wiring::{receive, send};
use adverb_workload::reap::Queue;
use adverb_workload::wiring::{GRH, Kit, PeerAddress, QKEY};
use serde::{Deserialize, Serialize};

use super::service::answer_bytes;
use super::slots::{Kind, Slots, request_bytes};
use super::{RequestBy, Rpc};
use crate::datagram::check_datagram;
use crate::inline::inline_data;

/// Handshake message between a core and a client.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// The UD queue pair that receives datagrams.
    datagrams: Endpoint,
    /// The UC queue pair for requests by WRITE.
    writes: Option<Endpoint>,
    /// From a core: address and key of the client's slots.
    slots: (u64, u32),
    /// From a core: the next number. Answers may contain only the lower half.
    number: u64,
}

/// Receive buffers of datagrams, in a ring.
pub(super) struct Receives {
    /// Offset of the first buffer.
    offset: u64,
    /// Bytes of each.
    size: u32,
}

impl Receives {
    /// Returns the offset of the payload of receive `slot`.
    pub(super) fn payload(&self, slot: u64) -> u64 {
        self.offset + slot * u64::from(self.size) + u64::from(GRH)
    }

    /// Posts receive `slot`.
    pub(super) fn post<C: Context>(
        &self,
        mr: &C::Mr,
        qp: &C::Qp,
        name: WrId,
        slot: u64,
    ) -> Result<(), PatternError> {
        let sges = [mr.sge(self.offset + slot * u64::from(self.size), self.size)?];
        Ok(qp.post_recv(&[RecvRequest::new(name, &sges)])?)
    }
}

fn caps(send: u32, recv: u32, inline: u32) -> QpCaps {
    QpCaps {
        max_inline_data: inline,
        ..QpCaps::new(send, recv)
    }
}

/// Creates the completion queues for sends and receives.
fn queues<S: Station>(
    station: &S,
    sends: u32,
    receives: u32,
) -> Result<[Queue<S::Context>; 2], PatternError> {
    let make = |entries, awaited| Queue::new(station.context(), entries, Completion::Poll, awaited);
    Ok([
        make(sends, Awaited::OwnRequest)?,
        make(receives, Awaited::Message)?,
    ])
}

/// A core's objects.
///
/// Its region holds the slots of its clients, then the payloads of answers, then receives.
pub(super) struct CoreEnds<C: Context> {
    pub(super) sends: Queue<C>,
    pub(super) recvs: Queue<C>,
    pub(super) mr: C::Mr,
    pub(super) slots: Slots,
    /// UD queue pairs from which answers are sent in turn: one of each port, then the next of each.
    pub(super) datagrams: Vec<C::Qp>,
    /// Ports to which the clients are assigned in turn.
    pub(super) ports: u32,
    /// The clients, in order.
    pub(super) clients: Vec<PeerAddress<C>>,
    pub(super) receives: Receives,
    /// Receives of each datagram queue pair.
    pub(super) receive_depth: u32,
    /// Send queue size of each UD queue pair.
    pub(super) depth: u32,
    /// Maximum inline payload.
    pub(super) inline: u32,
    /// Offset of the payloads, and bytes from one to the next.
    pub(super) answers: (u64, u64),
    /// The UC queue pairs for requests, kept so that they exist.
    _writes: Vec<C::Qp>,
}

impl<C: Context> CoreEnds<C> {
    pub(super) fn new<S: Station<Context = C>>(
        members: &Members<'_, S>,
        rpc: &Rpc,
        (core, number): (u32, u64),
    ) -> Result<Self, PatternError> {
        let station = members.station();
        check_datagram(station, answer_bytes(&rpc.service), "a smaller --value")?;
        let clients: Vec<RoleId> = rpc.seats().clients_of(core).collect();
        let ports = match rpc.request_by() {
            RequestBy::Write => station.context().ports(),
            RequestBy::HeaderOnly => 1,
        };
        let qps = rpc.serving.qps_per_port * ports;
        let device = station.context().caps().max_qp_wr;
        // Room for a batch in addition to answers that wait for a completion.
        let depth = (rpc.serving.signaled_every + 2 * rpc.list())
            .max(128)
            .min(device);
        let receive_depth = match rpc.request_by() {
            RequestBy::Write => 1,
            // One more for the last message of each client.
            RequestBy::HeaderOnly => {
                let each = (clients.len() as u32).div_ceil(qps) * (rpc.clients.outstanding + 1);
                each.clamp(1, device)
            }
        };
        let slots = Slots::of(rpc);
        let answer = answer_bytes(&rpc.service);
        let stride = u64::from(answer.next_multiple_of(8).max(8));
        let first_answer = slots.bytes() * clients.len() as u64;
        let all_answers = stride * u64::from(qps) * u64::from(depth);
        let receives = Receives {
            offset: first_answer + all_answers,
            size: GRH,
        };
        let bytes = receives.offset + u64::from(qps) * u64::from(receive_depth) * u64::from(GRH);
        let kit = Kit::new(station, (bytes, AccessFlags::all()), rpc.path)?;
        let [sends, recvs] = queues(station, depth * qps, receive_depth * qps)?;
        let inline = inline_data(station.context(), QpType::Ud, answer);
        let make = |qp_type, caps| kit.queue_pair(qp_type, (&sends, &recvs), caps, 0);
        let datagrams = (0..qps).map(|_| make(QpType::Ud, caps(depth, receive_depth, inline)));
        let datagrams = datagrams.collect::<Result<Vec<_>, _>>()?;
        let writes = match rpc.request_by() {
            RequestBy::Write => clients.len(),
            RequestBy::HeaderOnly => 0,
        };
        let writes = (0..writes).map(|_| make(QpType::Uc, caps(1, 1, 0)));
        let writes = writes.collect::<Result<Vec<_>, _>>()?;
        let greeting = |place: usize| {
            let here = kit.mr.remote(slots.bytes() * place as u64);
            Greeting {
                datagrams: kit.endpoint(&datagrams[place % datagrams.len()]),
                writes: writes.get(place).map(|qp| kit.endpoint(qp)),
                slots: (here.addr, here.rkey.0),
                number,
            }
        };
        for (place, client) in clients.iter().enumerate() {
            send(members, *client, &greeting(place))?;
        }
        let mut peers = Vec::with_capacity(clients.len());
        for (place, client) in clients.iter().enumerate() {
            let theirs: Greeting = receive(members, *client)?;
            peers.push(kit.peer_address(&theirs.datagrams, QKEY)?);
            if let (Some(end), Some(qp)) = (theirs.writes, writes.get(place)) {
                kit.connect((QpType::Uc, qp), kit.endpoint(qp), end, &kit.route(0))?;
            }
        }
        let ends = CoreEnds {
            sends,
            recvs,
            mr: kit.mr,
            slots,
            datagrams,
            ports,
            clients: peers,
            receives,
            receive_depth,
            depth,
            inline,
            answers: (first_answer, stride),
            _writes: writes,
        };
        if rpc.request_by() == RequestBy::HeaderOnly {
            let all = u64::from(qps) * u64::from(receive_depth);
            (0..all).try_for_each(|slot| ends.post_receive(slot))?;
        }
        Ok(ends)
    }

    /// Posts receive `slot`, which belongs to one of the queue pairs.
    pub(super) fn post_receive(&self, slot: u64) -> Result<(), PatternError> {
        let qp = &self.datagrams[(slot / u64::from(self.receive_depth)) as usize];
        self.receives.post::<C>(&self.mr, qp, WrId(slot), slot)
    }
}

/// A client's objects.
///
/// Its region holds a request for each slot, then receives.
pub(super) struct ClientEnds<C: Context> {
    pub(super) sends: Queue<C>,
    pub(super) recvs: Queue<C>,
    pub(super) mr: C::Mr,
    pub(super) slots: Slots,
    /// Receives answers and sends requests without payload.
    pub(super) datagrams: C::Qp,
    /// Writes requests.
    pub(super) writes: Option<C::Qp>,
    pub(super) core: PeerAddress<C>,
    /// Address of the slots.
    pub(super) remote: RemoteAddress,
    pub(super) receives: Receives,
    /// Send queue size of the queue pair for requests.
    pub(super) depth: u32,
    /// Maximum inline request.
    pub(super) inline: u32,
    /// The next number when this client was connected.
    pub(super) first_number: u64,
}

impl<C: Context> ClientEnds<C> {
    pub(super) fn new<S: Station<Context = C>>(
        members: &Members<'_, S>,
        rpc: &Rpc,
        client: u32,
    ) -> Result<Self, PatternError> {
        let station = members.station();
        let core = rpc.seats().core_of(client);
        let window = rpc.clients.outstanding;
        let device = station.context().caps().max_qp_wr;
        let depth = (2 * window + 2).clamp(2, device);
        let slots = Slots::of(rpc);
        let receives = Receives {
            offset: slots.bytes(),
            size: GRH + answer_bytes(&rpc.service),
        };
        let bytes = receives.offset + u64::from(window) * u64::from(receives.size);
        let kit = Kit::new(station, (bytes, AccessFlags::all()), rpc.path)?;
        let [sends, recvs] = queues(station, depth, window)?;
        let longest = request_bytes(&rpc.service, Kind::Put);
        let inline = inline_data(station.context(), QpType::Uc, longest);
        let make = |qp_type, caps| kit.queue_pair(qp_type, (&sends, &recvs), caps, 0);
        let datagrams = make(QpType::Ud, caps(depth, window, 0))?;
        let writes = match rpc.request_by() {
            RequestBy::Write => Some(make(QpType::Uc, caps(depth, 1, inline))?),
            RequestBy::HeaderOnly => None,
        };
        let greeting = Greeting {
            datagrams: kit.endpoint(&datagrams),
            writes: writes.as_ref().map(|qp| kit.endpoint(qp)),
            slots: (0, 0),
            number: 0,
        };
        for slot in 0..u64::from(window) {
            receives.post::<C>(&kit.mr, &datagrams, WrId(slot), slot)?;
        }
        send(members, core, &greeting)?;
        let theirs: Greeting = receive(members, core)?;
        if let (Some(end), Some(qp)) = (theirs.writes, &writes) {
            kit.connect((QpType::Uc, qp), kit.endpoint(qp), end, &kit.route(0))?;
        }
        let peer = kit.peer_address(&theirs.datagrams, QKEY)?;
        let (addr, rkey) = (theirs.slots.0, Rkey(theirs.slots.1));
        Ok(ClientEnds {
            sends,
            recvs,
            mr: kit.mr,
            slots,
            datagrams,
            writes,
            core: peer,
            first_number: theirs.number,
            remote: RemoteAddress { addr, rkey },
            receives,
            depth,
            inline,
        })
    }

    /// Posts receive `slot` again.
    pub(super) fn post_receive(&self, slot: u64) -> Result<(), PatternError> {
        let name = WrId(slot);
        self.receives
            .post::<C>(&self.mr, &self.datagrams, name, slot)
    }
}
