//! Programs whose hosts are the ranks of a job of `mpirun` or `srun`, and how such a job ends.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Ended, Place, end_of, not_run, records, signal, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// A job of `mpirun`; `None`, said on stderr, where it is not installed.
fn job(place: &Place, ranks: u32, args: &str) -> Option<Command> {
    let there = Command::new("mpirun").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        not_run("programs under mpirun", "needs the package openmpi-bin");
        return None;
    }
    let adverb = place.command(args);
    let mut job = Command::new("mpirun");
    job.args(["--allow-run-as-root", "--oversubscribe", "-n"])
        .arg(ranks.to_string())
        .arg(adverb.get_program())
        .args(adverb.get_args())
        .env("ADVERB_SHM", place.shm())
        .env_remove("NO_COLOR")
        .current_dir(place.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(job)
}

fn run(place: &Place, ranks: u32, args: &str) -> Option<Ended> {
    let job = job(place, ranks, args)?.spawn().unwrap();
    Some(end_of(job))
}

/// Returns adverb's lines on stderr; mpirun prints more when a rank has failed.
fn errors(ended: &Ended) -> Vec<&str> {
    let lines = ended.talk.lines();
    lines.filter(|line| line.starts_with("error: ")).collect()
}

/// The process of this rank; waits for it.
fn process_of(job: &Child, rank: u32) -> u32 {
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_wanted = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|b| *b == 0)
            .any(|word| word == wanted.as_bytes())
    };
    let mut found = None;
    wait_for("the rank", || {
        found = children(job.id()).into_iter().find(|pid| is_wanted(*pid));
        found.is_some()
    });
    found.unwrap()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = lists.collect::<Vec<_>>().join(" ");
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// `--loss 0`: packets over UDP even between ranks at one address.
const ALL_PAIRS: &str =
    "ping --all-pairs --op send --duration 20ms --json --device soft@127.0.0.1 --loss 0";

/// Checks a ping for each two of four ranks and a blast in each direction, all of them over UDP.
#[track_caller]
fn check_all_pairs(ended: Ended) {
    let records = ended.ok().json();
    let of = |program: &str| records.iter().filter(|r| r["program"] == program).count();
    assert_eq!((of("ping"), of("blast")), (6, 12));
    for record in records {
        assert_eq!(record["status"], "ok");
        assert!(sent_packets(&record) > 0, "{record}");
    }
}

/// Packets that the UDP ports of all roles sent.
fn sent_packets(record: &Value) -> u64 {
    let roles = record["counters"].as_object().unwrap().values();
    roles.filter_map(|role| role["sent_pkts"].as_u64()).sum()
}

#[test]
fn a_ping_of_all_pairs_has_a_record_for_each_two_ranks() {
    let place = Place::new();
    if let Some(ended) = run(&place, 4, ALL_PAIRS) {
        check_all_pairs(ended);
    }
}

#[test]
fn the_ranks_are_the_hosts_of_a_program() {
    let place = Place::new();
    for device in [
        "soft",
        "soft@127.0.0.1",
        "soft@127.0.0.1 --loss 0",
        "soft@auto",
    ] {
        let args =
            format!("closed-loop --op read --clients 2 --duration 100ms --json --device {device}");
        let Some(ended) = run(&place, 4, &args) else {
            return;
        };
        let record = ended.record();
        assert!(record["metrics"]["requests"].as_u64() > Some(0), "{record}");
        if device.contains("loss") {
            assert!(sent_packets(&record) > 0, "{record}");
        }
        // Rank 0 has the clients, each other one a machine that they READ from.
        let roles = record["roles"].as_array().unwrap();
        let names: Vec<_> = roles
            .iter()
            .map(|role| role["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "requester 0",
                "requester 1",
                "server 2",
                "server 3",
                "server 4"
            ]
        );
        let host = &record["provenance"]["host"];
        assert!(roles.iter().all(|role| role["host"] == *host), "{record}");
        assert_eq!(record["provenance"]["passive"]["host"], *host);
    }
    let places = "kv --duration 50ms --place server=4";
    let ended = run(&place, 4, places).unwrap();
    assert_eq!(
        errors(&ended),
        [
            "error: role 'server=4' has no place: expected ROLE=HOST with ROLE one of server core, client, HOST 0 to 3"
        ]
    );
    let ended = run(&place, 3, "sequencer --clients 2 --duration 50ms --out s").unwrap();
    assert_eq!(ended.ok().talk_of_itself(), "report: s/report.html\n");
    assert_eq!(records(&place.path("s"))[0]["status"], "ok");
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_pair_has_two_ranks_and_the_others_end() {
    let place = Place::new();
    for ranks in [2, 4] {
        let Some(ended) = run(&place, ranks, "ping --op send --iters 100 --json") else {
            return;
        };
        let ended = ended.ok();
        let record = &ended.json()[0];
        assert_eq!(record["status"], "ok");
        assert_eq!(
            record["provenance"]["passive"]["host"],
            record["provenance"]["host"]
        );
        let idle = "2 of 4 ranks have no role: there are two sides\n";
        assert_eq!(ended.talk_of_itself(), if ranks == 4 { idle } else { "" });
        // mpirun binds two ranks to a core each, and does not bind more.
        let core = |side: &str| record["params"][side].as_u64();
        let cores = (core("active_core"), core("passive_core"));
        if std::thread::available_parallelism().unwrap().get() > 1 {
            assert!(cores.0.is_some() && cores.1.is_some() && cores.0 != cores.1);
        }
    }
    let study = "study --only rank-rtt --out s --json";
    let ended = run(&place, 2, study).unwrap().ok();
    assert_eq!(ended.json()[0]["failed"], 0, "{}", ended.out);
    // Without mpirun its passive side is nowhere.
    let alone = place.run("study --resume --out s");
    assert!(
        alone
            .refused(1)
            .starts_with("error: rank 1 does not exist: start adverb by mpirun")
    );
}

#[test]
fn one_rank_says_what_is_wrong_and_all_end() {
    let place = Place::new();
    for (args, code, line) in [
        (
            "ping --op send --size x",
            2,
            "error: --size: invalid size 'x': expected bytes, or a number with K, M or G (binary), such as 8, 4K, 1M",
        ),
        // Refused after the ranks have found each other.
        (
            "kv --value 5000",
            2,
            "error: --value 5000 B: expected 1 B to 4 KiB",
        ),
        (
            "ping --op send --peer a",
            2,
            "error: --peer a:18600: the 3 ranks of this job are the hosts; leave out --peer",
        ),
        (
            "closed-loop --op read --device soft@192.0.2.77",
            1,
            "error: cannot open device soft@192.0.2.77: 192.0.2.77 is not an address of this host and network namespace; use an address of this host; `ip address` lists them",
        ),
    ] {
        let Some(job) = job(&place, 3, args) else {
            return;
        };
        let start = Instant::now();
        let ended: Ended = { job }.output().unwrap().into();
        assert_eq!(ended.code, Some(code), "{}", ended.talk);
        assert_eq!(
            (errors(&ended), &*ended.out),
            (vec![line], ""),
            "{}",
            ended.talk
        );
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
    }
    // What needs no hosts is for one rank, too.
    let ended = run(&place, 3, "model list").unwrap().ok();
    assert_eq!(ended.out, place.run("model list").out);
}

#[test]
fn a_rank_that_is_killed_ends_the_job_with_its_name() {
    let place = Place::new();
    for victim in [3, 0] {
        let Some(mut job) = job(
            &place,
            4,
            "closed-loop --op read --clients 1 --duration 60s",
        ) else {
            return;
        };
        let job = job.spawn().unwrap();
        let pid = process_of(&job, victim);
        wait_for("the victim's role", || !children(pid).is_empty());
        signal(pid, Signal::KILL);
        let killed = Instant::now();
        let ended = end_of(job);
        assert!(
            killed.elapsed() < Duration::from_secs(20),
            "{:?}",
            killed.elapsed()
        );
        assert!(
            ended.code != Some(0) && ended.out.is_empty(),
            "{}",
            ended.out
        );
        // Rank 0 names it, if mpirun does not end rank 0 first; then mpirun names it alone.
        let said = "error: server 3: rank 3 (";
        let lines = errors(&ended);
        assert!(lines.iter().all(|line| line.starts_with(said)), "{lines:?}");
        assert!(lines.len() <= 1 && (victim == 3 || lines.is_empty()));
        let named = format!("rank {victim}");
        assert!(ended.talk.contains(&named), "{}", ended.talk);
    }
    // mpirun may have killed all processes: the next process that opens the device removes their files.
    wait_for("the end of all roles", || {
        place.run("devices").ok();
        place.shm_files().is_empty()
    });
}

/// A cluster of this machine alone, in a folder: a controller and a node's daemon.
struct Slurm {
    config: std::path::PathBuf,
    daemons: Vec<Child>,
}

impl Slurm {
    /// It needs no munge: nobody else reaches its ports on the loopback device.
    fn start(place: &Place) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("slurmd needs root".to_owned());
        }
        let name = rustix::system::uname();
        let name = name.nodename().to_string_lossy();
        let host = name.split('.').next().unwrap();
        let free = || {
            TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port()
        };
        let (controller, node) = (free(), free());
        let folder = place.path("");
        let folder = folder.display();
        let config = place.path("slurm.conf");
        let text = format!(
            "ClusterName=adverb
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}
SlurmdSpoolDir={folder}
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
NodeName={host} NodeAddr=127.0.0.1 Port={node} CPUs=2
PartitionName=p Nodes=ALL Default=YES State=UP
"
        );
        fs::write(&config, text).unwrap();
        let mut slurm = Slurm {
            config,
            daemons: Vec::new(),
        };
        for (daemon, options) in [("slurmctld", "-D -i"), ("slurmd", "-D")] {
            let is_there = slurm.command(&format!("{daemon} -V")).output();
            is_there.map_err(|_| format!("needs the package {daemon} (no {daemon})"))?;
            // Processes of a step sometimes outlive it, and slurmd waits for them: they end with their namespace.
            let alone = "unshare --fork --pid --mount-proc --kill-child";
            let mut command = slurm.command(&format!("{alone} {daemon} {options}"));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            slurm.daemons.push(command.spawn().unwrap());
        }
        wait_for("an idle node", || {
            let listed = slurm.command("sinfo --noheader --format=%t").output();
            listed.is_ok_and(|listed| listed.stdout == b"idle\n")
        });
        Ok(slurm)
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .env("SLURM_CONF", &self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, place: &Place, ranks: &str, args: &str) -> Ended {
        let adverb = place.command(args);
        let mut command = self.command(&format!("srun --overcommit -n {ranks}"));
        let job = command
            .arg(adverb.get_program())
            .args(adverb.get_args())
            .env("ADVERB_SHM", place.shm())
            .current_dir(place.path(""));
        end_of(job.spawn().unwrap())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Without PMIx: Debian's plugin for it does not find the library.
#[test]
fn ranks_of_slurm_meet_at_their_first_node() {
    let place = Place::new();
    let slurm = match Slurm::start(&place) {
        Ok(slurm) => slurm,
        Err(why) => return not_run("programs under srun", &why),
    };
    for device in ["soft@auto", "soft@127.0.0.1 --loss 0"] {
        let args =
            format!("closed-loop --op read --clients 2 --duration 100ms --json --device {device}");
        let record = slurm.run(&place, "4", &args).record();
        assert_eq!(record["params"]["machines"], 3, "{record}");
        assert!(record["metrics"]["requests"].as_u64() > Some(0), "{record}");
    }
    check_all_pairs(slurm.run(&place, "4", ALL_PAIRS));
    let ended = slurm.run(&place, "3", "kv --value 5000");
    assert_eq!(ended.code, Some(2), "{}", ended.talk);
    assert_eq!(
        errors(&ended),
        ["error: --value 5000 B: expected 1 B to 4 KiB"]
    );
}
