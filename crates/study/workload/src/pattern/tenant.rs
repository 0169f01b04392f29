//! A second tenant on the same machines, which disturbs the first.

use adverb_units::{Bytes, Time};
use adverb_verbs::{
    AccessFlags, Context, MemoryRegion, Operation, QueuePair, RoleId, SendFlags, SendRequest,
    Station, WrId,
};

use crate::error::Fault;
use crate::load::{Load, Transport};
use crate::pattern::shape::{Outbound, Part, Pattern};
use crate::pattern::wiring::Wiring;

impl Pattern {
    /// Returns a pattern that runs both patterns on the same machines at the same time, this one's members
    /// first. Each keeps its own transport; both wait for completions as this one does.
    #[must_use]
    pub fn with_tenant(mut self, tenant: Pattern) -> Self {
        let moved = self.members.len() as u32;
        self.members
            .extend(tenant.members.into_iter().map(|mut member| {
                for link in &mut member.links {
                    link.peer = RoleId(link.peer.0 + moved);
                }
                member
            }));
        self
    }

    /// Returns a pattern in which a member on each of `machines` repeatedly registers and deregisters `region` bytes.
    pub fn churn(machines: u32, region: u64) -> Self {
        let mut pattern = Pattern::new(Transport::Rc);
        for machine in 0..machines {
            pattern.add(machine, Part::Churn { region }, 64);
        }
        pattern
    }

    /// Returns [`Pattern::outbound`] over RC without any receives, so that each message is retransmitted after
    /// RNR NAKs.
    pub fn stranded(load: &Load, shape: Outbound) -> Self {
        let mut pattern = Pattern::outbound(Transport::Rc, load, shape);
        for member in &mut pattern.members {
            match &member.part {
                Part::Request(load) => member.part = Part::Strand(load.clone()),
                _ => member.part = Part::Serve,
            }
        }
        pattern
    }
}

/// Registers and deregisters until `end`.
pub(crate) fn churn<S: Station>(station: &S, region: u64, end: Time) -> Result<(), Fault> {
    let context = station.context();
    let pd = context.alloc_pd()?;
    let length = Bytes::new(region.max(1));
    while station.now() < end {
        drop(context.alloc_mr(&pd, length, AccessFlags::all())?);
    }
    Ok(())
}

/// Fills each send queue, and sleeps until `end`: the requests never complete.
pub(crate) fn strand<S: Station>(
    station: &S,
    wiring: &Wiring<S::Context>,
    load: &Load,
    end: Time,
) -> Result<(), Fault> {
    let most = load.limits.per_member / (wiring.qps.len() as u32).max(1);
    let each = load.limits.per_qp.min(most).max(1);
    let sges = [wiring.mr.sge(0, load.size)?];
    for qp in &wiring.qps {
        for name in 0..each {
            let request = SendRequest::new(WrId(name.into()), Operation::Send, &sges);
            qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])?;
        }
    }
    station.sleep(end - station.now());
    Ok(())
}
