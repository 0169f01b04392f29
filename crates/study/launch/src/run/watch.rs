//! Waits for the roles of a run, ends them where necessary, and finds how the run ended.

use std::time::{Duration, Instant};

use adverb_results::DeviceRef;
use adverb_verbs::RoleId;
use adverb_workload::{Cause, Program, Role};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags};

use super::{Failure, GRACE, RoleRun, Run};
use crate::control::wait_until;
use crate::device::DeviceChoice;
use crate::interrupt::Interrupt;
use crate::local::{End, LocalRoles, Output, Rank, RoleEnded};
use crate::remote::RemoteRoles;

/// Why the roles are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Interrupted,
    Overdue,
    OtherFailed,
}

/// The roles of a run, wherever they run.
pub(super) struct Watch<'p> {
    pub(super) local: LocalRoles,
    pub(super) remote: Vec<RemoteRoles<'p>>,
    pub(super) ends: Vec<Option<RoleEnded>>,
    /// The roles that have ended, in the order of their ends.
    pub(super) ended: Vec<RoleId>,
    pub(super) deadline: Instant,
    pub(super) stop: Option<Stop>,
    /// Where processes of this host may leave files.
    pub(super) tidy: Vec<DeviceChoice>,
}

impl Watch<'_> {
    /// Waits until all roles have ended.
    pub(super) fn follow(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while !self.local.is_over() || !self.remote.iter().all(RemoteRoles::is_over) {
            self.sleep(interrupt)?;
            self.turn()?;
            self.decide(interrupt);
        }
        Ok(())
    }

    /// Handles what the roles sent, and forwards messages.
    fn turn(&mut self) -> anyhow::Result<()> {
        let mut out = Vec::new();
        if !self.is_congested() {
            self.local
                .turn(&mut out)
                .context("cannot read from a role")?;
        }
        let local = out.len();
        for remote in &mut self.remote {
            remote.turn(&mut out);
        }
        for (at, output) in out.into_iter().enumerate() {
            match output {
                Output::Message { from, to, bytes } => {
                    let elsewhere = self.local.deliver(from, to, bytes);
                    if let Some(bytes) = elsewhere {
                        for remote in &mut self.remote {
                            remote.deliver(from, to, &bytes);
                        }
                    }
                }
                Output::Ended(ended) => {
                    if at >= local {
                        self.local.announce_end(ended.role);
                    }
                    for remote in &mut self.remote {
                        remote.announce_end(ended.role);
                    }
                    if let Some(end) = self.ends.get_mut(ended.role.0 as usize) {
                        self.ended.push(ended.role);
                        *end = Some(*ended);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_congested(&self) -> bool {
        self.remote.iter().any(RemoteRoles::is_congested)
    }

    fn has_failed(&self) -> bool {
        let ended = self.ends.iter().flatten();
        ended.into_iter().any(|ended| ended.end.is_failure())
    }

    /// Ends the roles after a signal, a failure or the deadline.
    fn decide(&mut self, interrupt: &Interrupt) {
        if self.stop.is_some() {
            return;
        }
        let now = Instant::now();
        let has_failed = self.has_failed();
        if has_failed {
            self.deadline = self.deadline.min(now + GRACE);
        }
        self.stop = match () {
            // A launcher ends all ranks when one died: that is the reason, not the signal.
            () if interrupt.raised() && has_failed => Some(Stop::OtherFailed),
            () if interrupt.raised() => Some(Stop::Interrupted),
            () if now < self.deadline => return,
            () if has_failed => Some(Stop::OtherFailed),
            () => Some(Stop::Overdue),
        };
        self.local.kill();
        self.remote.iter_mut().for_each(RemoteRoles::kill);
    }

    /// Sleeps until a role sends something or ends, a signal arrives, or the deadline.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        if !self.is_congested() {
            fds.extend(self.local.poll_fds());
        }
        fds.extend(self.remote.iter().filter_map(RemoteRoles::poll_fd));
        let mut wake_at: Vec<Instant> = self
            .remote
            .iter()
            .filter_map(RemoteRoles::wake_at)
            .collect();
        if self.stop.is_none() {
            let interrupt = interrupt.fd();
            fds.push(PollFd::from_borrowed_fd(interrupt, PollFlags::IN));
            wake_at.push(self.deadline);
        }
        wait_until(&mut fds, wake_at.into_iter().min())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.remote.iter().any(RemoteRoles::is_lost)
    }

    /// Returns how the run ended.
    pub(super) fn result<P: Program>(
        &mut self,
        roles: &[Role],
        (hosts, devices): (&[u32], &[DeviceRef]),
        timeout: Duration,
    ) -> Run<P::Report> {
        let ids = (0..).map(RoleId);
        let missing = |role| RoleEnded::without_answer(role, End::Stopped);
        let ends = std::mem::take(&mut self.ends);
        let ends: Vec<RoleEnded> = ids
            .zip(ends)
            .map(|(role, end)| end.unwrap_or_else(|| missing(role)))
            .collect();
        let reports = match self.stop {
            Some(Stop::Overdue) => Err(Failure::new(format!(
                "timed out after {} s",
                timeout.as_secs()
            ))),
            _ => reports::<P>(roles, &ends, &self.ended),
        };
        let role_run = |(role, (host, ended)): (&Role, (&u32, RoleEnded))| RoleRun {
            name: role.name.clone(),
            host: *host,
            device: devices[*host as usize].clone(),
            core: ended.core,
            numa_node: ended.numa_node,
            counters: ended.counters,
            details: ended.details,
            cpu: ended.cpu,
        };
        Run {
            reports,
            roles: roles
                .iter()
                .zip(hosts.iter().zip(ends))
                .map(role_run)
                .collect(),
            usage: Vec::new(),
        }
    }
}

/// Returns the reports of all roles, or the best explanation for a missing one.
fn reports<P: Program>(
    roles: &[Role],
    ends: &[RoleEnded],
    order: &[RoleId],
) -> Result<Vec<P::Report>, Failure> {
    let read = |ended: &RoleEnded| match &ended.end {
        End::Report(report) => serde_json::from_value(report.clone()).ok(),
        _ => None,
    };
    let all: Option<Vec<P::Report>> = ends.iter().map(read).collect();
    all.ok_or_else(|| first_cause(roles, ends, order))
}

/// Returns the best of several reasons: a death explains more than an error, and an error more than its
/// consequences. Of equals it is the first in `order`.
fn first_cause(roles: &[Role], ends: &[RoleEnded], order: &[RoleId]) -> Failure {
    let all = order.iter().map(|role| role.0 as usize);
    let reasons = all.filter_map(|at| ends[at].end.reason(&roles[at].name));
    match reasons.min_by_key(|(rank, _)| *rank) {
        Some((rank, reason)) => Failure {
            reason,
            is_usage: rank == Rank::Failed(Cause::Refused),
        },
        None => Failure::new("the roles ended without a result".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use adverb_workload::{RoleError, RoleLoad};

    use super::*;

    #[test]
    fn the_first_cause_is_given() {
        let failed = |reason: &str, cause| {
            let reason = reason.to_owned();
            End::Failed(RoleError { reason, cause })
        };
        let died = || End::Died("killed by signal 9".to_owned());
        let gone = || failed("the other side has ended", Cause::Peer);
        let real = || failed("remote access error", Cause::Own);
        let role = |name: &str, host| Role {
            name: name.to_owned(),
            host,
            process: 0,
            load: RoleLoad::Busy,
        };
        let roles = [role("active", 0), role("passive", 1)];
        let cases = [
            ([gone(), died()], "passive side: killed by signal 9"),
            ([real(), died()], "passive side: killed by signal 9"),
            ([gone(), real()], "remote access error"),
            ([real(), gone()], "remote access error"),
            ([End::Stopped, real()], "remote access error"),
            ([gone(), End::Stopped], "the other side has ended"),
            ([died(), died()], "passive side: killed by signal 9"),
        ];
        for (ends, reason) in cases {
            let ends = ends.map(|end| RoleEnded::without_answer(RoleId(0), end));
            let order = [RoleId(1), RoleId(0)];
            assert_eq!(first_cause(&roles, &ends, &order).reason, reason);
        }
    }
}
