//! The queue pairs and the memory of a member.

use adverb_verbs::{Context, MemoryRegion, QpType, QueuePair, RecvRequest, RoleId, Station, WrId};
use adverb_workload::attend::Members;
use adverb_workload::pattern::wiring::{Depths, Wiring};
use adverb_workload::pattern::{Part, Pattern, PatternError, Transport};
use adverb_workload::wiring::GRH;

use super::{Echo, EchoBy};
use crate::datagram::check_datagram;
use crate::inline::inline_data;
use crate::loops::RD_ATOMIC;
use crate::rpc::RpcPart;

/// Shortest send queue, so that few completions of requests disturb those that are awaited.
const SENDS: u32 = 128;

/// A member's objects: one link for each peer. Requests and replies have the same queue pairs, unless requests are WRITEs
/// and replies datagrams.
pub(super) struct Ends<C: Context> {
    requests: Wiring<C>,
    replies: Option<Wiring<C>>,
    /// Send queue size of each queue pair.
    pub(super) depth: u32,
    receives: Receives,
}

/// The receives of a member.
#[derive(Clone, Copy, Default)]
struct Receives {
    /// Of each queue pair; 0 if it receives nothing.
    each: u32,
    /// Bytes of each, and from one to the next.
    size: u32,
    stride: u32,
}

impl<C: Context> Ends<C> {
    /// Creates and connects the objects, and posts receives.
    pub(super) fn new<S: Station<Context = C>>(
        members: &Members<'_, S>,
        echo: &Echo,
        me: RoleId,
    ) -> Result<Self, PatternError> {
        let caps = members.station().context().caps();
        let depth = (2 * echo.clients.outstanding)
            .max(SENDS)
            .min(caps.max_qp_wr);
        let receives = receives(echo, me);
        let wire = |transport, receives| {
            let pattern = pattern(echo, transport);
            let member = &pattern.members[me.0 as usize];
            let is_core = matches!(echo.seats().part(me), RpcPart::Core(_));
            let payload = if is_core { echo.reply } else { echo.request };
            let depths = Depths {
                send: depth,
                recv: u32::max(receives, 1),
                inline: inline_data(members.station().context(), transport, payload),
                rd_atomic: if is_core { u8::MAX } else { RD_ATOMIC },
                // A datagram queue pair of a core serves all of its clients.
                shares_qp: is_core && transport == QpType::Ud,
                ..Depths::PASSIVE
            };
            Wiring::with_depths(members, &pattern, member, depths)
        };
        let transport = echo.request_transport();
        let ends = if transport == echo.transport {
            Ends {
                requests: wire(transport, receives.each)?,
                replies: None,
                depth,
                receives,
            }
        } else {
            Ends {
                requests: wire(transport, 0)?,
                replies: Some(wire(echo.transport, receives.each)?),
                depth,
                receives,
            }
        };
        if echo.transport == QpType::Ud {
            let instead = "--transport rc or uc, or a smaller size";
            let longest = echo.by.longest_datagram(echo.request, echo.reply);
            check_datagram(members.station(), longest, instead)?;
        }
        let all = ends.replying().qps.len() as u64 * u64::from(receives.each);
        (0..all).try_for_each(|number| ends.post_receive(number))?;
        Ok(ends)
    }

    /// The objects by which requests are sent.
    pub(super) fn requesting(&self) -> &Wiring<C> {
        &self.requests
    }

    /// The memory of requests.
    pub(super) fn requests(&self) -> &C::Mr {
        &self.requests.mr
    }

    /// The objects by which replies are sent.
    pub(super) fn replying(&self) -> &Wiring<C> {
        self.replies.as_ref().unwrap_or(&self.requests)
    }

    /// The memory of replies.
    pub(super) fn replies(&self) -> &C::Mr {
        &self.replying().mr
    }

    /// Whether requests and replies share queue pairs.
    pub(super) fn shares_queue(&self) -> bool {
        self.replies.is_none()
    }

    /// Posts a receive, or posts it again.
    pub(super) fn post_receive(&self, number: u64) -> Result<(), PatternError> {
        let Receives { each, size, stride } = self.receives;
        let wiring = self.replying();
        let sges = [wiring.mr.sge(number * u64::from(stride), size)?];
        let receive = RecvRequest::new(WrId(number), &sges);
        Ok(wiring.qps[(number / u64::from(each)) as usize].post_recv(&[receive])?)
    }

    /// Returns where the message in a receive begins, and its length.
    pub(super) fn received(&self, number: u64, byte_len: u32) -> (u64, u32) {
        let offset = number * u64::from(self.receives.stride);
        match self.replying().destination(0) {
            Some(_) => (offset + u64::from(GRH), byte_len.saturating_sub(GRH)),
            None => (offset, byte_len),
        }
    }
}

/// Returns what a member receives. No more messages of a peer are in flight than it has outstanding requests.
fn receives(echo: &Echo, me: RoleId) -> Receives {
    let window = echo.clients.outstanding;
    let (each, bytes, slots) = match echo.seats().part(me) {
        RpcPart::Core(core) if echo.by == EchoBy::Send => {
            let peers = match echo.transport {
                QpType::Ud => echo.clients_of(core) as u32,
                _ => 1,
            };
            (peers * window, echo.request, echo.requests())
        }
        RpcPart::Client(_) if echo.by.sends_replies() => (window, echo.reply, echo.replies()),
        _ => return Receives::default(),
    };
    let header = if echo.transport == QpType::Ud { GRH } else { 0 };
    Receives {
        each,
        size: bytes + header,
        stride: slots.stride,
    }
}

fn pattern(echo: &Echo, transport: Transport) -> Pattern {
    let seats = echo.seats();
    let mut pattern = Pattern::new(transport);
    (pattern.wait, pattern.path) = (echo.wait, echo.path);
    for role in (0..seats.members()).map(RoleId) {
        pattern.add(seats.machine(role), Part::Serve, echo.memory(role).get());
    }
    for client in 0..echo.clients.threads {
        pattern.link(RoleId(seats.cores + client), seats.core_of(client));
    }
    pattern
}
