//! Errors of a lab.

use std::io;
use std::path::{Path, PathBuf};

use adverb_units::Span;

/// A lab cannot be built, booted or used. Each error is one line that names the value and the remedy, if any;
/// errors of a machine add the last lines of its console.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that has to be installed is not: see `adverb-vm check`.
    #[error("missing: {0}")]
    Missing(String),
    /// A file of the host.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// The failed action.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A path that the guest cannot have.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// A kernel module that cannot be read.
    #[error("kernel module {}: {what}", path.display())]
    Module {
        /// The module.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// A lab of a kind that does not exist.
    #[error("{0}")]
    Unsupported(String),
    /// The machine has ended: its kernel panicked, or QEMU ended or was killed.
    #[error("machine {machine} ended{how}; its console's last lines:\n{console}")]
    Ended {
        /// Its name.
        machine: String,
        /// How it ended.
        how: String,
        /// The last lines of its console.
        console: String,
    },
    /// The machine runs but does not answer.
    #[error(
        "machine {machine} did not {what} within {timeout}; its console's last lines:\n{console}"
    )]
    Hung {
        /// Its name.
        machine: String,
        /// The awaited action.
        what: &'static str,
        /// The timeout.
        timeout: Span,
        /// The last lines of its console.
        console: String,
    },
    /// The guest reported a failure.
    #[error("machine {machine}: {reason}")]
    Refused {
        /// Its name.
        machine: String,
        /// The reason.
        reason: String,
    },
    /// A program printed more than is kept.
    #[error("machine {machine}: the program printed more than {limit}; it was killed")]
    TooMuchOutput {
        /// The machine's name.
        machine: String,
        /// What is kept of each stream.
        limit: adverb_units::Bytes,
    },
}

/// Puts a path to an [`io::Error`].
pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}
