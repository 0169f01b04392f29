//! Small files and directories of `/sys`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::SysfsError;

/// Returns the names in a directory, in natural order; empty if it does not exist.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>, SysfsError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(SysfsError::read(dir, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| SysfsError::read(dir, e))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort_by(|a, b| natural(a).cmp(&natural(b)));
    Ok(names)
}

/// A name with its last number taken as a number.
fn natural(name: &str) -> (&str, u64, &str) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0), name)
}

/// Returns a file's text without the newline; `None` if the file is missing, is empty, or the kernel
/// answers that it has no value.
pub(crate) fn optional(path: &Path) -> Result<Option<String>, SysfsError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if means_no_value(&error) => Ok(None),
        Err(error) => Err(SysfsError::read(path, error)),
    }
}

/// Whether an error means that there is no value: the file is missing, or reading it fails with EINVAL,
/// EOPNOTSUPP, ENODEV or ENODATA.
fn means_no_value(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    error.kind() == io::ErrorKind::NotFound
        || matches!(
            errno,
            Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NODEV | Errno::NODATA)
        )
}

/// Returns a file's text without the newline.
pub(crate) fn text(path: &Path) -> Result<String, SysfsError> {
    let text = fs::read_to_string(path).map_err(|e| SysfsError::read(path, e))?;
    Ok(text.trim().to_owned())
}

/// Parses a file that may have no value.
pub(crate) fn parsed<T>(
    path: &Path,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SysfsError> {
    optional(path)?
        .map(|text| parse(&text).ok_or_else(|| SysfsError::content(path, &text, expected)))
        .transpose()
}

/// Returns the last part of a link's target; `None` if there is no link.
pub(crate) fn link_name(link: &Path) -> Result<Option<String>, SysfsError> {
    match fs::read_link(link) {
        Ok(target) => Ok(target.file_name().map(|n| n.to_string_lossy().into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysfsError::read(link, error)),
    }
}

/// Returns a link's target with all links resolved; `None` if there is no link.
pub(crate) fn resolved(link: &Path) -> Result<Option<PathBuf>, SysfsError> {
    match fs::canonicalize(link) {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SysfsError::read(link, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_by_their_numbers() {
        let mut names = ["mlx5_10", "mlx5_9", "mlx4_0", "rxe"];
        names.sort_by(|a, b| natural(a).cmp(&natural(b)));
        assert_eq!(names, ["mlx4_0", "mlx5_9", "mlx5_10", "rxe"]);
    }
}
