//! `adverb run` under and around other programs that start programs: debuggers, tracers, launchers, shells.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Ended, Place, not_run};

/// A program that starts another with the words after its own: its name, its words, and its package.
const WRAPPERS: [(&str, &[&str], &str); 8] = [
    ("env", &["MINE=1"], "coreutils"),
    ("timeout", &["60"], "coreutils"),
    ("setsid", &["--wait"], "util-linux"),
    ("sh", &["-c", "\"$@\"", "sh"], "dash"),
    ("strace", &["-f", "-o", "/dev/null"], "strace"),
    (
        "gdb",
        &[
            "-q",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-ex",
            "run",
            "--args",
        ],
        "gdb",
    ),
    ("valgrind", &["-q", "--error-exitcode=9"], "valgrind"),
    (
        "mpirun",
        &["--allow-run-as-root", "--oversubscribe", "-n", "2"],
        "openmpi-bin",
    ),
];

fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = files.find(|file| file.is_file());
    if found.is_none() {
        let missing = format!("{program} is missing (package {package})");
        not_run(&format!("adverb run with {program}"), &missing);
    }
    found
}

/// Asserts that the program opened the device.
#[track_caller]
fn assert_opened(ended: &Ended, how: &str) {
    let is_open = ended.out.contains("PORT_ACTIVE");
    assert!(
        ended.code == Some(0) && is_open,
        "{how}: {:?}\n{}\n{}",
        ended.code,
        ended.out,
        ended.talk
    );
}

#[test]
fn programs_get_the_device_through_other_programs_that_start_them() {
    let Some(devinfo) = installed("ibv_devinfo", "ibverbs-utils") else {
        return;
    };
    let run = "run --address 127.0.0.182 --";
    for (name, words, package) in WRAPPERS {
        let Some(wrapper) = installed(name, package) else {
            continue;
        };
        let place = Place::new();
        let mut around = place.command(run);
        around.arg(&wrapper).args(words).arg(&devinfo);
        let ended = around.output().unwrap().into();
        assert_opened(&ended, &format!("adverb run {name} ibv_devinfo"));

        let adverb = place.command("");
        let mut under = Command::new(&wrapper);
        under.args(words).arg(adverb.get_program());
        under.args(run.split(' ')).arg(&devinfo);
        let variables = adverb
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        under.envs(variables).stdin(Stdio::null());
        let ended = under.output().unwrap().into();
        assert_opened(&ended, &format!("{name} adverb run ibv_devinfo"));
    }
}

#[test]
fn a_script_gets_the_device_and_its_input_and_output_are_untouched() {
    let Some(_) = installed("ibv_devices", "ibverbs-utils") else {
        return;
    };
    let place = Place::new();
    let script = place.path("script");
    std::fs::write(&script, "#!/bin/sh\ncat\nibv_devices >&2\nkill -USR1 $$\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command("run -- ./script");
    let input: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let given = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&given));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.stdout == input, "the output is not the input");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("adverb0"), "{errors}");
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(libc::SIGUSR1));
}
