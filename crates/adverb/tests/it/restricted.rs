//! Programs in an environment that refuses system calls (the seccomp profile of a container) or has small limits
//! (`ulimit`): each runs without what was refused, or ends with one line that names the cause.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::common::{Ended, Place, end_of, not_run, wait_for};
use libc::{CLONE_THREAD, EAGAIN, ENOSYS, EPERM, c_int, c_long};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// A ping over shared memory, so short that it ends in time on a busy machine, where each round waits for both sides'
/// turns.
const LOCAL: &str = "ping --op send --iters 2 --repetitions 1 --warmup 0 --device soft";

/// The same over UDP. Tests that run at the same time have an address each.
fn udp(host: u8) -> String {
    format!("{LOCAL}@127.49.0.{host} --loss 0")
}

/// System calls that a profile may refuse: used by the device, or by other programs of its kind.
const CALLS: [(&str, c_long); 19] = [
    ("membarrier", libc::SYS_membarrier),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("prctl", libc::SYS_prctl),
    ("prlimit64", libc::SYS_prlimit64),
    ("fallocate", libc::SYS_fallocate),
    ("mknodat", libc::SYS_mknodat),
    ("flock", libc::SYS_flock),
    ("getrandom", libc::SYS_getrandom),
    ("getrusage", libc::SYS_getrusage),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("ioctl", libc::SYS_ioctl),
    ("mlock", libc::SYS_mlock),
    ("memfd_create", libc::SYS_memfd_create),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("io_uring_setup", libc::SYS_io_uring_setup),
];

/// What a filter refuses: a system call, if these conditions hold, with this error.
type Refusal = (c_long, Vec<SeccompRule>, c_int);

/// Runs `command` under filters.
fn run_without(refusals: Vec<Refusal>, command: Command) -> Ended {
    end_of(spawn_without(refusals, command))
}

/// Starts `command` under filters.
fn spawn_without(refusals: Vec<Refusal>, mut command: Command) -> Child {
    let programs: Vec<seccompiler::BpfProgram> = refusals
        .into_iter()
        .map(|(call, rules, errno)| {
            let filter = SeccompFilter::new(
                BTreeMap::from([(call, rules)]),
                SeccompAction::Allow,
                SeccompAction::Errno(errno as u32),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            filter.unwrap().try_into().unwrap()
        })
        .collect();
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A filter holds for the thread that installs it, and for the processes that this thread starts.
    let child = thread::spawn(move || {
        programs
            .iter()
            .for_each(|program| apply_filter(program).unwrap());
        command.spawn().unwrap()
    });
    child.join().unwrap()
}

/// It measured, or ended with one line about an error.
#[track_caller]
fn check(ended: &Ended, given: &str) {
    if ended.code == Some(0) {
        assert!(ended.out.contains("64 B"), "{given}: {}", ended.out);
        return;
    }
    let shown = format!("{given}: {:?}\n{}\n{}", ended.code, ended.out, ended.talk);
    assert!(matches!(ended.code, Some(1 | 2)), "{shown}");
    let talk = ended.talk_of_itself();
    let (errors, others): (Vec<&str>, Vec<&str>) =
        talk.lines().partition(|line| line.starts_with("error: "));
    assert_eq!(errors.len(), 1, "{shown}");
    assert!(
        others.iter().all(|line| line.starts_with("warning: ")),
        "{shown}"
    );
}

fn pings_without_each_call(line: &str) {
    for (name, call) in CALLS {
        for errno in [EPERM, ENOSYS] {
            let place = Place::new();
            let ended = run_without(vec![(call, vec![], errno)], place.command(line));
            let given = format!("{name} refused with {errno}");
            check(&ended, &given);
        }
    }
}

#[test]
fn a_ping_in_shared_memory_without_a_system_call_measures_or_names_the_cause() {
    pings_without_each_call(LOCAL);
}

#[test]
fn a_ping_over_udp_without_a_system_call_measures_or_names_the_cause() {
    pings_without_each_call(&udp(1));
}

/// A refused pidfd_open was reported as the end of the peer's process.
#[test]
fn a_refused_system_call_that_has_no_replacement_is_named_with_the_remedy() {
    let place = Place::new();
    let refused = |call, errno| {
        let ended = run_without(vec![(call, vec![], errno)], place.command(LOCAL));
        ended.refused(1).to_owned()
    };
    assert_eq!(
        refused(libc::SYS_pidfd_open, EPERM),
        "error: cannot open device soft: pidfd_open failed (Operation not permitted (os error 1)); in a container, allow pidfd_open in its seccomp profile"
    );
    for (errno, why) in [
        (EPERM, "Operation not permitted (os error 1)"),
        (ENOSYS, "Function not implemented (os error 38)"),
    ] {
        assert_eq!(
            refused(libc::SYS_membarrier, errno),
            format!(
                "error: cannot open device soft: the kernel refuses membarrier for other processes ({why}); Linux 4.16 or later is needed; in a container, allow membarrier in its seccomp profile"
            )
        );
    }
}

/// As in Valgrind 3.19, and before Linux 5.3.
#[test]
fn without_pidfd_open_the_end_of_a_peer_is_noticed_by_its_lock() {
    if !std::path::Path::new("/usr/bin/ibv_rc_pingpong").is_file() {
        not_run(
            "the end of a peer without pidfd_open",
            "ibv_rc_pingpong is missing (package ibverbs-utils)",
        );
        return;
    }
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let start = |peer: &str| {
        let pingpong = format!("ibv_rc_pingpong -p {port} -n 1000000000 {peer}");
        let line = format!("run --address 127.0.0.183 -- stdbuf -oL {pingpong}");
        spawn_without(
            vec![(libc::SYS_pidfd_open, vec![], ENOSYS)],
            place.command(&line),
        )
    };
    let server = start("");
    wait_for("the server's port", || {
        let row = format!(":{port:04X} ");
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        let mut rows = tables.iter().flatten().flat_map(|table| table.lines());
        rows.any(|line| line.contains(&row) && line.contains(" 0A "))
    });
    let mut client = start("127.0.0.183");
    let lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut told = lines.map_while(Result::ok);
    assert!(told.any(|line| line.contains("remote address")));
    client.kill().unwrap();
    client.wait().unwrap();
    let ended = end_of(server);
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    let failed = ended.talk.contains("Failed status");
    assert!(failed, "{}", ended.talk);
}

/// As with a limit on processes (`ulimit -u`), from which root is exempt.
#[test]
fn a_refused_thread_is_named() {
    let is_thread = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(CLONE_THREAD as u64),
        CLONE_THREAD as u64,
    );
    let rule = SeccompRule::new(vec![is_thread.unwrap()]).unwrap();
    let refusals = vec![
        (libc::SYS_clone3, vec![], ENOSYS),
        (libc::SYS_clone, vec![rule], EAGAIN),
    ];
    for line in [LOCAL, &udp(2)] {
        let place = Place::new();
        let ended = run_without(refusals.clone(), place.command(line));
        assert!(ended.refused(1).contains("thread"), "{}", ended.talk);
    }
}

#[test]
fn a_small_limit_is_named_or_does_not_matter() {
    for limit in [
        "-n 8",
        "-n 12",
        "-n 16",
        "-n 24",
        "-l 0",
        "-v 40000",
        "-v 200000",
        "-f 1",
        "-f 2000",
    ] {
        for line in [LOCAL, &udp(3)] {
            let place = Place::new();
            let ended = place.run_with_limit(limit, line);
            let given = format!("ulimit {limit}, {line}");
            check(&ended, &given);
        }
    }
}
