//! Starts unmodified programs over the library.

pub(crate) mod namespaces;
pub(crate) mod scene;

use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Returns the library that cargo built next to the test program.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test program");
    let library = test.with_file_name("libadverb_preload.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Returns the command that runs `program` over the library, with shared memory of its own in `folder`.
pub(crate) fn over_adverb(program: impl AsRef<Path>, folder: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env("LD_PRELOAD", library())
        .env("ADVERB_SHM", folder);
    command
}

/// Returns the path of an installed program; `None` after reporting that it is missing from `package`.
pub(crate) fn installed(program: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        not_run(
            &format!("{program} over the user-space NIC"),
            &format!("{program} is missing (package {package})"),
        );
    }
    found
}

/// Reports on stderr, past the test harness, what did not run.
pub(crate) fn not_run(what: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "\nNOT RUN: {what}: {reason}");
}

/// Returns what a program printed to stdout. It has to succeed, and print nothing to stderr.
pub(crate) fn printed(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && errors.is_empty(),
        "{}:\n{text}{errors}",
        output.status
    );
    text.into_owned()
}

/// Compiles a C program of the tests' folder into `folder`; `None` after reporting what this machine lacks for it.
pub(crate) fn compiled(source: &str, folder: &Path) -> Option<PathBuf> {
    let program = folder.join(source.trim_end_matches(".c"));
    compiled_to(source, program, "-O1 -pthread -libverbs -lrdmacm")
}

/// The same, to this file and with these arguments.
pub(crate) fn compiled_to(source: &str, program: PathBuf, arguments: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    let what = format!("{} over the user-space NIC", source.display());
    let built = Command::new("cc")
        .args(["-Wall", "-Werror"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(arguments.split_whitespace())
        .output();
    let output = match built {
        Ok(output) => output,
        Err(error) => {
            not_run(&what, &format!("cc: {error} (package gcc)"));
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("No such file or directory") || errors.contains("cannot find -l") {
        let missing = errors.lines().next().unwrap_or_default();
        not_run(
            &what,
            &format!("{missing} (packages libibverbs-dev, librdmacm-dev)"),
        );
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(program)
}

/// How the queue pairs of a test reach each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathTo {
    SharedMemory,
    Udp,
}

impl PathTo {
    /// Returns the value of `ADVERB_RUN_FAULTS`. Faults that never happen make all messages pass the UDP port.
    pub(crate) fn faults(self) -> &'static str {
        match self {
            PathTo::SharedMemory => "",
            PathTo::Udp => r#"{"loss":0,"duplicate":0,"reorder":0,"corrupt":0,"seed":1}"#,
        }
    }
}

/// Compiles and runs a C program of the tests' folder over the device at `address`; returns what it explained.
pub(crate) fn walked(source: &str, path: PathTo, address: &str) -> Option<String> {
    walked_with(source, path, address, &[])
}

/// The same, with further environment variables.
pub(crate) fn walked_with(
    source: &str,
    path: PathTo,
    address: &str,
    variables: &[(&str, &str)],
) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(source, folder.path())?;
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let output = over_adverb(program, &shared)
        .env("ADVERB_RUN_FAULTS", path.faults())
        .env("ADVERB_RUN_ADDRESS", address)
        .env("ADVERB_EXPLAIN", "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_empty(&shared);
    Some(errors.into_owned())
}

/// Asserts that each line was explained once.
#[track_caller]
pub(crate) fn assert_explained(explained: &str, lines: &[&str]) {
    for line in lines {
        let count = explained.lines().filter(|found| found == line).count();
        assert_eq!(count, 1, "{line}\n{explained}");
    }
}

#[track_caller]
pub(crate) fn assert_empty(folder: &Path) {
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, 0, "files remain");
}

/// A port number and the server that listens on it; killed if the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a ping-pong program as server and client on this host; returns what each printed.
pub(crate) fn exchanged(
    program: &Path,
    arguments: &[&str],
    address: &str,
    path: PathTo,
) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let (mut server, port, log) = listening(folder.path(), |port, log| {
        let mut command = over_adverb(program, &shared);
        let errors = log.try_clone().unwrap();
        command
            .env("ADVERB_RUN_FAULTS", path.faults())
            .env("ADVERB_RUN_ADDRESS", address);
        command
            .args(["-p", &port.to_string()])
            .args(arguments)
            .stdout(log)
            .stderr(errors);
        command
    });
    let mut client = over_adverb(program, &shared);
    client
        .env("ADVERB_RUN_FAULTS", path.faults())
        .env("ADVERB_RUN_ADDRESS", address);
    client
        .args(["-p", &port.to_string()])
        .args(arguments)
        .arg(address);
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let output = within_a_minute(&mut client, &told);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "client: {}\n{text}{errors}\nserver:\n{}",
        output.status,
        told()
    );
    let status = ended(&mut server.0, &told);
    assert!(
        status.success(),
        "server: {status}\n{}\nclient:\n{text}{errors}",
        told()
    );
    assert_empty(&shared);
    [told(), text]
}

/// Starts a server on a TCP port that is free, and waits until it listens; returns the port, and the file that it
/// prints to.
fn listening(folder: &Path, command: impl Fn(u16, File) -> Command) -> (Server, u16, PathBuf) {
    // Below the range from which the kernel takes the ports of outgoing connections.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let log = folder.join("server.log");
    let first = std::process::id() as u16;
    for _ in 0..100 {
        let port = 12_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("0.0.0.0", port)).is_err() {
            continue;
        }
        let file = File::create(&log).unwrap();
        let mut server = Server(command(port, file).spawn().expect("start the server"));
        let began = Instant::now();
        while !is_listening(port) {
            if server.0.try_wait().unwrap().is_some() {
                break;
            }
            let told = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(
                began.elapsed() < A_MINUTE,
                "the server does not listen on port {port}:\n{told}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        if server.0.try_wait().unwrap().is_none() {
            return (server, port, log);
        }
        let told = std::fs::read_to_string(&log).unwrap_or_default();
        // Another program has taken the port.
        assert!(
            told.contains("Couldn't listen"),
            "the server ended:\n{told}"
        );
    }
    panic!("none of 100 ports is free");
}

/// Whether a program of this network namespace listens on a TCP port.
pub(crate) fn is_listening(port: u16) -> bool {
    has_listener(Path::new("/proc/net"), port)
}

/// Whether a program of the network namespace with these tables listens on a TCP port.
pub(crate) fn has_listener(tables: &Path, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(tables.join(table)));
    let listens = |row: &str| {
        let mut words = row.split_whitespace().skip(1);
        let (local, _, state) = (words.next(), words.next(), words.next());
        state == Some("0A") && local.is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
    };
    tables
        .iter()
        .flatten()
        .any(|table| table.lines().any(listens))
}

const A_MINUTE: Duration = Duration::from_secs(60);

/// Runs a command to its end, and gives up after a minute with what `told` returns.
fn within_a_minute(command: &mut Command, told: &dyn Fn() -> String) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the client");
    ended(&mut child, told);
    child.wait_with_output().unwrap()
}

pub(crate) fn ended(child: &mut Child, told: &dyn Fn() -> String) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > A_MINUTE {
            let _ = child.kill();
            panic!(
                "process {} did not end within a minute; the server:\n{}",
                child.id(),
                told()
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
