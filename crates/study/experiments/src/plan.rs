//! The study: the cells that fill the figures.
//!
//! Profiles differ in the sizes and numbers of buffers of a figure ([`Steps`]) and in how often and how long a
//! cell is measured; a figure has the same variants in all of them.

use std::collections::HashMap;
use std::fmt;

use adverb_results::{Completion, Program, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{DeviceCaps, LinkRate, PathOptions, PortCaps};

use adverb_workload::pair::{CellSpec, Length, Request};
use serde::{Deserialize, Serialize};

use Completion::{Event, Poll};

use crate::{Figure, FigureId, figures};

pub(crate) const COMPLETIONS: [Completion; 2] = [Poll, Event];
/// Size of the rankings' messages, and of the ping that meets loss.
pub(crate) const RANKED: Bytes = Bytes::new(64);
/// Buffers of Figure 5, and the small window of loss.
pub(crate) const FOUR: u32 = 4;

/// How thorough a study is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// About two minutes: the panels of the publications, with fewer sizes and numbers of buffers.
    Quick,
    /// All powers of two and all numbers of buffers that the programs take, more repetitions.
    Full,
    /// Exactly the sizes and numbers of buffers of the publications, repetitions as in `Full`.
    Paper,
}

impl Profile {
    /// Returns how often each cell is measured.
    pub const fn repetitions(self) -> u32 {
        match self {
            Profile::Quick => 3,
            Profile::Full | Profile::Paper => 5,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Profile::Quick => "quick",
            Profile::Full => "full",
            Profile::Paper => "paper",
        })
    }
}

/// Whether the ports of both sides can inject faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ports {
    /// They cannot inject faults.
    Plain,
    /// They lose packets on request.
    Impairing,
}

/// What a plan depends on, of the device.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Limits that both sides have.
    pub caps: &'a DeviceCaps,
    /// The port.
    pub port: &'a PortCaps,
    /// Why the ports of the two sides cannot inject faults; `None` if they can.
    pub no_faults: Option<&'a str>,
    /// Speeds of links that are compared.
    pub rates: &'a [LinkRate],
    /// Whether the two sides have TCP sockets on the same path.
    pub sockets: bool,
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
    /// Figures without a cell.
    pub unfilled: Vec<Unfilled>,
}

/// A figure that was asked for and that the device cannot fill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfilled {
    /// The figure.
    pub figure: String,
    /// Why, in one line.
    pub reason: String,
}

impl Plan {
    /// The cells of these figures and panels (none named: all figures) that run on a device with these limits.
    pub fn study(profile: Profile, only: &[FigureId], limits: Limits<'_>) -> Plan {
        let mut draft = Draft {
            profile,
            max_inline: Bytes::new(limits.caps.max_inline_data.into()),
            figure: "",
            panels: Vec::new(),
            refusal: None,
            limits,
            cells: Vec::new(),
            places: HashMap::new(),
        };
        let mut unfilled = Vec::new();
        for figure in figures() {
            let named: Vec<FigureId> = only
                .iter()
                .copied()
                .filter(|id| figure.is_named(id.as_str()))
                .collect();
            if (only.is_empty() || !named.is_empty())
                && let Err(reason) = draft.fill(figure, &named)
            {
                let figure = figure.spec.id.to_owned();
                unfilled.push(Unfilled { figure, reason });
            }
        }
        let cells = draft.cells;
        Plan { cells, unfilled }
    }

    /// The same cells with these options of the path, except for those that a figure sets.
    pub fn with_path(self, path: PathOptions) -> Plan {
        let cells = self.cells.into_iter();
        Plan {
            cells: cells.map(|cell| cell.with_path(path)).collect(),
            ..self
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

/// Powers of two that a figure is drawn over, by profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    /// Steps of the quick profile.
    pub(crate) quick: &'static [u64],
    /// First and last of the publication.
    pub(crate) paper: (u64, u64),
    /// First and last of the full profile.
    pub(crate) full: (u64, u64),
}

impl Steps {
    fn of(self, profile: Profile) -> Vec<u64> {
        let (first, last) = match profile {
            Profile::Quick => return self.quick.to_vec(),
            Profile::Paper => self.paper,
            Profile::Full => self.full,
        };
        let doubled = std::iter::successors(Some(first), |n| n.checked_mul(2));
        doubled.take_while(|n| *n <= last).collect()
    }
}

/// The cells of a plan that is being made.
pub(crate) struct Draft<'a> {
    profile: Profile,
    /// Largest inline message of the device.
    pub(crate) max_inline: Bytes,
    /// Whose cells are being added.
    figure: &'static str,
    /// Its panels that were asked for; empty for all.
    panels: Vec<fn(&CellSpec) -> bool>,
    /// Why the first cell that the device does not do was left out of the figure.
    refusal: Option<String>,
    limits: Limits<'a>,
    cells: Vec<CellSpec>,
    /// Index in `cells` by id.
    places: HashMap<String, usize>,
}

impl Draft<'_> {
    /// Adds the cells of a figure, or only of its named panels.
    ///
    /// # Errors
    /// Why the device does none of them.
    fn fill(&mut self, figure: &Figure, named: &[FigureId]) -> Result<(), String> {
        let reason = self.limits.no_faults.unwrap_or_default();
        if figure.ports == Ports::Impairing && self.limits.no_faults.is_some() {
            return Err(reason.to_owned());
        }
        (self.figure, self.refusal) = (figure.spec.id, None);
        // The figure as a whole has all panels.
        let panels: Option<Vec<_>> = named.iter().map(|id| id.panel()).collect();
        let panels = panels.unwrap_or_default().into_iter();
        self.panels = panels.map(|panel| panel.shows).collect();
        (figure.plan)(self);
        let shown = |cell: &CellSpec| cell.figures.iter().any(|id| id == figure.spec.id);
        match self.cells.iter().any(shown) {
            true => Ok(()),
            false => Err(self.refusal.take().unwrap_or_default()),
        }
    }

    /// Returns the message sizes of a figure.
    pub(crate) fn sizes(&self, steps: Steps) -> Vec<Bytes> {
        let sizes = steps.of(self.profile).into_iter();
        sizes.map(Bytes::new).collect()
    }

    /// Returns the numbers of buffers of a figure.
    pub(crate) fn buffers(&self, steps: Steps) -> Vec<u32> {
        let counts = steps.of(self.profile).into_iter();
        counts.filter_map(|n| u32::try_from(n).ok()).collect()
    }

    /// Returns the speeds of links that are compared.
    pub(crate) fn rates(&self) -> Vec<LinkRate> {
        self.limits.rates.to_vec()
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
            Profile::Full | Profile::Paper => Span::from_ms(1000),
        });
        params.repetitions = self.profile.repetitions();
        let cell = match program {
            Program::Ping => CellSpec::ping(params),
            Program::Blast => CellSpec::blast(params),
        };
        if cell.params.traffic.transport == Transport::Tcp && !self.limits.sockets {
            let why = || "TCP: the device has no sockets".to_owned();
            self.refusal.get_or_insert_with(why);
            return;
        }
        let is_shown = self.panels.is_empty() || self.panels.iter().any(|shows| shows(&cell));
        if !is_shown {
            return;
        }
        if let Some(place) = self.places.get(&cell.id) {
            let figures = &mut self.cells[*place].figures;
            if !figures.iter().any(|id| id == self.figure) {
                figures.push(self.figure.to_owned());
            }
            return;
        }
        let checked = cell.validate(self.limits.caps);
        match checked.and_then(|()| cell.check_port(self.limits.port)) {
            Ok(()) => {
                self.places.insert(cell.id.clone(), self.cells.len());
                self.cells.push(CellSpec {
                    figures: vec![self.figure.to_owned()],
                    ..cell
                });
            }
            Err(refused) => {
                self.refusal.get_or_insert_with(|| refused.to_string());
            }
        }
    }
}

/// Completions, plain and inline.
pub(crate) fn variants() -> impl Iterator<Item = (Completion, bool)> {
    COMPLETIONS
        .into_iter()
        .flat_map(|completion| [(completion, false), (completion, true)])
}
