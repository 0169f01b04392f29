//! `adverb report`: writes the report of a folder anew.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::args::ReportArgs;
use crate::folder;
use crate::terminal;

/// Renders, says where, and shows it where asked.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let rendered = folder::render(&args.dir, false)?;
    for warning in &rendered.warnings {
        terminal::warn(warning);
    }
    writeln!(anstream::stdout(), "{}", rendered.path.display())?;
    if args.open {
        show(&rendered.path)?;
    }
    Ok(())
}

fn show(path: &Path) -> anyhow::Result<()> {
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
