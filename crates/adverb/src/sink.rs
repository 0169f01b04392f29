//! Output of the records of a measuring command: rows or objects on stdout, and a folder if one was named.

use std::collections::BTreeSet;
use std::io::Write;

use adverb_launch::SUPPORT;
use adverb_measure::{Ending, Folder, Rendered, render};
use adverb_report::format;
use adverb_results::{Outcome, Probability, Record, Values, Writer, swept};
use anyhow::bail;
use serde_json::Value;

use crate::args::{Format, LimitArgs, OutArgs};
use crate::{hosts, terminal};

/// How the records of a program are printed.
pub(crate) trait Table {
    /// Returns the title: the parameters that all rows share.
    fn title(&self, record: &Record) -> String;

    /// Names and widths of the columns.
    fn columns(&self) -> Vec<(&'static str, usize)>;

    /// The values of the rows of a record, mostly one; `None` if not measured.
    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>>;

    /// A line below the rows.
    fn remark(&self, record: &Record) -> Option<String> {
        let _ = record;
        None
    }
}

/// Takes records one by one.
pub(crate) struct Sink<T> {
    table: T,
    /// How records are printed; `None` if they are only kept.
    format: Option<Format>,
    /// Parameters that differ between the points: columns of their own. Sizes have a column anyway.
    swept: Vec<String>,
    has_header: bool,
    label: Option<String>,
    limits: LimitArgs,
    /// Points outside the limits.
    missed: usize,
    folder: Option<RecordFolder>,
    /// What supports the predictions in the table.
    support: BTreeSet<String>,
}

/// An open folder of records.
struct RecordFolder {
    folder: Folder,
    writer: Writer,
    earlier: Vec<Record>,
}

impl<T> Sink<T> {
    /// Opens the output for points with these parameters.
    ///
    /// # Errors
    /// The folder cannot be written, or has records and --resume was not given.
    pub(crate) fn open(
        table: T,
        points: &[Values],
        (args, format): (&OutArgs, Option<Format>),
    ) -> anyhow::Result<Self> {
        let folder = args
            .out
            .as_ref()
            .map(|path| -> anyhow::Result<RecordFolder> {
                let folder = Folder::claim(path)?;
                let (writer, earlier) = if args.resume {
                    folder.resume(hosts::log)?
                } else {
                    (folder.start()?, Vec::new())
                };
                Ok(RecordFolder {
                    folder,
                    writer,
                    earlier,
                })
            });
        Ok(Sink {
            table,
            format,
            swept: {
                let points: Vec<Values> = points.iter().map(flat_injected).collect();
                swept(&points.iter().collect::<Vec<_>>())
            },
            has_header: false,
            label: args.label.clone(),
            limits: args.limits,
            missed: 0,
            folder: folder.transpose()?,
            support: BTreeSet::new(),
        })
    }

    /// Whether a resumed folder has a measured record like this.
    pub(crate) fn has(&self, like: impl Fn(&Record) -> bool) -> bool {
        self.earlier(like).is_some()
    }

    /// Returns a measured record like this from a resumed folder.
    pub(crate) fn earlier(&self, like: impl Fn(&Record) -> bool) -> Option<&Record> {
        let mut earlier = self.folder.iter().flat_map(|kept| &kept.earlier);
        earlier.find(|record| record.is_ok() && record.label == self.label && like(record))
    }

    /// Writes a record to the folder, prints it with `--json`, and checks it against the limits.
    ///
    /// # Errors
    /// stdout or the folder cannot be written; earlier records are kept.
    pub(crate) fn keep(&mut self, record: &mut Record) -> anyhow::Result<()> {
        record.label.clone_from(&self.label);
        if let Some(kept) = &mut self.folder {
            kept.writer.append(record)?;
        }
        if self.format == Some(Format::Json) {
            let mut out = terminal::stdout();
            writeln!(out, "{}", serde_json::to_string(record)?)?;
            out.flush()?;
        }
        if record.is_ok() {
            let violations = self.limits.violations(record);
            self.missed += usize::from(!violations.is_empty());
            for violation in violations {
                terminal::warn(&format!("{}: {violation}", record.cell));
            }
        }
        Ok(())
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> &T {
        &self.table
    }

    /// Closes the folder and writes its report, also if `measured` is an error. Returns the report, if there is a folder.
    ///
    /// # Errors
    /// The error of `measured`; or the folder cannot be written; or points were outside the limits.
    pub(crate) fn finish(self, measured: anyhow::Result<()>) -> anyhow::Result<Option<Rendered>> {
        let ending = match measured {
            Ok(()) => Ending::Whole,
            Err(_) => Ending::Cut,
        };
        let missed = self.missed;
        self.support.iter().for_each(|line| terminal::say(line));
        // The error of the measurement matters more than one of the report.
        let closed = self.close(ending);
        let rendered = measured.and(closed)?;
        match missed {
            0 => Ok(rendered),
            1 => bail!("1 point is outside the limits"),
            n => bail!("{n} points are outside the limits"),
        }
    }

    fn close(self, ending: Ending) -> anyhow::Result<Option<Rendered>> {
        let Some(kept) = self.folder else {
            return Ok(None);
        };
        kept.writer.close()?;
        let rendered = render(kept.folder.path(), ending)?;
        terminal::say(&format!("report: {}", rendered.path.display()));
        Ok(Some(rendered))
    }
}

impl<T: Table> Sink<T> {
    /// Prints and keeps a record.
    ///
    /// # Errors
    /// stdout or the folder cannot be written; earlier records are kept.
    pub(crate) fn take(&mut self, mut record: Record) -> anyhow::Result<()> {
        self.keep(&mut record)?;
        if self.format != Some(Format::Text) || record.outcome != Outcome::Ok {
            return Ok(());
        }
        let mut out = terminal::stdout();
        if !std::mem::replace(&mut self.has_header, true) {
            writeln!(out, "{}", self.table.title(&record))?;
            writeln!(out, "{}", self.header())?;
        }
        if let Some(support) = record.provenance.active.device.get(SUPPORT) {
            let line = format!("{} is a model: {support}", record.device);
            self.support.insert(line);
        }
        for values in self.table.rows(&record) {
            writeln!(out, "{}", self.row(&record, values))?;
        }
        if let Some(remark) = self.table.remark(&record) {
            writeln!(out, "{remark}")?;
        }
        Ok(out.flush()?)
    }

    fn header(&self) -> String {
        let swept = self.swept.iter();
        let swept = swept.map(|name| pad(without_unit(name), width(name)));
        let columns = self.table.columns().into_iter();
        let columns = columns.map(|(name, width)| pad(name, width));
        swept.chain(columns).collect::<Vec<_>>().join("  ")
    }

    fn row(&self, record: &Record, values: Vec<Option<String>>) -> String {
        let params = flat(&record.params);
        let swept = self.swept.iter().map(|name| {
            let value = params.get(name).and_then(|value| shown(name, value));
            pad(value.as_deref().unwrap_or("-"), width(name))
        });
        let columns = self.table.columns().into_iter();
        let values = columns.zip(values);
        let values = values.map(|((_, width), value)| pad(value.as_deref().unwrap_or("-"), width));
        swept.chain(values).collect::<Vec<_>>().join("  ")
    }
}

/// Returns the parameters with each of the faults as one of its own: `loss`, `delay_ns`.
fn flat(params: &Values) -> Values {
    flat_with(params, |_, _| true)
}

/// The same with the faults that are injected.
fn flat_injected(params: &Values) -> Values {
    flat_with(params, |name, value| {
        name != "seed" && value.as_f64() != Some(0.0)
    })
}

fn flat_with(params: &Values, is_wanted: impl Fn(&str, &Value) -> bool) -> Values {
    let mut flat = params.clone();
    if let Some(Value::Object(faults)) = flat.shift_remove("impairment") {
        flat.extend(
            faults
                .into_iter()
                .filter(|(name, value)| is_wanted(name, value)),
        );
    }
    flat
}

/// Parameters that are shares of packets.
const SHARES: [&str; 4] = ["loss", "duplicate", "reorder", "corrupt"];

/// Returns a parameter's value with its unit, a share of packets in percent.
fn shown(name: &str, value: &Value) -> Option<String> {
    match serde_json::from_value(value.clone()) {
        Ok(share) if SHARES.contains(&name) => Some(Probability::to_string(&share)),
        _ => format::parameter(name, Some(value)),
    }
}

fn without_unit(name: &str) -> &str {
    let units = ["_ns", "_per_s"];
    let without = units.iter().find_map(|unit| name.strip_suffix(unit));
    without.unwrap_or(name)
}

fn width(name: &str) -> usize {
    without_unit(name).len().max(7)
}

/// Right-aligned.
fn pad(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}
