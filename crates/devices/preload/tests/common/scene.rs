//! Pairs of programs over librdmacm's interface: at one address, where they share memory, or at two, between which they
//! use UDP.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{installed, library, over_adverb};

const A_MINUTE: Duration = Duration::from_secs(60);

/// Service ID of the default port of many programs.
pub(crate) const TCP_7471: &str = ".s1061d2f";

/// The addresses of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    One,
    Two,
}

/// A folder for shared memory, and addresses that no other process uses.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) processes: Vec<Process>,
    /// Libraries that are preloaded, too.
    pub(crate) others: &'static str,
    /// Environment variables of all processes.
    pub(crate) variables: &'static [(&'static str, &'static str)],
}

pub(crate) struct Process {
    pub(crate) child: Child,
    log: PathBuf,
    command: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub(crate) fn told(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }
}

impl Scene {
    /// `number` tells the scenes of this program apart.
    pub(crate) fn new(number: u8, addresses: Addresses) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = |last: u8| Ipv4Addr::new(127, 50 + number, high, low & 0xfe | last);
        let server = address(0).to_string();
        let client = match addresses {
            Addresses::One => server.clone(),
            Addresses::Two => address(1).to_string(),
        };
        Scene {
            folder: tempfile::tempdir().unwrap(),
            server,
            client,
            processes: Vec::new(),
            others: "",
            variables: &[],
        }
    }

    pub(crate) fn start(&mut self, program: &Path, (address, arguments): (&str, &str)) -> usize {
        let log = (self.folder.path()).join(format!("{}.log", self.processes.len()));
        let file = File::create(&log).unwrap();
        let shared = self.folder.path().join("shared");
        std::fs::create_dir_all(&shared).unwrap();
        let arguments = arguments.replace("SERVER", &self.server);
        let arguments = arguments.replace("CLIENT", &self.client);
        let mut command: Command = over_adverb(program, &shared);
        command
            .args(arguments.split_whitespace())
            .env("ADVERB_RUN_ADDRESS", address)
            .env("ADVERB_EXPLAIN", "1")
            .env(
                "LD_PRELOAD",
                format!("{}:{}", library().display(), self.others),
            )
            .envs(self.variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(file.try_clone().unwrap())
            .stdout(file);
        let child = command.spawn().unwrap();
        let command = format!("{} {arguments}", program.display());
        self.processes.push(Process {
            child,
            log,
            command,
        });
        self.processes.len() - 1
    }

    /// Starts a server and waits until it listens for a service.
    pub(crate) fn serve(&mut self, program: &Path, arguments: &str, service: &str) -> usize {
        let address = self.server.clone();
        let server = self.start(program, (&address, arguments));
        let shared = self.folder.path().join("shared");
        self.until("it listens", |scene| {
            assert!(
                scene.processes[server].has_ended().is_none(),
                "{}",
                scene.story()
            );
            let folders = std::fs::read_dir(&shared).unwrap().flatten();
            let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok());
            let mut names = files.flatten().flatten().map(|file| file.file_name());
            names.any(|name| name.to_string_lossy().ends_with(service))
        });
        server
    }

    pub(crate) fn client(&mut self, program: &Path, arguments: &str) -> usize {
        let address = self.client.clone();
        self.start(program, (&address, arguments))
    }

    /// Waits until something holds; fails after a minute.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + A_MINUTE;
        while !holds(self) {
            assert!(
                Instant::now() < end,
                "waited until {what}\n{}",
                self.story()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait(&mut self, process: usize) -> ExitStatus {
        let mut status = None;
        self.until("a process ends", |scene| {
            status = scene.processes[process].has_ended();
            status.is_some()
        });
        status.unwrap()
    }

    pub(crate) fn succeeds(&mut self, process: usize) {
        let status = self.wait(process);
        assert!(status.success(), "{process}: {status}\n{}", self.story());
    }

    /// What all processes printed.
    pub(crate) fn story(&self) -> String {
        let parts = self.processes.iter().enumerate();
        let parts = parts.map(|(n, p)| format!("--- {n}: {}\n{}", p.command, p.told()));
        parts.collect()
    }

    /// No process left files behind.
    pub(crate) fn check_clean(&self) {
        let left: Vec<_> = std::fs::read_dir(self.folder.path().join("shared"))
            .unwrap()
            .collect();
        assert!(left.is_empty(), "{left:?}\n{}", self.story());
    }
}

/// Runs a server and a client, which both succeed and leave nothing behind.
pub(crate) fn pair(
    (number, addresses): (u8, Addresses),
    (package, server, client): (&str, &str, &str),
    service: &str,
) -> Option<[String; 2]> {
    let (server, server_arguments) = server.split_once(' ').unwrap_or((server, ""));
    let (client, client_arguments) = client.split_once(' ').unwrap_or((client, ""));
    let (server, client) = (installed(server, package)?, installed(client, package)?);
    let mut scene = Scene::new(number, addresses);
    let server = scene.serve(&server, server_arguments, service);
    let client = scene.client(&client, client_arguments);
    scene.succeeds(client);
    scene.succeeds(server);
    scene.check_clean();
    Some([server, client].map(|n| scene.processes[n].told()))
}
