//! Tells the program which revision of the source it is built from, where that is known.

use std::path::Path;
use std::process::Command;

fn main() {
    name_the_preload_library();
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

/// Tells optimised builds where Cargo has built the library that `adverb run` preloads, so that they contain it. Others
/// find it next to the program; in them, incremental compilation would keep an old one.
fn name_the_preload_library() {
    println!("cargo::rustc-check-cfg=cfg(embed_preload)");
    let variable = |name| std::env::var(name).expect("Cargo sets it");
    if variable("PROFILE") == "release" {
        let out = variable("OUT_DIR");
        println!("cargo::rustc-cfg=embed_preload");
        // OUT_DIR is <profile>/build/<package>/out.
        println!(
            "cargo::rustc-env=ADVERB_PRELOAD_LIBRARY={out}/../../../deps/libadverb_preload.so"
        );
    }
}

/// What git answers; nothing outside a repository or without git.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
