//! MPI libraries and libfabric, unmodified: ranks and peers that reach each other through shared memory and over UDP, within
//! a network namespace and between two.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    PathTo, assert_empty, ended, has_listener, installed, library, namespaces::Wire, not_run,
};
use tempfile::TempDir;

/// An MPI library: how its programs are compiled and started.
#[derive(Clone, Copy)]
struct Library {
    compiler: (&'static str, &'static str),
    launcher: (&'static str, &'static str),
    /// Arguments and environment variables of a job.
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// Arguments of a job on two hosts, which AGENT starts processes on.
    hosts: &'static str,
}

const OPEN_MPI: Library = Library {
    compiler: ("mpicc.openmpi", "libopenmpi-dev"),
    launcher: ("mpirun.openmpi", "openmpi-bin"),
    arguments: &["--oversubscribe"],
    variables: &[
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_btl", "self"),
    ],
    hosts: "--mca plm_rsh_agent AGENT --host HOSTS",
};

const MPICH: Library = Library {
    compiler: ("mpicc.mpich", "libmpich-dev"),
    launcher: ("mpirun.mpich", "mpich"),
    arguments: &[],
    variables: &[],
    hosts: "-launcher ssh -launcher-exec AGENT -hosts HOSTS",
};

/// Open MPI over libfabric's verbs provider, whose connected endpoints ofi_rxm makes connectionless.
const RXM: &[(&str, &str)] = &[
    ("OMPI_MCA_osc", "^ucx"),
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "verbs;ofi_rxm"),
    ("FI_PROVIDER", "verbs;ofi_rxm"),
];
/// Open MPI's own one-sided operations over UCX's messages do not end between two hosts, over UCX's TCP either.
const UCX: &[(&str, &str)] = &[
    ("OMPI_MCA_osc", "ucx"),
    ("OMPI_MCA_pml", "ucx"),
    ("OMPI_MCA_pml_ucx_tls", "any"),
    ("OMPI_MCA_pml_ucx_devices", "any"),
    ("UCX_TLS", "rc,ud,self"),
    ("UCX_NET_DEVICES", "adverb0:1"),
];
/// Two hosts: network namespaces. libfabric and Open MPI leave out loopback interfaces, so the devices are at others.
struct Lab {
    folder: TempDir,
    wire: Wire,
}

impl Lab {
    /// `None` after reporting why there are no network namespaces.
    fn new(what: &str, test: &str) -> Option<Self> {
        match Wire::new(test) {
            Err(reason) => {
                not_run(what, &reason);
                None
            }
            Ok(wire) => {
                let folder = tempfile::tempdir().unwrap();
                fs::create_dir(folder.path().join("shared")).unwrap();
                Some(Lab { folder, wire })
            }
        }
    }

    fn shared(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// Returns the command that runs a program on a host.
    fn at(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.wire.names[host]])
            .arg(program);
        command
    }

    /// Returns the command that runs a program over the device of a host.
    fn on(&self, host: usize, (program, path): (&Path, PathTo)) -> Command {
        let mut command = self.at(host, program);
        command
            .env("LD_PRELOAD", library())
            .env("ADVERB_SHM", self.shared())
            .env("ADVERB_RUN_ADDRESS", Wire::ADDRESSES[host])
            .env("ADVERB_RUN_FAULTS", path.faults());
        command
    }

    /// Writes a script, and returns its path.
    fn script(&self, name: &str, text: &str) -> String {
        let script = self.folder.path().join(name);
        fs::write(&script, format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.display().to_string()
    }

    /// Writes a remote shell, which starts commands on both hosts: its arguments are the address of a host and a command,
    /// perhaps after an option.
    fn agent(&self) -> String {
        let [a, b] = &self.wire.names;
        let [at_a, at_b] = Wire::ADDRESSES;
        let text = format!(
            "[ \"$1\" = -x ] && shift\n\
             case $1 in {at_a}) host={a} ;; {at_b}) host={b} ;; *) exit 1 ;; esac\n\
             shift\nexec ip netns exec $host sh -c \"$*\"\n"
        );
        self.script("agent", &text)
    }

    /// Writes a script that starts a program over the device of the host on which it runs.
    fn rank(&self, program: &Path, more: &[(&str, &str)]) -> String {
        let [at_a, at_b] = Wire::ADDRESSES;
        let more = more.iter().map(|(key, value)| format!("'{key}={value}' "));
        let text = format!(
            "case $(ip -o address) in *{at_a}/*) at={at_a} ;; *) at={at_b} ;; esac\n\
             exec env LD_PRELOAD={} ADVERB_SHM={} ADVERB_RUN_ADDRESS=$at {}{}\n",
            library().display(),
            self.shared().display(),
            more.collect::<String>(),
            program.display()
        );
        self.script("rank", &text)
    }

    /// Runs a command, which has to succeed and to leave no files behind; returns what it printed.
    fn printed(&self, command: Command) -> String {
        let told = self.succeeds(command);
        assert_empty(&self.shared());
        told
    }

    /// Runs a command, which has to succeed; returns what it printed.
    fn succeeds(&self, mut command: Command) -> String {
        let log = self.folder.path().join("log");
        let file = fs::File::create(&log).unwrap();
        let errors = file.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let mut child = command.spawn().unwrap();
        let told = || fs::read_to_string(&log).unwrap_or_default();
        let status = ended(&mut child, &told);
        assert!(status.success(), "{command:?}: {status}\n{}", told());
        told()
    }
}

/// Compiles mpi.c; returns it with the launcher. `None` after reporting what is missing.
fn compiled(library: Library, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let compiler = installed(library.compiler.0, library.compiler.1)?;
    let launcher = installed(library.launcher.0, library.launcher.1)?;
    let program = folder.join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi.c");
    let status = Command::new(compiler)
        .args(["-Wall", "-Werror", "-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(status.unwrap().success());
    Some((launcher, program))
}

/// The hosts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hosts {
    One,
    Two,
}

/// Runs a job of some ranks.
fn job(
    name: &str,
    (library, more): (Library, &[(&str, &str)]),
    (ranks, hosts, path): (usize, Hosts, PathTo),
) {
    let what = format!("{} over the user-space NIC", library.launcher.0);
    let Some(lab) = Lab::new(&what, name) else {
        return;
    };
    let Some((launcher, program)) = compiled(library, lab.folder.path()) else {
        return;
    };
    let mut command = match hosts {
        Hosts::One => lab.on(0, (&launcher, path)),
        Hosts::Two => lab.at(0, &launcher),
    };
    let count = ranks.to_string();
    command.args(library.arguments);
    command.envs(library.variables.iter().copied());
    command.envs(more.iter().copied());
    match hosts {
        Hosts::One => command.args(["-n", &count]).arg(program),
        Hosts::Two => {
            let (agent, rank) = (lab.agent(), lab.rank(&program, more));
            let words = library.hosts.split(' ').map(|word| match word {
                "AGENT" => agent.clone(),
                "HOSTS" => Wire::ADDRESSES.join(","),
                word => word.to_owned(),
            });
            command.args(words).args(["-n", &count]).arg(rank)
        }
    };
    let text = lab.printed(command);
    assert!(
        text.contains(&format!("{ranks} ranks: all right")),
        "{text}"
    );
}

#[test]
fn open_mpi_over_libfabric_connects_ranks_to_each_other_at_once() {
    let library = (OPEN_MPI, RXM);
    job("rxm", library, (4, Hosts::One, PathTo::SharedMemory));
    job("rxm", library, (2, Hosts::One, PathTo::Udp));
    job("rxm", library, (2, Hosts::Two, PathTo::SharedMemory));
}

#[test]
fn open_mpi_over_ucx() {
    let library = (OPEN_MPI, UCX);
    job("ucx", library, (4, Hosts::One, PathTo::SharedMemory));
    job("ucx", library, (2, Hosts::One, PathTo::Udp));
    job("ucx", library, (2, Hosts::Two, PathTo::SharedMemory));
}

#[test]
fn mpich_over_ucx() {
    let library = (MPICH, UCX);
    job("mpich", library, (4, Hosts::One, PathTo::SharedMemory));
    job("mpich", library, (2, Hosts::One, PathTo::Udp));
    job("mpich", library, (2, Hosts::Two, PathTo::SharedMemory));
}

/// TCP port of fi_pingpong.
const PINGPONG: u16 = 47592;

/// Waits until a process, or its network namespace, listens on a TCP port.
fn wait_for_listener(process: &mut Child, port: u16) {
    let tables = PathBuf::from(format!("/proc/{}/net", process.id()));
    let end = Instant::now() + Duration::from_secs(60);
    while !has_listener(&tables, port) {
        assert!(process.try_wait().unwrap().is_none(), "it has ended");
        assert!(Instant::now() < end, "it does not listen within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs libfabric's ping-pong over a provider, several times: the server ends although its peer ends right after its last
/// message.
fn pingpong(provider: &str, kind: &str, times: u32) {
    let what = format!("fi_pingpong over {provider} on the user-space NIC");
    let Some(program) = installed("fi_pingpong", "libfabric-bin") else {
        return;
    };
    let Some(lab) = Lab::new(&what, kind) else {
        return;
    };
    for (client, path) in [
        (0, PathTo::SharedMemory),
        (0, PathTo::Udp),
        (1, PathTo::SharedMemory),
    ] {
        for _ in 0..times {
            let mut server = lab.on(0, (&program, path));
            server.args(["-p", provider, "-e", kind]);
            let log = lab.folder.path().join("server");
            let file = fs::File::create(&log).unwrap();
            server
                .stdin(Stdio::null())
                .stdout(file.try_clone().unwrap())
                .stderr(file);
            let mut server = server.spawn().unwrap();
            wait_for_listener(&mut server, PINGPONG);
            let mut command = lab.on(client, (&program, path));
            command.args(["-p", provider, "-e", kind, Wire::ADDRESSES[0]]);
            lab.succeeds(command);
            let told = || fs::read_to_string(&log).unwrap_or_default();
            let status = ended(&mut server, &told);
            assert!(status.success(), "{status}: {}", told());
            assert_empty(&lab.shared());
        }
    }
}

#[test]
fn libfabric_endpoints_without_connections_end_after_the_last_message() {
    pingpong("verbs;ofi_rxm", "rdm", 3);
}

#[test]
fn libfabric_connected_endpoints_and_datagrams() {
    pingpong("verbs", "msg", 1);
    pingpong("verbs", "dgram", 1);
}
