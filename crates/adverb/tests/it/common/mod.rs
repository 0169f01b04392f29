//! The real binary, in a place of its own: its shared memory and its folders are a test's.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod server;
pub(crate) mod wire;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use tempfile::TempDir;

/// A folder for files and one for the device's shared memory, both empty at the start.
pub(crate) struct Place {
    dir: TempDir,
    shm: TempDir,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) talk: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let shm = tempfile::Builder::new()
            .prefix("adverb-cli-test-")
            .tempdir_in("/dev/shm");
        Place {
            dir: tempfile::tempdir().unwrap(),
            shm: shm.unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::cargo_bin("adverb").unwrap();
        command
            .args(line.split_whitespace())
            .current_dir(self.dir.path())
            .env("ADVERB_SHM", self.shm.path())
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ended {
        self.command(line).output().unwrap().into()
    }

    pub(crate) fn spawn(&self, line: &str) -> Child {
        self.command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs `adverb` with a file system of `size` for shared memory that nothing else sees; `None`, said on
    /// stderr, where that cannot be had.
    pub(crate) fn run_on_tmpfs(&self, size: &str, line: &str) -> Option<Ended> {
        self.run_after(
            &format!("mount -t tmpfs -o size={size} tmpfs \"$ADVERB_SHM\""),
            line,
        )
    }

    /// Runs `adverb` where the kernel reports this much available memory; `None`, said on stderr, where that cannot
    /// be had.
    pub(crate) fn run_with_available_kib(&self, kib: u64, line: &str) -> Option<Ended> {
        let path = self.path("meminfo");
        std::fs::write(&path, format!("MemAvailable: {kib} kB\n")).unwrap();
        self.run_after(
            &format!("mount --bind '{}' /proc/meminfo", path.display()),
            line,
        )
    }

    /// Runs `adverb` after a mount that nothing else sees.
    pub(crate) fn run_after(&self, mount: &str, line: &str) -> Option<Ended> {
        let adverb = self.command(line);
        let script = format!("{mount} || exit 77; exec \"$@\"");
        let privileges: &[&str] = match rustix::process::geteuid().is_root() {
            true => &["--mount"],
            false => &["--user", "--map-root-user", "--mount"],
        };
        let mut command = Command::new("unshare");
        command
            .args(privileges)
            .args(["sh", "-c", &script, "sh"])
            .arg(adverb.get_program())
            .args(adverb.get_args())
            .current_dir(self.dir.path())
            .env("ADVERB_SHM", self.shm());
        match command.output() {
            Ok(output) if output.status.code() != Some(77) => Some(output.into()),
            refused => {
                not_run(mount, &format!("no private mount: {refused:?}"));
                None
            }
        }
    }

    /// Runs `adverb` with a limit of the shell, such as `-n 20`.
    pub(crate) fn run_with_limit(&self, limit: &str, line: &str) -> Ended {
        let adverb = self.command(line);
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
            .arg(adverb.get_program())
            .args(adverb.get_args())
            .current_dir(self.dir.path())
            .env("ADVERB_SHM", self.shm())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end_of(command.spawn().unwrap())
    }

    /// What is in the device's shared memory.
    pub(crate) fn shm_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![self.shm.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files
    }

    pub(crate) fn shm(&self) -> &Path {
        self.shm.path()
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            talk: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// The only record of a command that ended well, or the first one.
    #[track_caller]
    pub(crate) fn record(self) -> Value {
        self.ok().json().remove(0)
    }

    /// It ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.talk);
        self
    }

    /// It ended with this status, one line on stderr and nothing on stdout; gives the line.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.talk);
        assert_eq!(self.out, "");
        assert_eq!(self.talk.lines().count(), 1, "{}", self.talk);
        self.talk.trim_end()
    }

    /// It ended with this status and one error, the last line on stderr; gives the line.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.talk);
        let is_error = |line: &&str| line.starts_with("error: ");
        assert_eq!(
            self.talk.lines().filter(is_error).count(),
            1,
            "{}",
            self.talk
        );
        self.talk
            .lines()
            .last()
            .filter(is_error)
            .expect("the error is the last line")
    }

    /// stderr, without warnings about other tests that run at the same time.
    pub(crate) fn talk_of_itself(&self) -> String {
        let lines = self.talk.lines();
        let own = lines.filter(|line| !line.starts_with("warning: other programs used "));
        own.flat_map(|line| [line, "\n"]).collect()
    }

    /// stdout as one JSON object a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let lines = self.out.lines();
        lines.map(|l| serde_json::from_str(l).unwrap()).collect()
    }
}

/// Says, past the harness, that a test could not run here; `make test` repeats it at the end.
pub(crate) fn not_run(test: &str, reason: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {test}: {reason}");
}

/// The whole records of a folder; a line that is being written does not count.
pub(crate) fn records(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("results.jsonl")).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Waits until `done`, a good while at most.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a process, which has a good while, and reads what it prints.
#[track_caller]
pub(crate) fn end_of(child: Child) -> Ended {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = ended.recv_timeout(Duration::from_secs(60));
    output.expect("no end of the process").unwrap().into()
}

/// CPU time in clock ticks.
pub(crate) struct Ticks {
    /// Of a process itself.
    pub(crate) own: u64,
    /// Of its children that it has waited for.
    pub(crate) children: u64,
}

/// CPU time of a process; of one that has ended, too, until it is waited for.
pub(crate) fn cpu_time_of(pid: u32) -> Ticks {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name, which may hold anything, ends at the last bracket; the state is next (proc(5)).
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let times: Vec<u64> = fields
        .skip(11)
        .take(4)
        .map(|t| t.parse().unwrap())
        .collect();
    Ticks {
        own: times[0] + times[1],
        children: times[2] + times[3],
    }
}

/// Ids of the running sides of `parent`: (active, passive).
pub(crate) fn sides_of(parent: u32) -> Option<(u32, u32)> {
    let children =
        std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut found = (None, None);
    for pid in children.split_whitespace().filter_map(|p| p.parse().ok()) {
        let pid: u32 = pid;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        match line.split(|b| *b == 0).nth(2) {
            Some(b"active") => found.0 = Some(pid),
            Some(b"passive") => found.1 = Some(pid),
            _ => {}
        }
    }
    Some((found.0?, found.1?))
}

/// Sends a signal to one process, which is there.
#[track_caller]
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    signal_if_there(pid, signal).unwrap();
}

/// Sends a signal to one process, which may have ended.
pub(crate) fn signal_if_there(
    pid: u32,
    signal: rustix::process::Signal,
) -> Result<(), rustix::io::Errno> {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, signal)
}
