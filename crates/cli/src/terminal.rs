//! What is said to people: warnings and errors on stderr, wrapped text on stdout.

use std::fmt;
use std::io::Write;

use clap::builder::styling::{AnsiColor, Style};

use crate::args::ColorWhen;

/// Widest text; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Chooses colours for the whole process; `Auto` looks at the terminal, NO_COLOR and TERM.
pub(crate) fn choose_color(when: ColorWhen) {
    match when {
        ColorWhen::Auto => anstream::ColorChoice::Auto,
        ColorWhen::Always => anstream::ColorChoice::Always,
        ColorWhen::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// One line `error: …`.
pub(crate) fn error(line: &str) {
    talk(format_args!("{ERROR}error:{ERROR:#} {line}"));
}

/// One line `warning: …`.
pub(crate) fn warn(line: &str) {
    talk(format_args!("{WARNING}warning:{WARNING:#} {line}"));
}

/// A line of talk.
pub(crate) fn say(line: &str) {
    talk(format_args!("{line}"));
}

/// A sentence as an item of a list, as wide as the terminal allows.
pub(crate) fn item(text: &str) -> String {
    let options = textwrap::Options::new(textwrap::termwidth().min(MAX_WIDTH))
        .initial_indent("- ")
        .subsequent_indent("  ");
    textwrap::fill(text, options)
}

/// Nobody may be listening on stderr; that is no reason to stop.
fn talk(line: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}
