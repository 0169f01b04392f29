//! The roles of a run on this host: their processes and messages.

use std::io;

use adverb_host::HubFrame;
use adverb_units::CpuTime;
use adverb_verbs::{Counters, RoleId, open_files_remedy};
use adverb_workload::{Cause, Role, RoleError};
use rustix::event::PollFd;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::Catalog;
use crate::catalog::{Details, Played};
use crate::device::DeviceChoice;
use crate::process::{Mode, Process};
use crate::role::{Answer, Order, Seat, label};

/// How a role ended, as seen by the process that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It reported.
    Report(Value),
    /// It failed and reported the reason.
    Failed(RoleError),
    /// It died, or its answer could not be parsed.
    Died(String),
    /// It was ended on purpose.
    Stopped,
}

impl End {
    /// Returns why the role of this name failed, with the rank of the reason; `None` if it did not fail.
    pub(crate) fn reason(&self, name: &str) -> Option<(Rank, String)> {
        match self {
            End::Died(how) => Some((Rank::Died, format!("{}: {how}", label(name)))),
            End::Failed(error) => Some((Rank::Failed(error.cause), error.reason.clone())),
            End::Report(_) | End::Stopped => None,
        }
    }

    pub(crate) fn is_failure(&self) -> bool {
        !matches!(self, End::Report(_))
    }
}

/// Rank of a reason. Of several reasons the lowest is reported: a death, a refusal, an error, a consequence of
/// another role's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Died,
    Failed(Cause),
}

/// A role that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleEnded {
    pub(crate) role: RoleId,
    pub(crate) end: End,
    /// What its device counted; only counters that grew.
    pub(crate) counters: Counters,
    /// Its device's details for a record's provenance.
    pub(crate) details: Details,
    pub(crate) cpu: CpuTime,
    /// Where it was pinned.
    pub(crate) core: Option<u32>,
    pub(crate) numa_node: Option<u32>,
}

impl RoleEnded {
    /// Returns the end of a role that did not answer.
    pub(crate) fn without_answer(role: RoleId, end: End) -> Self {
        RoleEnded {
            role,
            end,
            counters: Counters::new(),
            details: Details::new(),
            cpu: CpuTime::default(),
            core: None,
            numa_node: None,
        }
    }

    fn answered(seat: Seat, played: Played) -> Self {
        RoleEnded {
            role: seat.role,
            end: match played.end {
                Ok(report) => End::Report(report),
                Err(error) => End::Failed(error),
            },
            counters: played.counters,
            details: played.details,
            cpu: played.cpu,
            core: seat.core,
            numa_node: seat.core.and_then(adverb_host::numa_node),
        }
    }
}

/// Output of local roles.
pub(crate) enum Output {
    /// A role sent a message to a role elsewhere.
    Message {
        from: RoleId,
        to: RoleId,
        bytes: Vec<u8>,
    },
    /// A role ended. The local roles have been notified.
    Ended(Box<RoleEnded>),
}

struct Group {
    process: Process,
    device: DeviceChoice,
    /// Its roles that have not ended.
    running: Vec<Seat>,
}

/// Returns the name that `ps` shows for a process of these roles.
fn names(roles: &[Role], group: &[Seat]) -> String {
    let name = |seat: &Seat| roles[seat.role.0 as usize].name.as_str();
    let mut names: Vec<&str> = group.iter().map(name).take(4).collect();
    if group.len() > names.len() {
        names.push("…");
    }
    names.join(",")
}

/// The roles of a run on this host.
#[derive(Default)]
pub(crate) struct LocalRoles {
    groups: Vec<Group>,
}

impl LocalRoles {
    /// Starts the roles in `order`, each process with all of its roles; `roles` are all roles of the program.
    ///
    /// # Errors
    /// A process cannot be started.
    pub(crate) fn start(
        &mut self,
        catalog: &'static Catalog,
        mode: Mode,
        roles: &[Role],
        order: &Order,
    ) -> anyhow::Result<()> {
        let process = |seat: &Seat| roles[seat.role.0 as usize].process;
        let mut seats = order.roles.clone();
        seats.sort_by_key(process);
        for group in seats.chunk_by(|a, b| process(a) == process(b)) {
            let order = Order {
                roles: group.to_vec(),
                ..order.clone()
            };
            self.start_process(catalog, mode, &names(roles, group), &order)?;
        }
        Ok(())
    }

    fn start_process(
        &mut self,
        catalog: &'static Catalog,
        mode: Mode,
        names: &str,
        order: &Order,
    ) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(order)?;
        let started = Process::start(catalog, mode, names, &bytes);
        let process = started.map_err(|error| {
            let remedy = open_files_remedy(&error);
            anyhow::anyhow!("cannot start a process for {names}: {error}{remedy}")
        })?;
        self.groups.push(Group {
            process,
            device: order.device.met_at(order.reached_at),
            running: order.roles.clone(),
        });
        Ok(())
    }

    /// Whether all processes have ended.
    pub(crate) fn is_over(&self) -> bool {
        !self.groups.iter().any(|group| group.process.is_running())
    }

    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.groups
            .iter()
            .flat_map(|group| group.process.poll_fds())
    }

    /// Receives what the roles sent, and delivers messages between them.
    ///
    /// # Errors
    /// A process cannot be read from.
    pub(crate) fn turn(&mut self, into: &mut Vec<Output>) -> io::Result<()> {
        for at in 0..self.groups.len() {
            while let Some(frame) = self.groups[at].process.receive()? {
                match frame {
                    HubFrame::Message { from, to, bytes } => {
                        if let Some(bytes) = self.deliver(from, to, bytes) {
                            into.push(Output::Message { from, to, bytes });
                        }
                    }
                    HubFrame::Control(bytes) => {
                        let answer: Answer = serde_json::from_slice(&bytes)?;
                        if let Some(seat) = self.groups[at].take(answer.role) {
                            self.end(RoleEnded::answered(seat, answer.played), into);
                        }
                    }
                    HubFrame::Ended(_) => {}
                }
            }
            self.end_unanswered(at, into);
        }
        Ok(())
    }

    /// Delivers a message to a role of this host; returns its bytes if that role is not here.
    pub(crate) fn deliver(&mut self, from: RoleId, to: RoleId, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let group = self.groups.iter_mut().find(|group| group.has(to));
        let Some(group) = group else {
            return Some(bytes);
        };
        group.process.send(&HubFrame::Message { from, to, bytes });
        None
    }

    /// Notifies the roles of this host that one has ended, here or elsewhere.
    pub(crate) fn announce_end(&mut self, role: RoleId) {
        for group in &mut self.groups {
            group.process.send(&HubFrame::Ended(role));
        }
    }

    fn end(&mut self, ended: RoleEnded, into: &mut Vec<Output>) {
        self.announce_end(ended.role);
        into.push(Output::Ended(Box::new(ended)));
    }

    /// Ends the roles that did not answer before their process ended.
    fn end_unanswered(&mut self, at: usize, into: &mut Vec<Output>) {
        let group = &mut self.groups[at];
        if group.process.is_running() {
            return;
        }
        for seat in std::mem::take(&mut group.running) {
            let how = self.groups[at].process.end_without_answer();
            let end = how.map_or(End::Stopped, End::Died);
            let mut ended = RoleEnded::without_answer(seat.role, end);
            ended.core = seat.core;
            self.end(ended, into);
        }
    }

    /// Ends all running roles.
    pub(crate) fn kill(&mut self) {
        self.groups
            .iter_mut()
            .for_each(|group| group.process.kill());
    }

    /// Removes the files that killed processes left behind.
    pub(crate) fn tidy(&self) {
        let killed = self
            .groups
            .iter()
            .filter(|group| group.process.was_killed());
        killed.for_each(|group| group.device.tidy());
    }
}

impl Group {
    fn has(&self, role: RoleId) -> bool {
        self.running.iter().any(|seat| seat.role == role)
    }

    fn take(&mut self, role: RoleId) -> Option<Seat> {
        let at = self.running.iter().position(|seat| seat.role == role)?;
        Some(self.running.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_explains_more_than_an_error_and_an_error_more_than_what_follows() {
        let failed = |cause| {
            End::Failed(RoleError {
                reason: String::new(),
                cause,
            })
        };
        let rank = |end: End| end.reason("client 1").map(|(rank, _)| rank);
        let died = rank(End::Died("killed by signal 9".to_owned()));
        let [refused, own, peer] =
            [Cause::Refused, Cause::Own, Cause::Peer].map(|cause| rank(failed(cause)));
        assert!(died < refused && refused < own && own < peer);
        assert_eq!(rank(End::Stopped), None);
        let named = |name| End::Died("died".to_owned()).reason(name).unwrap().1;
        assert_eq!(named("client 1"), "client 1: died");
        assert_eq!(named("passive"), "passive side: died");
    }
}
