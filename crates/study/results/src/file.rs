//! The file of records: JSON Lines, one record a line, appended the moment a cell ends.
//!
//! After a crash the last line may be incomplete. Readers return the complete records before it with a warning;
//! [`Writer::resume`] removes the incomplete line before it appends.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Record, SCHEMA, Values};

/// Name of the file of records in a study's folder.
pub const RESULTS_JSONL: &str = "results.jsonl";
/// Name of the same records as a table in a study's folder.
pub const RESULTS_CSV: &str = "results.csv";

/// The fields of a record's JSON.
const FIELDS: [&str; 14] = [
    "schema",
    "cell",
    "label",
    "pass",
    "figures",
    "program",
    "device",
    "params",
    "status",
    "reason",
    "metrics",
    "roles",
    "counters",
    "provenance",
];

/// The records of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOutcome {
    /// In the order in which they were written.
    pub records: Vec<Record>,
    /// The last line, if a crash cut it.
    pub warning: Option<CutLine>,
    /// Fields that this version does not know and leaves out.
    pub unknown: BTreeSet<String>,
    /// Length of the whole records in the file.
    complete_bytes: u64,
    /// Whether the last whole record lacks its line end.
    unended: bool,
}

/// A last line that was not written to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutLine {
    /// The file.
    pub path: PathBuf,
    /// Number of the line, from 1.
    pub line: usize,
}

impl fmt::Display for CutLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: the last record was cut while it was written and is left out: \
             the same command with `--resume --out {}` measures it again",
            self.path.display(),
            self.line,
            folder(&self.path)
        )
    }
}

/// Records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist.
    #[error("no results in {}: run `adverb study --out {}` first", .0.display(), folder(.0))]
    Missing(PathBuf),
    /// The file contains no complete record.
    #[error("{} contains no record: run `adverb study --out {}` first", .0.display(), folder(.0))]
    Empty(PathBuf),
    /// A line other than an incomplete last one is not a record.
    #[error("{}:{line}: not a record ({reason}): delete that line to keep the others", .path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The error.
        reason: String,
    },
    /// Written by a newer Adverb.
    #[error(
        "{}:{line}: records of schema {schema}, this Adverb reads up to {SCHEMA}: update Adverb, or measure again",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The schema it names.
        schema: u64,
    },
    /// The system refused.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A record could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk is full; the partly written record has been removed again.
    #[error(
        "no space left for {}, which keeps the earlier records: free some, then run the same command with `--resume --out {}`",
        .0.display(), folder(.0)
    )]
    NoSpace(PathBuf),
    /// The file reached the process's limit; the partly written record has been removed again.
    #[error(
        "{} has reached the limit of file sizes (ulimit -f) and keeps the earlier records: raise it, then \
         run the same command with `--resume --out {}`",
        .0.display(), folder(.0)
    )]
    TooLarge(PathBuf),
    /// The file was deleted, and its records are lost.
    #[error("{} was deleted while its records were measured, and they are lost: measure again", .0.display())]
    Deleted(PathBuf),
    /// The system refused.
    #[error("cannot write {}: {source}: choose another folder with --out", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The existing records cannot be continued.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn folder(path: &Path) -> String {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.display().to_string(),
        _ => ".".to_owned(),
    }
}

/// Reads a file of records. A last line cut by a crash is a warning, a broken line elsewhere an
/// error, and so is a file without any record.
pub fn read_records(path: &Path) -> Result<ReadOutcome, ReadError> {
    let outcome = read_all(path)?;
    if outcome.records.is_empty() {
        return Err(ReadError::Empty(path.to_owned()));
    }
    Ok(outcome)
}

fn read_all(path: &Path) -> Result<ReadOutcome, ReadError> {
    let text = std::fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ReadError::Missing(path.to_owned()),
        _ => ReadError::Io {
            path: path.to_owned(),
            source,
        },
    })?;
    let mut outcome = ReadOutcome::default();
    for (index, piece) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let ended = piece.ends_with(b"\n");
        if !piece.trim_ascii().is_empty() {
            match parse_line(path, index + 1, piece) {
                Ok((record, unknown)) => {
                    outcome.records.push(record);
                    outcome.unknown.extend(unknown);
                }
                Err(ReadError::Broken { path, line, .. }) if !ended => {
                    outcome.warning = Some(CutLine { path, line });
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        outcome.complete_bytes += piece.len() as u64;
        outcome.unended = !ended;
    }
    Ok(outcome)
}

/// Parses a record; also returns the names of unknown fields.
fn parse_line(path: &Path, line: usize, text: &[u8]) -> Result<(Record, Vec<String>), ReadError> {
    let broken = |reason: String| ReadError::Broken {
        path: path.to_owned(),
        line,
        reason,
    };
    let fields: Values = serde_json::from_slice(text).map_err(|e| broken(e.to_string()))?;
    let schema = fields.get("schema").and_then(Value::as_u64);
    let schema = schema.ok_or_else(|| broken("no schema".to_owned()))?;
    if schema > SCHEMA.into() {
        return Err(ReadError::Newer {
            path: path.to_owned(),
            line,
            schema,
        });
    }
    let is_known = |name: &&String| FIELDS.contains(&name.as_str());
    let unknown = fields.keys().filter(|name| !is_known(name)).cloned();
    let unknown = unknown.collect();
    let record = serde_json::from_value(Value::Object(fields));
    Ok((record.map_err(|e| broken(e.to_string()))?, unknown))
}

/// Appends records to a file.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Writer {
    /// Starts a file from scratch; its earlier content is lost.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let file = File::create(path).map_err(|e| write_error(path, e))?;
        Ok(Writer {
            path: path.to_owned(),
            file,
            length: 0,
        })
    }

    /// Continues a file, or starts it if there is none; returns the records that are in it. A line that a
    /// crash cut is removed.
    pub fn resume(path: &Path) -> Result<(Self, ReadOutcome), WriteError> {
        let outcome = match read_all(path) {
            Err(ReadError::Missing(_)) => ReadOutcome::default(),
            other => other?,
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(|e| write_error(path, e))?;
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            length: outcome.complete_bytes,
        };
        writer.cut_back().map_err(|e| write_error(path, e))?;
        if outcome.unended {
            writer.write_whole(b"\n")?;
        }
        Ok((writer, outcome))
    }

    /// Appends a record. On return the complete line is in the file and survives this process; after an error
    /// the file is unchanged. A deleted file is an error: nothing written to it can be read again.
    pub fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        self.check_exists()?;
        let mut line = serde_json::to_vec(record).map_err(|e| write_error(&self.path, e.into()))?;
        line.push(b'\n');
        self.write_whole(&line)
    }

    /// Waits until all records are on the disk.
    pub fn close(self) -> Result<(), WriteError> {
        self.check_exists()?;
        self.file.sync_all().map_err(|e| write_error(&self.path, e))
    }

    fn check_exists(&self) -> Result<(), WriteError> {
        let metadata = self.file.metadata();
        match metadata.map_err(|e| write_error(&self.path, e))?.nlink() {
            0 => Err(WriteError::Deleted(self.path.clone())),
            _ => Ok(()),
        }
    }

    fn write_whole(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if let Err(e) = self.file.write_all(bytes) {
            // Report the first error. Readers accept an incomplete last line.
            let _ = self.cut_back();
            return Err(write_error(&self.path, e));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }
}

fn write_error(path: &Path, source: io::Error) -> WriteError {
    match source.kind() {
        io::ErrorKind::FileTooLarge => WriteError::TooLarge(path.to_owned()),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            WriteError::NoSpace(path.to_owned())
        }
        _ => WriteError::Io {
            path: path.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use proptest::prelude::*;

    fn in_new_folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RESULTS_JSONL);
        (dir, path)
    }

    fn write(path: &Path, cells: &[&str]) {
        let mut writer = Writer::create(path).unwrap();
        for cell in cells {
            writer.append(&record(cell)).unwrap();
        }
        writer.close().unwrap();
    }

    #[track_caller]
    fn assert_refused(path: &Path, reason: &str) {
        let message = read_records(path).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }

    #[test]
    fn records_are_read_as_written() {
        let (_dir, path) = in_new_folder();
        write(&path, &["a", "b"]);
        let outcome = read_records(&path).unwrap();
        assert_eq!(outcome.records, [record("a"), record("b")]);
        assert_eq!(outcome.warning, None);
    }

    #[test]
    fn an_appended_record_is_readable_before_the_file_is_closed() {
        let (_dir, path) = in_new_folder();
        let mut writer = Writer::create(&path).unwrap();
        writer.append(&record("a")).unwrap();
        assert_eq!(read_records(&path).unwrap().records.len(), 1);
    }

    #[test]
    fn missing_and_empty_name_the_remedy() {
        let (dir, path) = in_new_folder();
        let remedy = format!("adverb study --out {}", dir.path().display());
        assert_refused(&path, &remedy);
        for empty in ["", "\n", "{\"schema\":1,\"ce"] {
            std::fs::write(&path, empty).unwrap();
            assert_refused(&path, "contains no record");
        }
    }

    #[test]
    fn a_broken_line_in_the_middle_is_named() {
        let (_dir, path) = in_new_folder();
        let good = serde_json::to_string(&record("a")).unwrap();
        std::fs::write(&path, format!("{good}\nrubbish\n{good}\n")).unwrap();
        assert_refused(&path, "results.jsonl:2: not a record");
        let resumed = Writer::resume(&path).unwrap_err();
        assert!(matches!(
            resumed,
            WriteError::Read(ReadError::Broken { .. })
        ));
    }

    #[test]
    fn a_newer_schema_is_refused_by_name() {
        let (_dir, path) = in_new_folder();
        std::fs::write(&path, "{\"schema\":3,\"what\":\"ever\"}\n").unwrap();
        assert_refused(&path, "schema 3, this Adverb reads up to 2");
    }

    #[test]
    fn records_of_schema_1_and_unknown_fields_are_read() {
        let (_dir, path) = in_new_folder();
        let mut old = serde_json::to_value(record("a")).unwrap();
        old["schema"] = 1.into();
        old["novelty"] = true.into();
        std::fs::write(&path, format!("{old}\n")).unwrap();
        let outcome = read_records(&path).unwrap();
        assert_eq!(outcome.records[0].metric("one_way_ns.mean"), Some(100.0));
        assert!(outcome.unknown.iter().eq(["novelty"]));
    }

    #[test]
    fn a_record_without_line_end_counts_and_is_ended_on_resume() {
        let (_dir, path) = in_new_folder();
        std::fs::write(&path, serde_json::to_string(&record("a")).unwrap()).unwrap();
        assert_eq!(read_records(&path).unwrap().warning, None);
        let (mut writer, before) = Writer::resume(&path).unwrap();
        assert_eq!(before.records.len(), 1);
        writer.append(&record("b")).unwrap();
        let records = read_records(&path).unwrap().records;
        assert_eq!(records, [record("a"), record("b")]);
    }

    #[test]
    fn resume_starts_a_file_that_is_not_there() {
        let (_dir, path) = in_new_folder();
        let (mut writer, before) = Writer::resume(&path).unwrap();
        assert!(before.records.is_empty());
        writer.append(&record("a")).unwrap();
        assert_eq!(read_records(&path).unwrap().records.len(), 1);
    }

    #[test]
    fn an_unwritable_place_is_named() {
        let (dir, _) = in_new_folder();
        let error = Writer::create(&dir.path().join("no/such/results.jsonl")).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("no/such/results.jsonl"), "{message}");
        assert!(message.contains("--out"), "{message}");
    }

    #[test]
    fn a_full_disk_is_told_as_such() {
        let full = Path::new("/dev/full");
        let file = OpenOptions::new().write(true).open(full).unwrap();
        let mut writer = Writer {
            path: full.to_owned(),
            file,
            length: 0,
        };
        let error = writer.append(&record("a")).unwrap_err();
        assert!(matches!(error, WriteError::NoSpace(_)), "{error}");
        assert!(error.to_string().contains("free some"), "{error}");
    }

    #[test]
    fn records_of_a_deleted_file_are_told_to_be_lost() {
        let (dir, path) = in_new_folder();
        let mut writer = Writer::create(&path).unwrap();
        writer.append(&record("a")).unwrap();
        std::fs::remove_dir_all(dir.path()).unwrap();
        for error in [writer.append(&record("b")), writer.close()] {
            let error = error.unwrap_err();
            assert!(matches!(error, WriteError::Deleted(_)), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn cut_anywhere_it_reads_the_whole_lines_and_resumes(share in 0.0..1.0_f64) {
            let (_dir, path) = in_new_folder();
            write(&path, &["a", "b", "c"]);
            let text = std::fs::read(&path).unwrap();
            let cut = (share * text.len() as f64) as usize;
            std::fs::write(&path, &text[..cut]).unwrap();

            let line = text.len() / 3;
            let whole = (cut + 1) / line; // a record that lacks only its line end is whole
            let (mut writer, before) = Writer::resume(&path).unwrap();
            prop_assert_eq!(before.records.len(), whole);
            prop_assert_eq!(before.warning.map(|w| w.line), (cut > whole * line).then_some(whole + 1));

            for cell in &["a", "b", "c"][whole..] {
                writer.append(&record(cell)).unwrap();
            }
            writer.close().unwrap();
            prop_assert_eq!(std::fs::read(&path).unwrap(), text);
        }
    }
}
