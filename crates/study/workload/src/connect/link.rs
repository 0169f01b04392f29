//! One end of a connection: its objects, from the first to the last call.

use adverb_units::Span;
use adverb_verbs::{
    AccessFlags, Connection, Context, Endpoint, MemoryRegion, Operation, PathMtu, QpAttr, QpCaps,
    QpInit, QpState, QpType, QueuePair, RecvRequest, RoleId, SendFlags, SendRequest, Station,
    WcStatus, WorkCompletion, WrId,
};
use serde::{Deserialize, Serialize};

use super::step::{Step, Timings};
use super::{ACTIVE, Connect};
use crate::attend::{Awaited, Members, attentively};
use crate::error::Fault;
use crate::pattern::wiring::{receive, send};

/// Name of each SEND; receives have the numbers of their buffers.
const SENT: WrId = WrId(u64::MAX);
/// Length of a message, which begins with its number.
pub(super) const MESSAGE: u32 = 64;
/// Length of the last message: the number of those before it.
pub(super) const COUNT: u32 = 8;
/// Receives posted at most; the region has a buffer for each, after the buffer of sends.
pub(super) const MOST_RECEIVES: u32 = 32;
/// How a message ends for which no receive is posted.
pub(super) const NO_RECEIVE: WcStatus = WcStatus::RnrRetryExcErr;
/// How messages after it end.
pub(super) const FLUSHED: WcStatus = WcStatus::WrFlushErr;

/// What the two ends of a connection tell each other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    end: Endpoint,
    path_mtu: PathMtu,
}

/// One end of a connection. Fields are in the order in which they are destroyed.
pub(super) struct Link<C: Context> {
    qp: C::Qp,
    cq: C::Cq,
    channel: C::Channel,
    mr: C::Mr,
    pd: C::Pd,
    /// Receives posted and not completed.
    receives: u32,
    /// Sum of the steps so far.
    pub(super) spent: Span,
}

/// The roles to which an end sends its address, and from which it gets its peer's.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    pub(super) to: RoleId,
    pub(super) from: RoleId,
}

impl<C: Context> Link<C> {
    /// Creates the objects; the queue pair is in INIT.
    pub(super) fn new<S: Station<Context = C>>(
        members: &Members<'_, S>,
        connect: &Connect,
        receives: u32,
        timings: &mut Timings<'_, S>,
    ) -> Result<Self, Fault> {
        let context = members.station().context();
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let pd = timings.time(Step::AllocPd, || context.alloc_pd())?;
        let channel = timings.time(Step::CreateChannel, || context.create_channel())?;
        let cq = timings.time(Step::CreateCq, || {
            context.create_cq(receives + 1, Some(&channel))
        })?;
        let mr = timings.time(Step::RegisterMr, || match connect.pages {
            Some(pages) => context.alloc_mr_on(pages, &pd, (connect.region, access)),
            None => context.alloc_mr(&pd, connect.region, access),
        })?;
        let init = QpInit::new(QpType::Rc, &cq, QpCaps::new(1, receives.max(1)));
        let qp = timings.time(Step::CreateQp, || match connect.path.api {
            Some(api) => context.create_qp_with_api(&pd, &init, api),
            None => context.create_qp(&pd, &init),
        })?;
        let to_init = QpAttr::to_init(context.port_num(), access);
        timings.time(Step::ToInit, || qp.modify(&to_init))?;
        Ok(Link {
            qp,
            cq,
            channel,
            mr,
            pd,
            receives: 0,
            spent: Span::ZERO,
        })
    }

    /// Posts the first receives, if there are any.
    pub(super) fn post_receives<S: Station<Context = C>>(
        &mut self,
        receives: u32,
        timings: &mut Timings<'_, S>,
    ) -> Result<(), Fault> {
        if receives == 0 {
            return Ok(());
        }
        timings.time(Step::PostReceives, || {
            (0..receives).try_for_each(|slot| self.post_receive(slot.into()))
        })
    }

    /// Connects the queue pair to the peer's, which does the same.
    pub(super) fn connect<S: Station<Context = C>>(
        &self,
        members: &Members<'_, S>,
        (connect, peers): (&Connect, Peers),
        timings: &mut Timings<'_, S>,
    ) -> Result<(), Fault> {
        let context = members.station().context();
        let port = context.port(context.port_num())?;
        connect.path.check(&port)?;
        let secret = members.station().secret();
        let mut local = Endpoint::new(self.qp.qpn(), secret, (context.port_num(), &port));
        let is_passive = peers.to == ACTIVE;
        if context.connects_by_manager() && is_passive {
            local.cm = timings.time(Step::Listen, || self.qp.listen())?;
        }
        let hello = Hello {
            end: local,
            path_mtu: port.active_mtu,
        };
        let theirs: Hello = timings.time(Step::Exchange, || {
            send(members, peers.to, &hello)?;
            receive(members, peers.from)
        })?;
        let path_mtu = port.active_mtu.min(theirs.path_mtu);
        connect.path.path_mtu_up_to(path_mtu)?;
        let connection = Connection {
            local,
            remote: theirs.end,
            path_mtu,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            options: connect.path,
        };
        if context.connects_by_manager() || theirs.end.cm.is_some() {
            return Ok(timings.time(Step::Connect, || self.qp.connect(&connection))?);
        }
        let (to_rtr, to_rts) = connection.attributes();
        timings.time(Step::ToRtr, || self.qp.modify(&to_rtr))?;
        Ok(timings.time(Step::ToRts, || self.qp.modify(&to_rts))?)
    }

    fn post_receive(&mut self, slot: u64) -> Result<(), Fault> {
        let sges = [self.mr.sge(buffer(slot), MESSAGE)?];
        self.qp.post_recv(&[RecvRequest::new(WrId(slot), &sges)])?;
        self.receives += 1;
        Ok(())
    }

    /// Sends a message of `length` bytes that begins with `word`, and returns how it completed.
    pub(super) fn say<S: Station<Context = C>>(
        &mut self,
        members: &Members<'_, S>,
        word: u64,
        length: u32,
    ) -> Result<WcStatus, Fault> {
        self.mr.write(0, &word.to_le_bytes())?;
        let sges = [self.mr.sge(0, length)?];
        let request = SendRequest::new(SENT, Operation::Send, &sges);
        self.qp
            .post_send(&[request.with_flags(SendFlags::SIGNALED)])?;
        loop {
            let wc = self.reap(members, Awaited::OwnRequest)?;
            if wc.wr_id == SENT {
                return Ok(wc.status);
            }
            // A message that fails takes the queue pair to ERR, which flushes the receives.
            expect(wc.status, wc.wr_id.0, Some(FLUSHED))?;
            self.receives -= 1;
        }
    }

    /// Takes messages until the one with their number, and checks the numbers.
    pub(super) fn take_messages<S: Station<Context = C>>(
        &mut self,
        members: &Members<'_, S>,
    ) -> Result<(), Fault> {
        let mut taken = 0;
        loop {
            let wc = self.reap(members, Awaited::Message)?;
            self.receives -= 1;
            expect(wc.status, wc.wr_id.0, None)?;
            let mut word = [0; 8];
            self.mr.read(buffer(wc.wr_id.0), &mut word)?;
            let word = u64::from_le_bytes(word);
            match wc.byte_len {
                COUNT if word == taken => return Ok(()),
                COUNT => return Err(Fault::Wrong("a number of messages that is not theirs")),
                _ if word != taken + 1 => return Err(Fault::Wrong("a message out of order")),
                _ => taken += 1,
            }
            self.post_receive(wc.wr_id.0)?;
        }
    }

    fn reap<S: Station<Context = C>>(
        &self,
        members: &Members<'_, S>,
        awaited: Awaited,
    ) -> Result<WorkCompletion, Fault> {
        let mut wc = [WorkCompletion::default()];
        attentively(members, awaited, |timeout| {
            members.station().spin(&self.cq, &mut wc, timeout)
        })?;
        Ok(wc[0])
    }

    /// Flushes the receives and destroys the objects.
    pub(super) fn close<S: Station<Context = C>>(
        mut self,
        members: &Members<'_, S>,
        timings: &mut Timings<'_, S>,
    ) -> Result<(), Fault> {
        timings.time(Step::ToErr, || -> Result<(), Fault> {
            self.qp.modify(&QpAttr::to(QpState::Err))?;
            while self.receives > 0 {
                let wc = self.reap(members, Awaited::OwnRequest)?;
                expect(wc.status, wc.wr_id.0, Some(FLUSHED))?;
                self.receives -= 1;
            }
            Ok(())
        })?;
        timings.time(Step::DestroyQp, || drop(self.qp));
        timings.time(Step::DestroyCq, || drop(self.cq));
        timings.time(Step::DestroyChannel, || drop(self.channel));
        timings.time(Step::DeregisterMr, || drop(self.mr));
        timings.time(Step::FreePd, || drop(self.pd));
        Ok(())
    }
}

/// Offset of a receive's buffer.
fn buffer(slot: u64) -> u64 {
    (1 + slot) * u64::from(MESSAGE)
}

/// Checks how a request ended: well, or in the one way that is expected instead.
pub(super) fn expect(
    status: WcStatus,
    request: u64,
    expected: Option<WcStatus>,
) -> Result<(), Fault> {
    if status == expected.unwrap_or(WcStatus::Success) {
        return Ok(());
    }
    Err(Fault::Completion {
        wr_id: WrId(request),
        status,
    })
}
