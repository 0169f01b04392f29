//! One round of a ping, cut into legs, out of all steps of a run.

use std::fmt;

use adverb_hwmodel::MachineId;
use adverb_hwmodel::trace::{Act, Component, Link, Step, chain};
use adverb_units::{Span, Time};

pub(super) const CLIENT: MachineId = MachineId(0);
pub(super) const SERVER: MachineId = MachineId(1);

/// Who of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    fn of(machine: MachineId) -> Self {
        if machine == CLIENT {
            Side::Client
        } else {
            Side::Server
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Client => "client",
            Side::Server => "server",
        })
    }
}

/// A round.
#[derive(Debug)]
pub(super) struct Journey {
    /// There and back; only one where the server's CPU takes no part.
    pub(super) legs: Vec<Leg>,
}

/// From the post of one side until the other one's, or its own next one.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) from: Time,
    pub(super) to: Time,
    side: Side,
    /// In the order in which they begin. Those on the path add up to the leg.
    pub(super) pieces: Vec<Piece>,
}

/// A step, or time that no mechanism has noted.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) side: Side,
    /// None where nobody knows.
    pub(super) component: Option<Component>,
    pub(super) what: String,
    pub(super) begin: Time,
    pub(super) end: Time,
    /// Whether the message waits for it.
    pub(super) is_on_path: bool,
}

/// A row of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneName {
    side: Side,
    pub(super) component: Component,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.component {
            Component::Wire => f.pad("wire"),
            component => f.pad(&format!("{} {component}", self.side)),
        }
    }
}

impl Journey {
    /// A round in the middle of a run whose client posts `posts` requests per round; `None` if the run has
    /// no whole round.
    pub(super) fn of(steps: &[Step], posts: usize) -> Option<Self> {
        let begins: Vec<Time> = posts_of(steps, CLIENT).step_by(posts).collect();
        let reads_clock = |from: Time, to: Time| {
            let mut inside = steps.iter().filter(|s| s.begin >= from && s.begin < to);
            inside.any(|step| step.act == Act::Clock)
        };
        let rounds: Vec<(Time, Time)> = begins.windows(2).map(|w| (w[0], w[1])).collect();
        let later = rounds.iter().skip(rounds.len() / 2);
        // Rounds that are timed have readings of the clock in them, which are not the message's.
        let plain = later.take(MOST_TIMED).find(|(a, b)| !reads_clock(*a, *b));
        let shortest = || rounds.iter().min_by_key(|(from, to)| *to - *from);
        let (from, to) = *plain.or_else(shortest)?;
        let answer = posts_of(steps, SERVER).find(|at| *at >= from && *at < to);
        let legs = match answer {
            Some(at) => vec![
                Leg::of(steps, Side::Client, from, (SERVER, at)),
                Leg::of(steps, Side::Server, at, (CLIENT, to)),
            ],
            None => vec![Leg::of(steps, Side::Client, from, (CLIENT, to))],
        };
        Some(Journey { legs })
    }

    /// How long the round takes.
    pub(super) fn span(&self) -> Span {
        self.legs.iter().map(Leg::span).sum()
    }

    /// What ping calls one way: half a round, by the sum of the steps.
    pub(super) fn one_way_ns(&self) -> f64 {
        let path = self.legs.iter().flat_map(Leg::path);
        path.map(Piece::span).sum::<Span>().as_ns_f64() / 2.0
    }
}

/// Timed rounds are looked through until one is found that is not.
const MOST_TIMED: usize = 1000;

fn posts_of(steps: &[Step], machine: MachineId) -> impl Iterator<Item = Time> {
    let posts = steps.iter().filter(move |step| step.machine == machine);
    posts
        .filter(|step| step.act == Act::BuildWqe)
        .map(|step| step.begin)
}

impl Leg {
    fn of(steps: &[Step], side: Side, from: Time, (at, to): (MachineId, Time)) -> Self {
        let links = chain(steps, from, (at, to));
        let is_linked = |index: usize| links.contains(&Link::Step(index));
        let began = |step: &Step| step.begin >= from && step.begin < to;
        let goes_on = |step: &Step| {
            let waits = matches!(step.act, Act::Poll | Act::Sleep);
            waits && step.begin < from && step.end > from
        };
        let all = steps.iter().enumerate();
        let mut pieces: Vec<Piece> = all
            .filter(|(_, step)| began(step) || goes_on(step))
            .map(|(index, step)| Piece {
                side: Side::of(step.machine),
                component: Some(step.act.component()),
                what: step.act.to_string(),
                begin: step.begin.max(from),
                end: step.end,
                is_on_path: is_linked(index),
            })
            .collect();
        let gaps = links.iter().filter_map(|link| match link {
            Link::Gap(begin, end) => Some((*begin, *end)),
            Link::Step(_) => None,
        });
        pieces.extend(gaps.map(|(begin, end)| Piece {
            side,
            component: None,
            what: "not noted by any mechanism".to_owned(),
            begin,
            end,
            is_on_path: true,
        }));
        pieces.sort_by_key(|piece| (piece.begin, piece.end));
        Leg {
            from,
            to,
            side,
            pieces,
        }
    }

    /// Whose post begins it.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// How long it takes.
    pub(super) fn span(&self) -> Span {
        self.to - self.from
    }

    /// What the message waits for, one after another.
    pub(super) fn path(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| piece.is_on_path)
    }

    /// The steps that the message does not wait for.
    pub(super) fn beside(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| !piece.is_on_path)
    }

    /// The rows in which something happens, from the client's CPU to the server's.
    pub(super) fn lanes(&self) -> Vec<LaneName> {
        use Component::{Cpu, Memory, Nic, Pcie, Wire};
        let client = [Cpu, Memory, Pcie, Nic, Wire].map(|c| (Side::Client, c));
        let server = [Nic, Pcie, Memory, Cpu].map(|c| (Side::Server, c));
        let all = client.into_iter().chain(server);
        all.map(|(side, component)| LaneName { side, component })
            .filter(|lane| self.pieces.iter().any(|piece| piece.lane() == *lane))
            .collect()
    }
}

impl Piece {
    /// How long.
    pub(super) fn span(&self) -> Span {
        self.end - self.begin
    }

    /// Its row. What nobody has noted stands at the CPU.
    pub(super) fn lane(&self) -> LaneName {
        let component = self.component.unwrap_or(Component::Cpu);
        LaneName {
            // There is one wire.
            side: match component {
                Component::Wire => Side::Client,
                _ => self.side,
            },
            component,
        }
    }
}
