//! Starts unmodified programs over the library.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the library that cargo built next to the test program.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test program");
    let library = test.with_file_name("libadverb_preload.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Returns the command that runs `program` over the library, with shared memory of its own in `folder`.
pub(crate) fn over_adverb(program: impl AsRef<Path>, folder: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env("LD_PRELOAD", library())
        .env("ADVERB_SHM", folder);
    command
}

/// Returns the path of an installed program; `None` after reporting that it is missing from `package`.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        not_run(
            &format!("{program} over the user-space NIC"),
            &format!("{program} is missing (package {package})"),
        );
    }
    found
}

/// Reports on stderr, past the test harness, what did not run.
pub(crate) fn not_run(what: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {what}: {reason}");
}

/// Returns what a program printed to stdout. It has to succeed, and print nothing to stderr.
pub(crate) fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && errors.is_empty(),
        "{}:\n{text}{errors}",
        output.status
    );
    text.into_owned()
}
