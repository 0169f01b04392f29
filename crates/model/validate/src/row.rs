//! A row: the published value, and the experiments that predict it.

use crate::base;
use crate::cells::{Cells, Reader};
use crate::columns::Column;
use crate::experiment::{Experiment, Parameters};
use crate::fault::{Fault, Problem};
use crate::near;
use crate::published::Published;
use crate::words::{Exactness, Metric, Program, Quantity, Unit};

/// A published value, and the experiments that predict it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Paper or repository, with figure or table.
    pub source: String,
    /// How the value was obtained.
    pub exactness: Option<Exactness>,
    /// The value, in the unit of `quantity`.
    pub published: Published,
    /// The metric, or the kind of comparison.
    pub quantity: Quantity,
    /// The experiments that predict it.
    pub plan: Result<Plan, UnknownProgram>,
    /// Whether it counts in the scores.
    pub grade: Grade,
    /// The row that publishes the reference's value, if there is one.
    pub ratio_to: Option<String>,
    /// Remarks.
    pub notes: String,
}

/// Whether a row counts in the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// The row counts.
    Counted,
    /// The row does not count: its absolute value is known to be unreliable, or it repeats another row.
    Shown,
}

/// The experiments behind a prediction.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// The metric of an experiment.
    Plain(Box<Experiment>),
    /// The first metric divided by the second.
    Ratio(Box<Pair>),
    /// The first metric minus the second, in nanoseconds.
    Delta(Box<Pair>),
}

/// An experiment and its reference, in the same metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The row's experiment.
    pub of: Experiment,
    /// Its reference: the row with `base` applied.
    pub base: Experiment,
}

/// A program that `data/schema.md` does not name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no program '{name}'{near}", near = near::suffix(near))]
pub struct UnknownProgram {
    /// Its name.
    pub name: String,
    /// Programs with similar names.
    pub near: Vec<String>,
}

impl Row {
    /// Reads a row, or returns all its faults.
    pub(crate) fn read(cells: &Cells) -> Result<Row, Vec<Fault>> {
        let mut reader = Reader::new(cells);
        let row = read(&mut reader);
        let faults = reader.faults;
        match row {
            Some(row) if faults.is_empty() => Ok(row),
            _ => Err(faults),
        }
    }
}

/// Reads a row; `None` only with a fault.
fn read(cells: &mut Reader<'_>) -> Option<Row> {
    cells.required::<String>(Column::Id, "a name that is unique over all files");
    cells.required::<String>(Column::Curve, "the curve that the point belongs to");
    let source = cells.cells.get(Column::Source).to_owned();
    let exactness = cells.opt(Column::Exactness);
    let grade = grade(cells);
    let quantity = quantity(cells);
    let metric = quantity.and_then(|quantity| measured(cells, quantity));
    let of = experiment(cells, metric);
    let published = Published::read(cells);
    if !cells.faults.is_empty() {
        return None;
    }
    let plan = plan(cells, of?, quantity?)?;
    Some(Row {
        source,
        exactness,
        published: published?,
        quantity: quantity?,
        plan,
        grade: grade?,
        ratio_to: cells.opt(Column::RatioTo),
        notes: cells.cells.get(Column::Notes).to_owned(),
    })
}

fn grade(cells: &mut Reader<'_>) -> Option<Grade> {
    let counts: bool = cells.required(Column::Grade, "0 or 1")?;
    Some(if counts { Grade::Counted } else { Grade::Shown })
}

/// Reads the metric and checks the unit.
fn quantity(cells: &mut Reader<'_>) -> Option<Quantity> {
    let unit: Option<Unit> = cells.required(Column::Unit, "the metric's unit");
    let quantity: Quantity = cells.required(Column::Metric, "what was published")?;
    if let Some(unit) = unit.filter(|unit| *unit != quantity.unit()) {
        let unit = unit.to_string();
        let metric = quantity;
        cells.fault(Column::Unit, Problem::Unit { unit, metric });
    }
    Some(quantity)
}

/// Returns what the experiments measure, and checks `of` and `base`.
fn measured(cells: &mut Reader<'_>, quantity: Quantity) -> Option<Metric> {
    if let Quantity::Plain(metric) = quantity {
        needless(cells, Column::Of, quantity);
        needless(cells, Column::Base, quantity);
        return Some(metric);
    }
    needed(cells, Column::Of, quantity, "the metric to compare");
    needed(
        cells,
        Column::Base,
        quantity,
        "COLUMN=VALUE;… of the reference",
    );
    let of: Metric = cells.opt(Column::Of)?;
    if quantity == Quantity::Delta && of.unit() != Unit::Nanoseconds {
        cells.fault(Column::Of, Problem::DeltaOfOtherUnit { of });
    }
    Some(of)
}

fn needed(cells: &mut Reader<'_>, column: Column, metric: Quantity, wanted: &'static str) {
    if cells.cells.given(column).is_none() {
        cells.fault(column, Problem::NoReference { metric, wanted });
    }
}

fn needless(cells: &mut Reader<'_>, column: Column, metric: Quantity) {
    if let Some(value) = cells.cells.given(column) {
        let value = value.to_owned();
        cells.fault(column, Problem::NeedlessReference { value, metric });
    }
}

/// Adds the reference to the row's experiment; `None` only with a fault.
fn plan(
    cells: &mut Reader<'_>,
    of: Result<Experiment, UnknownProgram>,
    quantity: Quantity,
) -> Option<Result<Plan, UnknownProgram>> {
    let of = match of {
        Ok(of) => of,
        Err(unknown) => return Some(Err(unknown)),
    };
    let compare = match quantity {
        Quantity::Plain(_) => return Some(Ok(Plan::Plain(Box::new(of)))),
        Quantity::Ratio => Plan::Ratio,
        Quantity::Delta => Plan::Delta,
    };
    let base = reference(cells, of.metric)?;
    Some(base.map(|base| compare(Box::new(Pair { of, base }))))
}

/// The experiment that the cells describe; `None` only with a fault, or without a metric.
fn experiment(
    cells: &mut Reader<'_>,
    metric: Option<Metric>,
) -> Option<Result<Experiment, UnknownProgram>> {
    let preset: Option<String> = cells.required(Column::Preset, "the name of the hardware");
    let program: Option<String> = cells.required(Column::Program, "the program's name");
    let parameters = Parameters::read(cells);
    let (preset, program, metric) = (preset?, program?, metric?);
    Some(known(&program).map(|program| Experiment {
        preset,
        program,
        metric,
        parameters,
        sample: None,
    }))
}

fn known(name: &str) -> Result<Program, UnknownProgram> {
    let all = Program::ALL.iter().copied();
    let known = all.clone().find(|program| program.as_str() == name);
    known.ok_or_else(|| UnknownProgram {
        name: name.to_owned(),
        near: near::near(name, all.map(Program::as_str)),
    })
}

/// The reference of a comparison; `None` only with a fault.
fn reference(cells: &mut Reader<'_>, metric: Metric) -> Option<Result<Experiment, UnknownProgram>> {
    let based = match base::apply(cells.cells, cells.cells.get(Column::Base)) {
        Ok(based) => based,
        Err(faults) => {
            cells.faults.extend(faults);
            return None;
        }
    };
    let mut overridden = Reader::new(&based);
    let base = experiment(&mut overridden, Some(metric));
    let faults = overridden.faults;
    if faults.is_empty() {
        return base;
    }
    cells.faults.extend(faults.into_iter().map(base::of_base));
    None
}
