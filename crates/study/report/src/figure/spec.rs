//! How an experiment declares a figure: its words and its plots. [`crate::Report`] draws what is declared.

use adverb_results::{PairRecord, Record};

use super::label::Label;
use crate::cells::{Cells, Quantity};

/// A figure of an experiment.
#[derive(Debug)]
pub struct FigureSpec {
    /// Name in records and on the command line: `fig1`, `rank-rtt`.
    pub id: &'static str,
    /// How text refers to it: `Figure 1`, `Ranking by time`.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What it shows, below its title.
    pub caption: &'static str,
    /// Its plots.
    pub plots: Plots,
}

/// The plots of a figure. Except for `Devices`, each device has plots of its own.
#[derive(Debug)]
pub enum Plots {
    /// Lines over an axis.
    Lines(&'static [PanelSpec]),
    /// Lines over an axis, of several devices together; shown only for several devices.
    Devices(&'static [PanelSpec]),
    /// Bars, one for each variant of a program, best first.
    Rankings(&'static [RankingSpec]),
    /// Rows of words and figures.
    Table(fn(&Cells<'_>) -> Table),
    /// Latencies by percentile, one line for each variant of a program.
    Distribution,
    /// Lines over a parameter of records of any program, of all devices together; and a table of them.
    Records(&'static [RecordPanel], Option<RecordTable>),
}

/// Makes a table of the records of a figure.
pub type RecordTable = fn(&[&Record]) -> Table;

/// One panel over records of any program.
#[derive(Debug)]
pub struct RecordPanel {
    /// Heading.
    pub title: &'static str,
    /// Horizontal axis: its kind, the path of the parameter, and its name.
    pub x: (X, &'static str, &'static str),
    /// Vertical axis: the path of the metric, and what it is.
    pub y: (&'static str, Quantity),
    /// Parts that add up to a bar: name, and metric below the path of `y`. None: a bar is the metric itself.
    pub parts: &'static [(&'static str, &'static str)],
    /// Whether the panel shows a record of the figure.
    pub shows: fn(&Record) -> bool,
    /// The series that a record belongs to.
    pub series: fn(&Record) -> String,
}

/// A table in place of a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Headings.
    pub columns: Vec<&'static str>,
    /// A word for each column.
    pub rows: Vec<Vec<String>>,
}

/// What the horizontal axis of a panel shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum X {
    /// Message size.
    Size,
    /// Messages in flight.
    Buffers,
    /// Share of packets lost.
    Loss,
    /// Percentile of messages, drawn at -log10(1 - p).
    Percentile,
    /// A parameter that is a number of something, above 0.
    Parameter(Quantity),
    /// Packets that the path queues, at most.
    Queue,
    /// A parameter that is a time in nanoseconds.
    Time,
    /// A parameter that is a number of things, from 0.
    Count,
    /// A parameter that is a share of 1.
    Share,
    /// A parameter that is a number per second, from 0.
    Rate,
    /// None: a panel over records of any program then has a bar for each record, with the name of its series.
    Bars,
}

/// One panel: which records, over what, how they are divided into series.
#[derive(Debug)]
pub struct PanelSpec {
    /// Heading.
    pub title: &'static str,
    /// Horizontal axis.
    pub x: X,
    /// Vertical axis.
    pub y: Quantity,
    /// Whether the panel shows a record.
    pub shows: fn(&PairRecord) -> bool,
    /// The series that a record belongs to.
    pub series: fn(&PairRecord) -> Label,
}

impl PanelSpec {
    /// Declares a panel that shares its vertical axis with all panels like it.
    pub const fn new(
        title: &'static str,
        (x, y): (X, Quantity),
        shows: fn(&PairRecord) -> bool,
        series: fn(&PairRecord) -> Label,
    ) -> Self {
        PanelSpec {
            title,
            x,
            y,
            shows,
            series,
        }
    }
}

/// One panel of bars.
#[derive(Debug)]
pub struct RankingSpec {
    /// Heading.
    pub title: &'static str,
    /// What the bars show.
    pub quantity: Quantity,
    /// Whether the panel shows a record.
    pub shows: fn(&PairRecord) -> bool,
}
