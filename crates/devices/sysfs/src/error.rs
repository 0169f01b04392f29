//! Errors in reading `/sys`.

use std::io;
use std::path::{Path, PathBuf};

/// `/sys` could not be read or parsed. All errors name the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysfsError {
    /// The system refused to read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content does not have the format that the kernel documents.
    #[error("{} contains '{text}': expected {expected}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
        /// What it should contain.
        expected: &'static str,
    },
}

impl SysfsError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        SysfsError::Read {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn content(path: &Path, text: &str, expected: &'static str) -> Self {
        SysfsError::Content {
            path: path.to_owned(),
            text: text.to_owned(),
            expected,
        }
    }
}
