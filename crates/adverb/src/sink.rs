//! Output of the records of a measuring command: rows or objects on stdout, and a folder if one was named.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use adverb_launch::{SUPPORT, Usage};
use adverb_measure::{Ending, Folder, Meta, Rendered, render};
use adverb_results::{Outcome, Record, Values, Writer};
use anyhow::{Context as _, bail};

use crate::args::{Format, LengthArgs, LimitArgs, OutArgs};
use crate::section::{Section, flat_injected};
use crate::{hosts, resumed, terminal};

/// How the records of a program are printed.
pub(crate) trait Table {
    /// Returns the title of a record's section: the parameters that all rows share.
    fn title(&self, record: &Record) -> String;

    /// Returns the section of records with these figures. Rows of a section have a title, columns and a header of their
    /// own, and if the section has a name, a line with the parameters that they share.
    fn section(&self, _figures: &[String]) -> &'static str {
        ""
    }

    /// Names and widths of the columns in the section of a record.
    fn columns(&self, record: &Record) -> Vec<(&'static str, usize)>;

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
    sections: Vec<Section>,
    /// The place of the section of the last row.
    current: Option<usize>,
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
    /// Opens the output for points with these sections and parameters.
    ///
    /// # Errors
    /// The folder cannot be written, or has records and --resume was not given.
    pub(crate) fn open(
        table: T,
        points: &[(&'static str, Values)],
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
        let mut sections: BTreeMap<&'static str, Vec<Values>> = BTreeMap::new();
        for (section, params) in points {
            let points = sections.entry(section).or_default();
            points.push(flat_injected(params));
        }
        let sections = sections.into_iter();
        let sections = sections.map(|(name, points)| Section::of(name, &points));
        Ok(Sink {
            table,
            format,
            sections: sections.collect(),
            current: None,
            label: args.label.clone(),
            limits: args.limits,
            missed: 0,
            folder: folder.transpose()?,
            support: BTreeSet::new(),
        })
    }

    /// Writes the parameters of a study to the folder.
    pub(crate) fn describe(&self, study: &Meta) -> anyhow::Result<()> {
        match &self.folder {
            Some(kept) => kept.folder.write_meta(study),
            None => Ok(()),
        }
    }

    /// Returns the last measured record like this from a resumed folder.
    pub(crate) fn earlier(&self, like: impl Fn(&Record) -> bool) -> Option<&Record> {
        let mut earlier = self.folder.iter().flat_map(|kept| &kept.earlier);
        earlier.rfind(|record| record.is_ok() && record.label == self.label && like(record))
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
            self.check(record);
        }
        Ok(())
    }

    /// Says how many points are kept as a resumed folder has them, and checks them against the limits, which may be others
    /// than when they were measured.
    pub(crate) fn reuse(&mut self, kept: &[&Record]) {
        match kept.len() {
            0 => {}
            1 => terminal::say("1 point was measured before and is kept"),
            n => terminal::say(&format!("{n} points were measured before and are kept")),
        }
        kept.iter().for_each(|record| self.check(record));
    }

    /// The same for records of `ping` and `blast`, which may have another length than is asked for now.
    ///
    /// # Errors
    /// More repetitions are asked for than a record has.
    pub(crate) fn reuse_of_length(
        &mut self,
        kept: &[Record],
        length: &LengthArgs,
    ) -> Result<(), Usage> {
        let mut all = kept.iter();
        all.try_for_each(|record| resumed::check_length(length, record))?;
        self.reuse(&kept.iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Checks a measured record against the limits.
    fn check(&mut self, record: &Record) {
        let violations = self.limits.violations(record);
        self.missed += usize::from(!violations.is_empty());
        for violation in violations {
            terminal::warn(&format!("{}: {violation}", record.cell));
        }
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
        let name = self.table.section(&record.figures);
        let place = self
            .sections
            .iter()
            .position(|section| section.name == name);
        let place = place.context("a record belongs to no section of the table")?;
        let section = &self.sections[place];
        let columns = self.table.columns(&record);
        let last = self.current.replace(place);
        if last != Some(place) {
            if last.is_some() {
                writeln!(out)?;
            }
            writeln!(out, "{}", self.table.title(&record))?;
            if !name.is_empty() && !section.shared.is_empty() {
                writeln!(out, "{}", terminal::wrapped(&section.shared.join(", ")))?;
            }
            writeln!(out, "{}", section.header(&columns))?;
        }
        if let Some(support) = record.provenance.active.device.get(SUPPORT) {
            let line = format!("{} is a model: {support}", record.device);
            self.support.insert(line);
        }
        for values in self.table.rows(&record) {
            writeln!(out, "{}", section.row(&record, &columns, values))?;
        }
        if let Some(remark) = self.table.remark(&record) {
            writeln!(out, "{remark}")?;
        }
        Ok(out.flush()?)
    }
}
