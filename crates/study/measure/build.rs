//! Passes the revision of the source to the crate, if it is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(dir) = git(&["rev-parse", "--absolute-git-dir"]) {
        // A commit appends to the log of HEAD; a checkout does, too.
        for name in ["HEAD", "logs/HEAD"] {
            let path = Path::new(&dir).join(name);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    if let Some(revision) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=ADVERB_REVISION={revision}");
        version = format!("{version} ({revision})");
    }
    println!("cargo::rustc-env=ADVERB_VERSION={version}");
}

/// Returns what git answers; `None` outside a repository or without git.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
