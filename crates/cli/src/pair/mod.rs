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
//!
//! With a [`Peer`], the passive side is the server's process, and the parents relay what the sides
//! say to each other (see [`crate::remote`]); all else is the same.

mod side;
mod there;
mod watch;

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use adverb_host::{Link, usable_cores};
use adverb_studies::{CellResult, CellSpec};
use adverb_verbs::{Counters, RoleId};
use anyhow::Context;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::device::{DeviceChoice, SoftAddress};
use crate::failure::one_line;
use crate::interrupt::Interrupt;
use crate::remote::{Peer, Relay, Welcome};
pub(crate) use side::{End, Running};
use there::There;
use watch::{Party, Watch};

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
    /// Of sides on two hosts, this host's address on the network that leads to the other: a RoCE
    /// device takes its GID from that network.
    pub(crate) reached_at: Option<IpAddr>,
}

/// What a side says at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// How it went.
    pub(crate) end: Ended,
    /// What its device counted meanwhile; only what moved.
    pub(crate) counters: Counters,
    /// What its device wants in a record's provenance, if it was opened.
    pub(crate) details: Details,
}

/// What a side's device says of itself.
pub(crate) type Details = Vec<(String, String)>;

/// What a side said of its device besides how it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideDevice {
    pub(crate) counters: Counters,
    pub(crate) details: Details,
}

/// How a side ended, in its own words.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
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
    /// What whoever chose one core for both sides should know.
    pub(crate) fn warning(self) -> Option<String> {
        let core = self.active.filter(|_| self.shared())?;
        Some(format!(
            "both sides share core {core}: they take turns there, and the figures tell of that"
        ))
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
    Measured(Box<CellResult>, SideDevices),
    /// Not measured; the reason in one line.
    Failed(String, SideDevices),
    /// The user wants the end.
    Interrupted,
    /// Not begun: the server cannot be reached any more, for this reason.
    NoPeer(String),
}

/// What both sides said of their devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct SideDevices {
    pub(crate) active: SideDevice,
    pub(crate) passive: SideDevice,
}

/// Where cells run: both sides here, or the passive one with a peer.
pub(crate) struct Pair {
    device: DeviceChoice,
    cores: Cores,
    peer: Option<Peer>,
}

impl Pair {
    /// On this device, on these cores; with a peer, the passive core is the peer's.
    pub(crate) fn new(device: DeviceChoice, cores: Cores, peer: Option<Peer>) -> Self {
        Pair {
            device,
            cores,
            peer,
        }
    }

    /// The cores of both sides, each its host's number.
    pub(crate) fn cores(&self) -> Cores {
        self.cores
    }

    /// The device of this host's sides; with a peer, as the peer meets it.
    pub(crate) fn device(&self) -> DeviceChoice {
        let peer = self.peer.as_ref();
        self.device.met_at(peer.and_then(Peer::reached_from))
    }

    /// Whether the passive side is a server's on this machine.
    pub(crate) fn is_served_here(&self) -> bool {
        self.peer.as_ref().is_some_and(Peer::is_here)
    }

    /// Whether a UDP port stays idle: both sides are at its address and share memory.
    pub(crate) fn is_within_memory(&self) -> bool {
        let device = self.device();
        let has_port = matches!(device, DeviceChoice::Soft(SoftAddress::At(_)));
        let peer = self.peer.as_ref();
        has_port && peer.is_none_or(|peer| peer.shares_memory_at(&device))
    }

    /// What the server of the passive side said of itself; none where both sides run here.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        self.peer.as_ref().map(Peer::welcome)
    }

    /// Runs a cell on two processes, for `patience` at most.
    ///
    /// # Errors
    /// Where the processes cannot even be started or watched.
    pub(crate) fn run(
        &mut self,
        spec: &CellSpec,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> anyhow::Result<PairEnd> {
        if let Some(peer) = &mut self.peer
            && let Err(error) = peer.ready(interrupt)
        {
            return Ok(PairEnd::NoPeer(one_line(&error)));
        }
        if interrupt.raised() {
            return Ok(PairEnd::Interrupted);
        }
        let device = self.device.clone();
        let deadline = Instant::now() + patience;
        let mut watch = Watch::new(self.start(spec)?, deadline);
        watch.follow(interrupt)?;
        if watch.killed() {
            // A side that is killed leaves files; nobody else may come to remove them.
            device.tidy();
        }
        Ok(watch.verdict(patience))
    }

    fn start(&mut self, spec: &CellSpec) -> anyhow::Result<[Party<'_>; 2]> {
        let shares_core = self.shares_core();
        let mut order = Order {
            spec: spec.clone(),
            device: self.device.clone(),
            core: self.cores.active,
            shares_core,
            parent: std::process::id(),
            reached_at: None,
        };
        let Some(peer) = &mut self.peer else {
            return start_here(order, self.cores);
        };
        order.reached_at = peer.reached_from();
        let there = There::order(peer, spec, shares_core);
        let (active, relay) = Relay::start(there.cell(), Side::Active, &order)?;
        Ok([
            Party::Here(active),
            Party::There(Box::new(there.with(relay))),
        ])
    }

    fn shares_core(&self) -> bool {
        match &self.peer {
            None => self.cores.shared(),
            Some(peer) => peer.is_here() && self.cores.shared(),
        }
    }
}

/// Starts both sides here, over one socket pair.
fn start_here(mut order: Order, cores: Cores) -> anyhow::Result<[Party<'static>; 2]> {
    let (active, passive) = Link::pair().context("cannot make a socket pair")?;
    // What goes into one end comes out of the other.
    passive.send(Side::Active.role(), &serde_json::to_vec(&order)?)?;
    order.core = cores.passive;
    active.send(Side::Passive.role(), &serde_json::to_vec(&order)?)?;
    let spawn = |side: Side, link: Link| {
        Running::spawn(side, OwnedFd::from(link.into_stream()))
            .map(Party::Here)
            .with_context(|| format!("cannot start the {} side", side.name()))
    };
    Ok([spawn(Side::Active, active)?, spawn(Side::Passive, passive)?])
}
