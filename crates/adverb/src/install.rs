//! Shell completions and manual pages, generated from the definitions of the arguments.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args;
use crate::terminal;

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let cli = args::command();
    let mut documented = Command::new("adverb")
        .version(adverb_measure::VERSION)
        .args(cli.get_arguments().cloned())
        .subcommands(cli.get_subcommands().filter(|c| !c.is_hide_set()).cloned());
    // Write to memory first: the generator panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut documented, "adverb", &mut script);
    Ok(terminal::stdout().write_all(&script)?)
}

/// Writes a manual page for the program and for each of its commands.
pub(crate) fn manual(dir: &Path) -> anyhow::Result<()> {
    let mut cli = args::command();
    cli.build();
    write_pages(&cli, dir)
}

fn write_pages(command: &Command, dir: &Path) -> anyhow::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    // Tables and examples in the help are laid out by hand; filling would join their lines.
    let text = String::from_utf8(text)?
        .replace(".SH DESCRIPTION\n", ".SH DESCRIPTION\n.nf\n")
        .replace(".SH EXTRA\n", ".SH NOTES\n.nf\n");
    let path = dir.join(page.get_filename());
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let documented = command.get_subcommands().filter(|c| !c.is_hide_set());
    documented.into_iter().try_for_each(|c| write_pages(c, dir))
}
