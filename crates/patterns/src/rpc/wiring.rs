//! The objects of cores and clients, and how they are connected.

use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressHandle, Connection, Context, Destination, Endpoint, MemoryRegion,
    PathOptions, QpCaps, QpInit, QpType, Qpn, QueuePair, RecvRequest, RemoteAddress, Rkey, RoleId,
    Station, WrId, first_psn,
};
use serde::{Deserialize, Serialize};

use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::wiring::{QKEY, address_of, endpoint, prepare, receive, send};

use super::service::answer_bytes;
use super::slots::{Kind, Slots, request_bytes};
use super::{Asking, Rpc};

/// Global routing header in front of a datagram's payload in its receive (IBTA vol. 1, 11.4.1.2).
pub(super) const GRH: u32 = 40;

/// What a core and a client tell each other.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// Takes the other's datagrams.
    datagrams: Endpoint,
    /// The other end of the connection that requests are written over.
    writes: Option<Endpoint>,
    /// Of a core: address and key of the client's slots.
    slots: (u64, u32),
    /// Of a core: the next number, of which answers may bring only the lower half.
    number: u64,
}

/// The way of datagrams to a queue pair.
pub(super) struct Way<C: Context> {
    ah: C::Ah,
    qpn: Qpn,
}

impl<C: Context> Way<C> {
    pub(super) fn destination(&self) -> Destination<'_> {
        Destination {
            ah: self.ah.handle(),
            qpn: self.qpn,
            qkey: QKEY,
        }
    }
}

/// Receives of datagrams, all in one ring of buffers.
pub(super) struct Receives {
    /// Offset of the first buffer.
    offset: u64,
    /// Bytes of each.
    size: u32,
}

impl Receives {
    /// Where the payload of receive `slot` is.
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

/// What both sides are made of.
struct Maker<'s, S: Station> {
    station: &'s S,
    pd: <S::Context as Context>::Pd,
    send_cq: <S::Context as Context>::Cq,
    recv_cq: <S::Context as Context>::Cq,
    mr: <S::Context as Context>::Mr,
}

impl<'s, S: Station> Maker<'s, S> {
    /// With queues for so many completions, and a region of `bytes`.
    fn new(
        station: &'s S,
        (sends, receives): (u32, u32),
        bytes: u64,
    ) -> Result<Self, PatternError> {
        let context = station.context();
        let most = context.caps().max_cqe;
        let pd = context.alloc_pd()?;
        let (length, access) = (Bytes::new(bytes.max(64)), AccessFlags::all());
        Ok(Maker {
            station,
            mr: context.alloc_mr(&pd, length, access)?,
            pd,
            send_cq: context.create_cq(sends.clamp(1, most), None)?,
            recv_cq: context.create_cq(receives.clamp(1, most), None)?,
        })
    }

    /// A queue pair; a datagram one goes to RTS, a connected one to INIT.
    fn queue_pair(
        &self,
        qp_type: QpType,
        caps: QpCaps,
    ) -> Result<<S::Context as Context>::Qp, PatternError> {
        let context = self.station.context();
        let init = QpInit {
            qp_type,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            caps,
        };
        let qp = context.create_qp(&self.pd, &init)?;
        let first = first_psn(qp.qpn(), self.mr.rkey());
        prepare(qp_type, &qp, context.port_num(), first)?;
        Ok(qp)
    }

    fn endpoint(&self, qp: &<S::Context as Context>::Qp) -> Result<Endpoint, PatternError> {
        endpoint(self.station.context(), qp, &self.mr)
    }

    fn way(&self, end: &Endpoint) -> Result<Way<S::Context>, PatternError> {
        let context = self.station.context();
        let ah = context.create_ah(&self.pd, &address_of(end, context.port_num()))?;
        Ok(Way { ah, qpn: end.qpn })
    }

    fn connect(
        &self,
        qp: &<S::Context as Context>::Qp,
        end: &Endpoint,
    ) -> Result<(), PatternError> {
        let context = self.station.context();
        let connection = Connection {
            local: self.endpoint(qp)?,
            remote: *end,
            path_mtu: context.port(context.port_num())?.active_mtu,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            options: PathOptions::default(),
        };
        Ok(connection.by_hand_as(QpType::Uc, qp)?)
    }
}

fn caps(send: u32, recv: u32, inline: u32) -> QpCaps {
    QpCaps {
        max_send_wr: send,
        max_recv_wr: recv,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: inline,
    }
}

/// Payload that is sent inline where the device takes it.
fn inline<S: Station>(station: &S, bytes: u32) -> u32 {
    if bytes <= station.context().caps().max_inline_data {
        bytes
    } else {
        0
    }
}

/// A core's objects.
///
/// Its region holds the slots of its clients, then the payloads of answers, then receives.
pub(super) struct CoreEnds<C: Context> {
    pub(super) send_cq: C::Cq,
    pub(super) recv_cq: C::Cq,
    pub(super) mr: C::Mr,
    pub(super) slots: Slots,
    /// Answers go out of these, in turn.
    pub(super) datagrams: Vec<C::Qp>,
    /// The clients, in order.
    pub(super) ways: Vec<Way<C>>,
    pub(super) receives: Receives,
    /// Receives of each datagram queue pair.
    pub(super) receive_depth: u32,
    /// Requests that each datagram queue pair has room for.
    pub(super) depth: u32,
    /// Longest payload that goes inline.
    pub(super) inline: u32,
    /// Offset of the payloads, and bytes from one to the next.
    pub(super) answers: (u64, u64),
    /// Requests are written over these: they only have to be there.
    _writes: Vec<C::Qp>,
}

impl<C: Context> CoreEnds<C> {
    pub(super) fn new<S: Station<Context = C>>(
        station: &S,
        rpc: &Rpc,
        (core, number): (u32, u64),
    ) -> Result<Self, PatternError> {
        let clients: Vec<RoleId> = rpc.clients_of(core).collect();
        let qps = rpc.serving.qps_per_core;
        let device = station.context().caps().max_qp_wr;
        // Room for a batch behind what waits for a completion.
        let depth = (rpc.serving.signaled_every + 2 * rpc.list())
            .max(128)
            .min(device);
        let receive_depth = match rpc.asking() {
            Asking::Write => 1,
            // One more for each client's farewell.
            Asking::HeaderOnly => {
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
        let maker = Maker::new(station, (depth * qps, receive_depth * qps), bytes)?;
        let inline = inline(station, answer);
        let datagrams =
            (0..qps).map(|_| maker.queue_pair(QpType::Ud, caps(depth, receive_depth, inline)));
        let datagrams = datagrams.collect::<Result<Vec<_>, _>>()?;
        let (ways, writes) = greet_clients(&maker, (rpc, number), &clients, slots, &datagrams)?;
        let ends = CoreEnds {
            send_cq: maker.send_cq,
            recv_cq: maker.recv_cq,
            mr: maker.mr,
            slots,
            datagrams,
            ways,
            receives,
            receive_depth,
            depth,
            inline,
            answers: (first_answer, stride),
            _writes: writes,
        };
        if rpc.asking() == Asking::HeaderOnly {
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

type Clients<C> = (Vec<Way<C>>, Vec<<C as Context>::Qp>);

/// Tells each client where its slots are, and connects with it.
fn greet_clients<S: Station>(
    maker: &Maker<'_, S>,
    (rpc, number): (&Rpc, u64),
    clients: &[RoleId],
    slots: Slots,
    datagrams: &[<S::Context as Context>::Qp],
) -> Result<Clients<S::Context>, PatternError> {
    let mut writes = Vec::new();
    for (place, client) in clients.iter().enumerate() {
        let connection = match rpc.asking() {
            Asking::Write => Some(maker.queue_pair(QpType::Uc, caps(1, 1, 0))?),
            Asking::HeaderOnly => None,
        };
        let here = maker.mr.remote(slots.bytes() * place as u64);
        let greeting = Greeting {
            datagrams: maker.endpoint(&datagrams[place % datagrams.len()])?,
            writes: connection
                .as_ref()
                .map(|qp| maker.endpoint(qp))
                .transpose()?,
            slots: (here.addr, here.rkey.0),
            number,
        };
        send(maker.station, *client, &greeting)?;
        writes.extend(connection);
    }
    let mut ways = Vec::with_capacity(clients.len());
    for (place, client) in clients.iter().enumerate() {
        let theirs: Greeting = receive(maker.station, *client)?;
        ways.push(maker.way(&theirs.datagrams)?);
        if let (Some(end), Some(qp)) = (&theirs.writes, writes.get(place)) {
            maker.connect(qp, end)?;
        }
    }
    Ok((ways, writes))
}

/// A client's objects.
///
/// Its region holds a request for each slot, then receives.
pub(super) struct ClientEnds<C: Context> {
    pub(super) send_cq: C::Cq,
    pub(super) recv_cq: C::Cq,
    pub(super) mr: C::Mr,
    pub(super) slots: Slots,
    /// Takes answers; sends requests without payload.
    pub(super) datagrams: C::Qp,
    /// Writes requests.
    pub(super) writes: Option<C::Qp>,
    pub(super) core: Way<C>,
    /// Where the slots are.
    pub(super) remote: RemoteAddress,
    pub(super) receives: Receives,
    /// Requests that the queue pair which asks has room for.
    pub(super) depth: u32,
    /// Longest request that goes inline.
    pub(super) inline: u32,
    /// The next number when this client came.
    pub(super) first_number: u64,
}

impl<C: Context> ClientEnds<C> {
    pub(super) fn new<S: Station<Context = C>>(
        station: &S,
        rpc: &Rpc,
        client: u32,
    ) -> Result<Self, PatternError> {
        let core = rpc.core_of(client);
        let window = rpc.clients.outstanding;
        let device = station.context().caps().max_qp_wr;
        let depth = (2 * window + 2).clamp(2, device);
        let slots = Slots::of(rpc);
        let receives = Receives {
            offset: slots.bytes(),
            size: GRH + answer_bytes(&rpc.service),
        };
        let bytes = receives.offset + u64::from(window) * u64::from(receives.size);
        let maker = Maker::new(station, (depth, window), bytes)?;
        let inline = inline(station, request_bytes(&rpc.service, Kind::Put));
        let datagrams = maker.queue_pair(QpType::Ud, caps(depth, window, 0))?;
        let writes = match rpc.asking() {
            Asking::Write => Some(maker.queue_pair(QpType::Uc, caps(depth, 1, inline))?),
            Asking::HeaderOnly => None,
        };
        let greeting = Greeting {
            datagrams: maker.endpoint(&datagrams)?,
            writes: writes.as_ref().map(|qp| maker.endpoint(qp)).transpose()?,
            slots: (0, 0),
            number: 0,
        };
        for slot in 0..u64::from(window) {
            receives.post::<C>(&maker.mr, &datagrams, WrId(slot), slot)?;
        }
        send(station, core, &greeting)?;
        let theirs: Greeting = receive(station, core)?;
        if let (Some(end), Some(qp)) = (&theirs.writes, &writes) {
            maker.connect(qp, end)?;
        }
        let way = maker.way(&theirs.datagrams)?;
        let (addr, rkey) = (theirs.slots.0, Rkey(theirs.slots.1));
        Ok(ClientEnds {
            send_cq: maker.send_cq,
            recv_cq: maker.recv_cq,
            mr: maker.mr,
            slots,
            datagrams,
            writes,
            core: way,
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
