//! The command lines of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print a script that completes the arguments of adverb in a shell
///
/// `make install` puts these scripts where the shells look for them. By hand:
///
///   adverb completions bash >~/.local/share/bash-completion/completions/adverb
///   adverb completions zsh >DIR/_adverb, where DIR is in $fpath
///   adverb completions fish >~/.config/fish/completions/adverb.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    #[arg(hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// Write the manual pages of adverb and its commands to a folder
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// An existing folder, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
