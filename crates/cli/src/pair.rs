//! One cell is two processes: this module starts both sides, waits for them asleep, and says how
//! the cell ended.
//!
//! ```text
//!            parent (asleep in poll)
//!      stdout, stderr │        │ stdout, stderr
//!                 active ════ passive
//!                    stdin = stdin: one socket pair
//! ```
//!
//! The socket is the channel out of band of the two sides; the first frame on it is the [`Order`],
//! written by the parent before either side exists. Each side answers with one line of JSON, its
//! [`Answer`], on stdout. Nothing of a cell outlives the parent: the kernel kills the sides with it.

mod side;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use adverb_host::{Link, usable_cores};
use adverb_studies::{CellResult, CellSpec};
use adverb_verbs::RoleId;
use anyhow::Context;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::device::DeviceChoice;
use crate::interrupt::Interrupt;
use side::{End, Running};

/// How long the other side may take to end by itself after the first one failed; its own reason may
/// be the better one.
const GRACE: Duration = Duration::from_millis(500);

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// Starts the transfers, measures, has the result.
    Active,
    /// The other one.
    Passive,
}

impl Side {
    /// Its name in messages and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Side::Active => "active",
            Side::Passive => "passive",
        }
    }

    /// Its number within the program.
    pub(crate) const fn role(self) -> RoleId {
        RoleId(match self {
            Side::Active => 0,
            Side::Passive => 1,
        })
    }

    /// The other one.
    pub(crate) const fn peer(self) -> Side {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }
}

/// What a side is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// What to run.
    pub(crate) spec: CellSpec,
    /// On what.
    pub(crate) device: DeviceChoice,
    /// The core to run on.
    pub(crate) core: Option<u32>,
    /// Whether the other side runs on the same core.
    pub(crate) shares_core: bool,
    /// The process to die with.
    pub(crate) parent: u32,
}

/// What a side says at its end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The active side measured.
    Measured(Box<CellResult>),
    /// The passive side has done its part.
    Served,
    /// It failed.
    Failed {
        /// Who and why, in one line.
        reason: String,
        /// Whether it failed only because the other side went away.
        peer_gone: bool,
    },
}

/// The cores of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) active: Option<u32>,
    pub(crate) passive: Option<u32>,
}

impl Cores {
    /// The core of one side.
    pub(crate) const fn of(self, side: Side) -> Option<u32> {
        match side {
            Side::Active => self.active,
            Side::Passive => self.passive,
        }
    }

    /// Whether the sides have to share one core.
    fn shared(self) -> bool {
        match self.active {
            Some(core) => self.passive == Some(core),
            None => usable_cores().len() == 1,
        }
    }
}

/// How a cell ended.
pub(crate) enum PairEnd {
    /// Measured.
    Measured(Box<CellResult>),
    /// Not measured; the reason in one line.
    Failed(String),
    /// The user wants the end.
    Interrupted,
}

/// Runs a cell on two processes, for `patience` at most.
///
/// # Errors
/// Where the processes cannot even be started or watched.
pub(crate) fn run(
    spec: &CellSpec,
    device: &DeviceChoice,
    cores: Cores,
    patience: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<PairEnd> {
    let mut watch = Watch {
        sides: start(spec, device, cores)?,
        deadline: Instant::now() + patience,
        stop: None,
    };
    watch.follow(interrupt)?;
    if watch.sides.iter().any(Running::was_killed) {
        // A side that is killed leaves files; nobody else may come to remove them.
        device.tidy();
    }
    Ok(watch.verdict(patience))
}

fn start(spec: &CellSpec, device: &DeviceChoice, cores: Cores) -> anyhow::Result<[Running; 2]> {
    let (active, passive) = Link::pair().context("cannot make a socket pair")?;
    let order = |side| {
        serde_json::to_vec(&Order {
            spec: spec.clone(),
            device: device.clone(),
            core: cores.of(side),
            shares_core: cores.shared(),
            parent: std::process::id(),
        })
    };
    // What goes into one end comes out of the other.
    passive.send(Side::Active.role(), &order(Side::Active)?)?;
    active.send(Side::Passive.role(), &order(Side::Passive)?)?;
    let spawn = |side: Side, link: Link| {
        Running::spawn(side, OwnedFd::from(link.into_stream()))
            .with_context(|| format!("cannot start the {} side", side.name()))
    };
    Ok([spawn(Side::Active, active)?, spawn(Side::Passive, passive)?])
}

/// Why the parent ends the sides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Interrupted,
    Overdue,
    OtherFailed,
}

struct Watch {
    sides: [Running; 2],
    deadline: Instant,
    stop: Option<Stop>,
}

impl Watch {
    /// Until both sides have ended.
    fn follow(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while self.sides.iter().any(Running::is_running) {
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
        if self.sides.iter().any(Running::has_failed) {
            self.deadline = self.deadline.min(now + GRACE);
        }
        self.stop = match () {
            () if interrupt.raised() => Some(Stop::Interrupted),
            () if now < self.deadline => return,
            () if self.sides.iter().any(Running::has_failed) => Some(Stop::OtherFailed),
            () => Some(Stop::Overdue),
        };
        for side in &mut self.sides {
            side.kill();
        }
    }

    /// Until a side says something or ends, a signal comes, or it is time to stop.
    fn sleep(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let mut fds: Vec<PollFd<'_>> = self.sides.iter().flat_map(Running::poll_fds).collect();
        let mut timeout = None;
        if self.stop.is_none() {
            let interrupt = interrupt.fd();
            fds.push(PollFd::from_borrowed_fd(interrupt, PollFlags::IN));
            let left = self.deadline.saturating_duration_since(Instant::now());
            timeout = Some(Timespec::try_from(left).context("deadline out of range")?);
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e).context("cannot wait for the two sides"),
        }
    }

    fn verdict(self, patience: Duration) -> PairEnd {
        if self.stop == Some(Stop::Interrupted) {
            return PairEnd::Interrupted;
        }
        let overdue = self.stop == Some(Stop::Overdue);
        let [active, passive] = self.sides.map(Running::end);
        match (active, passive) {
            _ if overdue => PairEnd::Failed(format!(
                "not done after {} s: ended by the deadline",
                patience.as_secs()
            )),
            (End::Answered(Answer::Measured(result)), End::Answered(Answer::Served)) => {
                PairEnd::Measured(result)
            }
            ends => PairEnd::Failed(first_cause(ends)),
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
        End::Answered(Answer::Failed { reason, peer_gone })
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
