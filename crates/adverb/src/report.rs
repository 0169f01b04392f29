//! `adverb report`: rewrites the report of a folder.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use adverb_launch::Usage;
use adverb_measure::{Ending, render, render_together};
use anyhow::{Context, bail};

use crate::args::ReportArgs;
use crate::terminal;

/// Writes the report, prints its path, and opens it if requested.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let rendered = match (&args.dirs[..], &args.out) {
        ([dir], None) => render(dir, Ending::Whole)?,
        (dirs, Some(out)) => render_together(dirs, out)?,
        (dirs, None) => {
            return Err(Usage(format!(
                "one report of {} folders: name the file to write with --out",
                dirs.len()
            ))
            .into());
        }
    };
    for warning in &rendered.warnings {
        terminal::warn(warning);
    }
    writeln!(terminal::stdout(), "{}", rendered.path.display())?;
    if args.open {
        show(&rendered.path)?;
    }
    Ok(())
}

/// Opens a report in the browser.
pub(crate) fn show(path: &Path) -> anyhow::Result<()> {
    let status = Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| {
            format!(
                "cannot start xdg-open (install xdg-utils, or open {} yourself)",
                path.display()
            )
        })?;
    if !status.success() {
        bail!(
            "xdg-open found no browser: open {} yourself",
            path.display()
        );
    }
    Ok(())
}
