//! What can go wrong in reading `/sys`.

use std::io;
use std::path::{Path, PathBuf};

/// Why `/sys` was not understood. All name the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysfsError {
    /// The system refused to read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The content is not what the kernel's documentation promises.
    #[error("{} holds '{text}', which is no {expected}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        text: String,
        /// What it should hold.
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
