//! Files that may be missing.

use std::fs;
use std::path::{Path, PathBuf};

/// A file's only line.
pub(super) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Names in a directory, sorted.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}

/// Entries of a directory that are a number between two words, by that number.
pub(super) fn numbered(dir: &Path, before: &str, after: &str) -> Vec<(u32, PathBuf)> {
    let mut entries: Vec<(u32, PathBuf)> = names(dir)
        .into_iter()
        .filter_map(|name| {
            let number = name.strip_prefix(before)?.strip_suffix(after)?;
            Some((number.parse().ok()?, dir.join(&name)))
        })
        .collect();
    entries.sort_unstable();
    entries
}
