//! Selects one round of a ping from the steps of a run, and splits it into legs.

use std::fmt;

use adverb_hwmodel::MachineId;
use adverb_hwmodel::trace::{Component, Link, Step, StepKind, chain};
use adverb_units::{Span, Time};

pub(super) const CLIENT: MachineId = MachineId(0);
pub(super) const SERVER: MachineId = MachineId(1);

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
    /// There and back, or a single leg if the server's CPU is not involved.
    pub(super) legs: Vec<Leg>,
}

/// The time from one side's post to the other side's, or to its own next one.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) from: Time,
    pub(super) to: Time,
    side: Side,
    /// The steps in the order in which they begin. Those on the critical path add up to the leg.
    pub(super) pieces: Vec<Piece>,
}

/// A step, or time that no mechanism has recorded.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) side: Side,
    /// `None` for unrecorded time.
    pub(super) component: Option<Component>,
    pub(super) what: String,
    pub(super) begin: Time,
    pub(super) end: Time,
    /// Whether it is on the critical path of the message.
    pub(super) is_on_path: bool,
}

/// A lane of the drawing.
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
    /// Selects a round in the middle of a run whose client posts `posts` requests per round; `None` if the run
    /// has no complete round.
    pub(super) fn of(steps: &[Step], posts: usize) -> Option<Self> {
        let begins: Vec<Time> = posts_of(steps, CLIENT).step_by(posts).collect();
        let reads_clock = |from: Time, to: Time| {
            let mut inside = steps.iter().filter(|s| s.begin >= from && s.begin < to);
            inside.any(|step| step.kind == StepKind::Clock)
        };
        let rounds: Vec<(Time, Time)> = begins.windows(2).map(|w| (w[0], w[1])).collect();
        let later = rounds.iter().skip(rounds.len() / 2);
        // Timed rounds contain readings of the clock, which are not part of the message.
        let plain = later.take(MAX_SEARCHED).find(|(a, b)| !reads_clock(*a, *b));
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

    pub(super) fn span(&self) -> Span {
        self.legs.iter().map(Leg::span).sum()
    }

    /// The one-way time as ping reports it: half the sum of the steps of a round.
    pub(super) fn one_way_ns(&self) -> f64 {
        let path = self.legs.iter().flat_map(Leg::path);
        path.map(Piece::span).sum::<Span>().as_ns_f64() / 2.0
    }
}

/// Largest number of rounds that are searched for one without readings of the clock.
const MAX_SEARCHED: usize = 1000;

fn posts_of(steps: &[Step], machine: MachineId) -> impl Iterator<Item = Time> {
    let posts = steps.iter().filter(move |step| step.machine == machine);
    posts
        .filter(|step| step.kind == StepKind::BuildWqe)
        .map(|step| step.begin)
}

impl Leg {
    fn of(steps: &[Step], side: Side, from: Time, (at, to): (MachineId, Time)) -> Self {
        let links = chain(steps, from, (at, to));
        let is_linked = |index: usize| links.contains(&Link::Step(index));
        let began = |step: &Step| step.begin >= from && step.begin < to;
        let goes_on = |step: &Step| {
            let waits = matches!(step.kind, StepKind::Poll | StepKind::Sleep);
            waits && step.begin < from && step.end > from
        };
        let all = steps.iter().enumerate();
        let mut pieces: Vec<Piece> = all
            .filter(|(_, step)| began(step) || goes_on(step))
            .map(|(index, step)| Piece {
                side: Side::of(step.machine),
                component: Some(step.kind.component()),
                what: step.kind.to_string(),
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
            what: "not recorded by any mechanism".to_owned(),
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

    /// The side whose post begins it.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    pub(super) fn span(&self) -> Span {
        self.to - self.from
    }

    /// The steps on the critical path, in order.
    pub(super) fn path(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| piece.is_on_path)
    }

    pub(super) fn off_path(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(|piece| !piece.is_on_path)
    }

    /// The lanes that have steps, from the client's CPU to the server's.
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
    pub(super) fn span(&self) -> Span {
        self.end - self.begin
    }

    /// Its lane. Unrecorded time is drawn at the CPU.
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
