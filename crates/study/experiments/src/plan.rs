//! The study: the cells that fill the figures.
//!
//! A figure's sizes and numbers of buffers differ between profiles; its variants do not.

use std::collections::HashMap;
use std::fmt;

use adverb_results::{Completion, Opcode, Program};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, PathOptions};

use adverb_workload::pair::{CellSpec, Length, MAX_BUFFERS, Request};
use serde::{Deserialize, Serialize};

use Completion::{Event, Poll};
use Opcode::{Send, Write, WriteImm, WriteRead};

use crate::{FigureId, figures};

pub(crate) const COMPLETIONS: [Completion; 2] = [Poll, Event];
/// Size of the rankings' messages, and of the ping that meets loss.
pub(crate) const RANKED: Bytes = Bytes::new(64);
/// Buffers of Figure 5, and the small window of loss.
pub(crate) const FOUR: u32 = 4;

/// How thorough a study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// About three minutes: few sizes, up to 4 MiB.
    Quick,
    /// All powers of two, all numbers of buffers, more repetitions.
    Full,
}

impl Profile {
    /// Returns how often each cell is measured.
    pub const fn repetitions(self) -> u32 {
        match self {
            Profile::Quick => 3,
            Profile::Full => 5,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Profile::Quick => "quick",
            Profile::Full => "full",
        })
    }
}

/// Whether the ports of both sides can inject faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ports {
    /// They cannot.
    Plain,
    /// They lose packets on request.
    Impairing,
}

/// A study's cells, in the order in which they run.
///
/// Within a figure what is compared runs close together: all variants of one size (or number of
/// buffers) before the next. A machine that changes its pace during the study then bends all curves
/// alike, instead of parting them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Each cell once, with all figures that show it.
    pub cells: Vec<CellSpec>,
}

impl Plan {
    /// The cells of these figures (none named: all) that run on a device with these limits.
    pub fn study(profile: Profile, only: &[FigureId], (caps, ports): (&DeviceCaps, Ports)) -> Plan {
        let mut draft = Draft {
            profile,
            max_inline: Bytes::new(caps.max_inline_data.into()),
            figure: "",
            caps,
            cells: Vec::new(),
            places: HashMap::new(),
        };
        for figure in figures() {
            let id = figure.spec.id;
            let is_asked_for = only.is_empty() || only.contains(&FigureId(id));
            let can_run = figure.ports == Ports::Plain || ports == Ports::Impairing;
            if !(is_asked_for && can_run) {
                continue;
            }
            draft.figure = id;
            (figure.plan)(&mut draft);
        }
        Plan { cells: draft.cells }
    }

    /// The same cells with these options of the path, except for those that a figure sets.
    pub fn with_path(self, path: PathOptions) -> Plan {
        let cells = self.cells.into_iter();
        Plan {
            cells: cells.map(|cell| cell.with_path(path)).collect(),
        }
    }

    /// One of `passes` over the plan: each cell with its share of the repetitions and of the time.
    pub fn in_passes(mut self, passes: u32) -> Plan {
        for Request {
            repetitions,
            length,
            ..
        } in self.cells.iter_mut().map(|cell| &mut cell.params)
        {
            *repetitions = (*repetitions / passes).max(1);
            if let Length::Duration(all) = length {
                *all = *all / u64::from(passes);
            }
        }
        self
    }

    /// About how long the plan takes.
    pub fn estimate(&self) -> Span {
        self.cells.iter().map(CellSpec::estimate).sum()
    }
}

/// The cells of a plan that is being made.
pub(crate) struct Draft<'a> {
    profile: Profile,
    /// Largest inline message of the device.
    pub(crate) max_inline: Bytes,
    /// Whose cells are being added.
    figure: &'static str,
    caps: &'a DeviceCaps,
    cells: Vec<CellSpec>,
    /// Index in `cells` by id.
    places: HashMap<String, usize>,
}

impl Draft<'_> {
    /// Operations by completion, plain and (where it fits) inline.
    pub(crate) fn pings(&mut self, sizes: &[Bytes]) {
        for size in sizes {
            for op in [Send, WriteImm, Write, WriteRead] {
                for (completion, inline) in variants() {
                    let params = Request {
                        inline,
                        completion,
                        ..Request::new(op, *size)
                    };
                    self.ping(params);
                }
            }
        }
    }

    pub(crate) fn sizes(&self, max: Bytes) -> Vec<Bytes> {
        match self.profile {
            Profile::Quick => [
                4,
                16,
                64,
                256,
                1 << 10,
                4 << 10,
                16 << 10,
                64 << 10,
                256 << 10,
                1 << 20,
                4 << 20,
            ]
            .map(Bytes::new)
            .to_vec(),
            Profile::Full => powers_of_two(max.get()).map(Bytes::new).collect(),
        }
    }

    pub(crate) fn buffers(&self) -> Vec<u32> {
        match self.profile {
            Profile::Quick => vec![1, 2, 4, 8, 16, 64],
            Profile::Full => powers_of_two(MAX_BUFFERS.into())
                .filter_map(|n| u32::try_from(n).ok())
                .collect(),
        }
    }

    pub(crate) fn ping(&mut self, params: Request) {
        self.add(Program::Ping, params);
    }

    pub(crate) fn blast(&mut self, params: Request) {
        self.add(Program::Blast, params);
    }

    /// Adds a cell, or its figure to a cell that is there; leaves out what the program or the
    /// device does not do (such as inline beyond the device's maximum).
    fn add(&mut self, program: Program, mut params: Request) {
        params.length = Length::Duration(match self.profile {
            Profile::Quick if params.path.impairment.is_some() => Span::from_ms(150),
            Profile::Quick => Span::from_ms(270),
            Profile::Full => Span::from_ms(1000),
        });
        params.repetitions = self.profile.repetitions();
        let cell = match program {
            Program::Ping => CellSpec::ping(params),
            Program::Blast => CellSpec::blast(params),
        };
        if let Some(place) = self.places.get(&cell.id) {
            let figures = &mut self.cells[*place].figures;
            if !figures.iter().any(|id| id == self.figure) {
                figures.push(self.figure.to_owned());
            }
        } else if cell.validate(self.caps).is_ok() {
            self.places.insert(cell.id.clone(), self.cells.len());
            self.cells.push(CellSpec {
                figures: vec![self.figure.to_owned()],
                ..cell
            });
        }
    }
}

/// Completions, plain and inline.
pub(crate) fn variants() -> impl Iterator<Item = (Completion, bool)> {
    COMPLETIONS
        .into_iter()
        .flat_map(|completion| [(completion, false), (completion, true)])
}

fn powers_of_two(max: u64) -> impl Iterator<Item = u64> {
    (0..u64::BITS)
        .map(|bit| 1 << bit)
        .take_while(move |n| *n <= max)
}
