//! `adverb run` and `adverb env`: give an unmodified program the user-space device, by a preloaded library.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use adverb_launch::{CannotRun, UnmodifiedProgram, Variables};

use crate::args::{EnvArgs, NicArgs, RunArgs};
use crate::terminal;

// The library as a section that is not loaded into memory. Cargo builds a dependency's cdylib before the program
// that is compiled here, to this path.
#[cfg(embed_preload)]
#[allow(unsafe_code)]
mod embedded {
    std::arch::global_asm!(
        ".pushsection .adverb.preload,\"\",@progbits",
        concat!(".incbin \"", env!("ADVERB_PRELOAD_LIBRARY"), "\""),
        ".popsection"
    );
}

/// `adverb run`: replaces this process by the program. Returns only on an error.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<std::convert::Infallible> {
    let (name, arguments) = args.program.split_first().expect("PROGRAM is required");
    let program = UnmodifiedProgram::find(name, std::env::var_os("PATH"))?;
    if let Some(warning) = &program.warning {
        terminal::warn(warning);
    }
    let variables = variables(&args.nic)?;
    let mut command = Command::new(&program.path);
    command.arg0(name).args(arguments).envs(variables.all());
    let error = command.exec();
    Err(CannotRun::not_started(&program.path, &error).into())
}

/// `adverb env`: prints the variables as commands of a shell.
pub(crate) fn env(args: &EnvArgs) -> anyhow::Result<()> {
    let variables = variables(&args.nic)?;
    let mut out = terminal::stdout();
    for (name, value) in variables.all() {
        out.write_all(format!("export {name}=").as_bytes())?;
        out.write_all(quoted(value).as_bytes())?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

fn variables(nic: &NicArgs) -> anyhow::Result<Variables> {
    Variables::of(&nic.settings()?, nic.pcap.as_deref())
}

/// Returns a word of the POSIX shell with this value.
fn quoted(value: &OsStr) -> OsString {
    let mut word = vec![b'\''];
    for &byte in value.as_bytes() {
        match byte {
            b'\'' => word.extend(br"'\''"),
            _ => word.push(byte),
        }
    }
    word.push(b'\'');
    OsStr::from_bytes(&word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_values_as_they_were() {
        for value in ["", "a b", "it's", "$HOME `id` \"x\" \\", "line\nline"] {
            let mut script = OsString::from("printf %s ");
            script.push(quoted(OsStr::new(value)));
            let shell = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), value);
        }
    }
}
