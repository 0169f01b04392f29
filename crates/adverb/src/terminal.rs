//! Terminal output: results on stdout, warnings and errors on stderr, wrapped text.

use std::fmt;
use std::io::{self, StdoutLock, Write};

use clap::builder::styling::{AnsiColor, Style};

/// Widest text; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Prints one line `error: …`.
pub(crate) fn error(line: &str) {
    talk(format_args!("{ERROR}error:{ERROR:#} {line}"));
}

/// Prints one line `warning: …`.
pub(crate) fn warn(line: &str) {
    talk(format_args!("{WARNING}warning:{WARNING:#} {line}"));
}

/// Prints a line on stderr.
pub(crate) fn say(line: &str) {
    talk(format_args!("{line}"));
}

/// Wraps text to the terminal.
pub(crate) fn wrapped(text: &str) -> String {
    textwrap::fill(text, textwrap::termwidth().min(MAX_WIDTH))
}

/// Formats a sentence as a list item, wrapped to the terminal.
pub(crate) fn item(text: &str) -> String {
    let options = textwrap::Options::new(textwrap::termwidth().min(MAX_WIDTH))
        .initial_indent("- ")
        .subsequent_indent("  ");
    textwrap::fill(text, options)
}

/// Standard output. Its errors name it, so that users know which output is on a full disk.
pub(crate) struct Output(anstream::AutoStream<StdoutLock<'static>>);

/// Locks standard output for one writer.
pub(crate) fn stdout() -> Output {
    Output(anstream::stdout().lock())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| unwritten(&e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| unwritten(&e))
    }
}

/// Standard output did not take what was written to it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
struct Unwritten(String);

pub(crate) fn unwritten(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), Unwritten(error.to_string()))
}

/// Whether the reader of standard output closed it.
pub(crate) fn is_unread(error: &io::Error) -> bool {
    let is_ours = error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Unwritten>);
    is_ours && error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints a line on stderr. A closed stderr is not an error.
fn talk(line: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
