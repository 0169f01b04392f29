//! Errors that end a command: their text and their exit status.
//!
//! All errors end as one line `error: <cause>: <cause of the cause>…` on stderr.

use std::env;
use std::error::Error as StdError;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use adverb_launch::{CannotRun, Interrupt, Usage};

use crate::args::{self, Cli};
use crate::terminal;

/// A signal ended a `--run-forever`, as intended: there is nothing to report.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal")]
pub(crate) struct Stopped;

/// Returns the exit status if a signal has ended the command: 128 + the signal, as shells report it.
pub(crate) fn after_signal() -> Option<ExitCode> {
    Interrupt::exit_status().map(ExitCode::from)
}

/// Returns the exit status for an error; `None` if the reader of standard output closed it.
pub(crate) fn exit_code(error: &anyhow::Error) -> Option<ExitCode> {
    let mut causes = error.chain();
    if causes.any(|cause| cause.downcast_ref().is_some_and(terminal::is_unread)) {
        return None;
    }
    let failed = || match error.downcast_ref::<CannotRun>() {
        Some(program) => ExitCode::from(program.status),
        None => ExitCode::from(if error.is::<Usage>() { 2 } else { 1 }),
    };
    Some(after_signal().unwrap_or_else(failed))
}

/// Formats clap's error as one line that names the value and the remedy.
pub(crate) fn usage_line(error: &clap::Error) -> String {
    let arg = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let value = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let flag = typed(bare(&arg), &value);
    match error.kind() {
        ErrorKind::ValueValidation => {
            let source = error.source();
            let reason =
                source.map_or_else(|| format!("'{value}' cannot be read"), ToString::to_string);
            if reason.contains(&format!("'{value}'")) {
                format!("{flag}: {reason}")
            } else {
                format!("{flag} '{value}': {reason}")
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{flag} needs a value{}", choices(error))
        }
        ErrorKind::InvalidValue => format!("invalid {flag} '{value}'{}", choices(error)),
        ErrorKind::UnknownArgument => {
            let hint = text(error, ContextKind::SuggestedArg)
                .map_or_else(String::new, |arg| format!("did you mean '{arg}'? "));
            format!("unknown argument '{arg}': {hint}{}", see_help(error))
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("unknown command '{name}': {}", commands(error))
        }
        ErrorKind::MissingRequiredArgument => {
            let verb = if flag.contains(", ") { "are" } else { "is" };
            format!("{flag} {verb} missing: {}", see_help(error))
        }
        ErrorKind::ArgumentConflict => {
            let other = text(error, ContextKind::PriorArg).unwrap_or_default();
            if arg == other {
                return format!("{flag} is given twice: give it once");
            }
            format!(
                "{flag} cannot be used with {}: leave out one of them",
                bare(&other)
            )
        }
        _ => flattened(error),
    }
}

/// Returns the names of arguments without their value names: `--op` for `--op <OP>`.
fn bare(args: &str) -> String {
    let names = args.split(", ").map(|arg| arg.split([' ', '=']).next());
    names.flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the name of an option as it was typed with this value. It may be an alias: `--rate` of `--link-rate`.
fn typed(flag: String, value: &str) -> String {
    let top = args::command();
    let all = top.get_subcommands().flat_map(clap::Command::get_arguments);
    let own = all.filter(|arg| {
        arg.get_long()
            .is_some_and(|long| flag == format!("--{long}"))
    });
    let aliases = own.filter_map(clap::Arg::get_all_aliases).flatten();
    let words: Vec<OsString> = env::args_os().collect();
    let is_typed = |name: &String| {
        words
            .windows(2)
            .any(|pair| pair[0] == **name && pair[1] == *value)
            || words.iter().any(|word| *word == *format!("{name}={value}"))
    };
    let mut names = aliases.map(|alias| format!("--{alias}"));
    names.find(is_typed).unwrap_or(flag)
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        other => Some(other.to_string()),
    }
}

/// Joins alternatives: `a, b or c`.
pub(crate) fn one_of<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        few => few.concat(),
    }
}

fn choices(error: &clap::Error) -> String {
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) if !values.is_empty() => {
            format!(": expected {}", one_of(values))
        }
        _ => String::new(),
    }
}

fn see_help(error: &clap::Error) -> String {
    format!("see `{} --help`", command(error).join(" "))
}

/// Suggests the command of a group that has this name (`model calibrate`) or the command most similar to an unknown one, or
/// lists all commands.
fn commands(error: &clap::Error) -> String {
    let top = Cli::command();
    let path = command(error);
    let name = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    let mut below = top.get_subcommands().filter(|_| path.len() == 1);
    if let Some(group) = below.find(|group| group.find_subcommand(&name).is_some()) {
        let group = group.get_name();
        return format!("did you mean `adverb {group} {name}`? see `adverb {group} --help`");
    }
    if let Some(near) = text(error, ContextKind::SuggestedSubcommand) {
        return format!("did you mean {near}? {}", see_help(error));
    }
    let at = path
        .iter()
        .skip(1)
        .try_fold(&top, |at, word| at.find_subcommand(word));
    let shown = at
        .unwrap_or(&top)
        .get_subcommands()
        .filter(|c| !c.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    format!("choose from {}", names.join(", "))
}

/// Returns the words of the command that the error belongs to: `adverb model`.
fn command(error: &clap::Error) -> Vec<String> {
    let usage = text(error, ContextKind::Usage).unwrap_or_default();
    let words = usage
        .split_whitespace()
        .skip_while(|word| *word != "adverb");
    let words = words.take_while(|word| !word.starts_with(['-', '[', '<']));
    let words: Vec<String> = words.map(str::to_owned).collect();
    if words.is_empty() {
        vec!["adverb".to_owned()]
    } else {
        words
    }
}

/// Returns clap's own message without usage and tips.
fn flattened(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_closed_standard_output_is_not_an_error_but_another_broken_pipe_is() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let unread = anyhow::Error::from(terminal::unwritten(&broken())).context("out");
        assert!(exit_code(&unread).is_none());
        let other = anyhow::Error::from(broken()).context("cannot write to the server");
        assert_eq!(exit_code(&other), Some(ExitCode::from(1)));
    }
}
