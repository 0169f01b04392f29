//! Waiting for the two sides of a cell, wherever they run, and saying how it ended.

use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::there::There;
use super::{End, Ended, PairEnd, Running, Side, SideDevice, SideDevices};
use crate::interrupt::Interrupt;

/// How long the other side may take to end by itself after the first one failed; its own reason may
/// be the better one.
const GRACE: Duration = Duration::from_millis(500);

/// A side of a cell, wherever it runs.
pub(super) enum Party<'p> {
    Here(Running),
    There(Box<There<'p>>),
}

impl Party<'_> {
    fn is_running(&self) -> bool {
        match self {
            Party::Here(side) => side.is_running(),
            Party::There(side) => side.is_running(),
        }
    }

    fn has_failed(&self) -> bool {
        match self {
            Party::Here(side) => side.has_failed(),
            Party::There(side) => side.has_failed(),
        }
    }

    /// Whether a process was killed that may have been on this host.
    fn was_killed(&self) -> bool {
        match self {
            Party::Here(side) => side.was_killed(),
            Party::There(side) => side.is_lost(),
        }
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        match self {
            Party::Here(side) => side.poll_fds().collect(),
            Party::There(side) => side.poll_fds(),
        }
    }

    /// When it wants to be looked at even if nothing happens.
    fn wake_at(&self) -> Option<Instant> {
        match self {
            Party::Here(_) => None,
            Party::There(side) => side.wake_at(),
        }
    }

    /// Takes what it said.
    fn read(&mut self) -> anyhow::Result<()> {
        match self {
            Party::Here(side) => side.read().context("cannot read from a side"),
            Party::There(side) => {
                side.turn();
                Ok(())
            }
        }
    }

    fn kill(&mut self) {
        match self {
            Party::Here(side) => side.kill(),
            Party::There(side) => side.abort(),
        }
    }

    fn end(self) -> (End, SideDevice) {
        match self {
            Party::Here(side) => side.end(),
            Party::There(side) => side.end(),
        }
    }
}

/// Why the parent ends the sides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Interrupted,
    Overdue,
    OtherFailed,
}

/// Two sides under way.
pub(super) struct Watch<'p> {
    sides: [Party<'p>; 2],
    deadline: Instant,
    stop: Option<Stop>,
}

impl<'p> Watch<'p> {
    /// Over these sides, which may take until `deadline`.
    pub(super) fn new(sides: [Party<'p>; 2], deadline: Instant) -> Self {
        Watch {
            sides,
            deadline,
            stop: None,
        }
    }

    /// Until both sides have ended.
    pub(super) fn follow(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while self.sides.iter().any(Party::is_running) {
            self.sleep(interrupt)?;
            for side in &mut self.sides {
                side.read()?;
            }
            self.decide(interrupt);
        }
        Ok(())
    }

    /// Ends the sides where there is no point in waiting.
    fn decide(&mut self, interrupt: &Interrupt) {
        if self.stop.is_some() {
            return;
        }
        let now = Instant::now();
        if self.sides.iter().any(Party::has_failed) {
            self.deadline = self.deadline.min(now + GRACE);
        }
        self.stop = match () {
            () if interrupt.raised() => Some(Stop::Interrupted),
            () if now < self.deadline => return,
            () if self.sides.iter().any(Party::has_failed) => Some(Stop::OtherFailed),
            () => Some(Stop::Overdue),
        };
        for side in &mut self.sides {
            side.kill();
        }
    }

    /// Until a side says something or ends, a signal comes, or it is time to stop.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds: Vec<PollFd<'_>> = self.sides.iter().flat_map(Party::poll_fds).collect();
        let mut wake_at: Vec<Instant> = self.sides.iter().filter_map(Party::wake_at).collect();
        if self.stop.is_none() {
            let interrupt = interrupt.fd();
            fds.push(PollFd::from_borrowed_fd(interrupt, PollFlags::IN));
            wake_at.push(self.deadline);
        }
        let left = |at: Instant| Timespec::try_from(at.saturating_duration_since(Instant::now()));
        let timeout = wake_at.into_iter().min().map(left).transpose();
        let timeout = timeout.context("deadline out of range")?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait for the two sides"),
        }
    }

    /// Whether a process was killed that may have been on this host.
    pub(super) fn killed(&self) -> bool {
        self.sides.iter().any(Party::was_killed)
    }

    /// How the cell ended, of which `patience` was to be had.
    pub(super) fn verdict(self, patience: Duration) -> PairEnd {
        if self.stop == Some(Stop::Interrupted) {
            return PairEnd::Interrupted;
        }
        let overdue = self.stop == Some(Stop::Overdue);
        let [(active, one), (passive, other)] = self.sides.map(Party::end);
        let devices = SideDevices {
            active: one,
            passive: other,
        };
        match (active, passive) {
            _ if overdue => PairEnd::Failed(
                format!(
                    "not done after {} s: ended by the deadline",
                    patience.as_secs()
                ),
                devices,
            ),
            (End::Answered(Ended::Measured(result)), End::Answered(Ended::Served)) => {
                PairEnd::Measured(result, devices)
            }
            ends => PairEnd::Failed(first_cause(ends), devices),
        }
    }
}

/// Of two ends, what the better reason says: a death weighs more than an error, an error more than
/// what follows from it.
fn first_cause((active, passive): (End, End)) -> String {
    let reasons = [(Side::Active, active), (Side::Passive, passive)]
        .into_iter()
        .filter_map(|(side, end)| end.reason(side));
    let worst = reasons.min_by_key(|(rank, _)| *rank);
    worst.map_or_else(
        || "the two sides ended without a result".to_owned(),
        |(_, reason)| reason,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(reason: &str, peer_gone: bool) -> End {
        let reason = reason.to_owned();
        End::Answered(Ended::Failed { reason, peer_gone })
    }

    #[test]
    fn the_first_cause_is_told() {
        let died = || End::Died("killed by signal 9".to_owned());
        let gone = || failed("the other side has ended", true);
        let real = || failed("remote access error", false);
        let cases = [
            ((gone(), died()), "passive side: killed by signal 9"),
            ((real(), died()), "passive side: killed by signal 9"),
            ((gone(), real()), "remote access error"),
            ((real(), gone()), "remote access error"),
            ((End::Stopped, real()), "remote access error"),
            ((gone(), End::Stopped), "the other side has ended"),
        ];
        for (ends, reason) in cases {
            assert_eq!(first_cause(ends), reason);
        }
    }
}
