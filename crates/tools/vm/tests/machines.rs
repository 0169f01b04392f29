//! Machines that really boot: what they have, how programs run in them, and how they end.
//!
//! One lab of each kind serves several checks: booting is what takes time here.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use adverb_units::Span;
use adverb_vm::{
    Ending, Error, Lab, LabSpec, LinkType, Machine, Output, Program, Progress, missing,
};

/// Sends messages back and forth. perftest refuses to report where a loaded host disturbs its measurement of the clock.
const PINGPONG: [&str; 7] = ["ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "100"];
/// Where it listens.
const PORT: u16 = 18515;
const SOON: Span = Span::from_secs(20);

fn spec(spec: LabSpec) -> LabSpec {
    spec.init(env!("CARGO_BIN_EXE_adverb-vm"))
}

/// Boots a lab, or prints why it cannot, past the harness.
fn boot(test: &str, wanted: LabSpec, programs: &[(&str, &str)]) -> Option<Lab> {
    let mut absent: Vec<String> = missing().iter().map(ToString::to_string).collect();
    for (program, package) in programs {
        let dirs = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&dirs).any(|dir| dir.join(program).is_file()) {
            absent.push(format!("{package} (for {program})"));
        }
    }
    if !absent.is_empty() {
        let packages = absent.join(", ");
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: {test}: needs the packages {packages}"
        );
        return None;
    }
    Some(spec(wanted).boot().unwrap_or_else(|e| panic!("{e}")))
}

fn program(name: &str, args: &[&str]) -> Program {
    Program::new(name).args(args.iter().copied()).limit(SOON)
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(&[out.as_slice(), err.as_slice()].concat()).into_owned()
}

/// Runs a server and its client and gives what the client printed.
fn exchange(server: (&Machine, &[&str]), client: (&Machine, &[&str])) -> String {
    let (serving, args) = server;
    let job = serving
        .start_program(&program(args[0], &args[1..]))
        .unwrap();
    serving.wait_until_listening(PORT, SOON).unwrap();
    let (asking, args) = client;
    let asked = asking.run(&program(args[0], &args[1..])).unwrap();
    let served = job.output().unwrap();
    assert!(
        served.success(),
        "server {:?}: {}",
        served.ending,
        text(&served)
    );
    assert!(
        asked.success(),
        "client {:?}: {}",
        asked.ending,
        text(&asked)
    );
    text(&asked)
}

#[test]
fn one_machine() {
    let needs = [
        ("ibv_devinfo", "ibverbs-utils"),
        ("ibv_rc_pingpong", "ibverbs-utils"),
        ("ps", "procps"),
        ("bash", "bash"),
    ];
    let begin = Instant::now();
    let ours = tempfile::tempdir_in("/tmp").unwrap();
    let script = bash_script(ours.path());
    let Some(lab) = boot("one machine", LabSpec::one(), &needs) else {
        return;
    };
    eprintln!("one machine was up after {:?}", begin.elapsed());
    let machine = lab.machine(0);
    files_of_this_host_are_there_and_stay_as_they_are(machine, ours.path());
    devices_are_listed(machine);
    the_clock_is_read_without_leaving_the_guest(machine);
    a_script_below_tmp_runs_with_its_interpreter(machine, &script);
    messages_are_exchanged_between_two_processes(machine);
    the_status_of_a_program_is_passed_on(machine);
    streams_are_kept_apart_and_all_output_arrives(machine);
    a_program_that_hangs_is_ended_with_its_descendants(machine);
    a_killed_program_says_so(machine);
    a_program_whose_job_is_dropped_is_killed(machine);
    a_program_that_is_not_there_is_an_error(machine);
    files_go_both_ways(machine);
    a_panic_of_the_guest_ends_in_an_error(machine);
}

/// Nothing that a machine writes reaches this host.
fn files_of_this_host_are_there_and_stay_as_they_are(machine: &Machine, ours: &Path) {
    let file = ours.join("data");
    std::fs::write(&file, "ours").unwrap();
    let name = file.to_str().unwrap();
    assert_eq!(machine.read_file(name).unwrap(), b"ours");
    machine.write_file(name, 0o644, b"the machine's").unwrap();
    assert_eq!(machine.read_file(name).unwrap(), b"the machine's");
    assert_eq!(std::fs::read(&file).unwrap(), b"ours");
}

/// Each look at another clock is an exit to QEMU, which shows in what programs measure.
fn the_clock_is_read_without_leaving_the_guest(machine: &Machine) {
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let clock = String::from_utf8(machine.read_file(clock).unwrap()).unwrap();
    assert!(clock.starts_with("tsc"), "{clock}");
}

/// A script that a plain shell does not understand.
fn bash_script(folder: &Path) -> String {
    let script = folder.join("script");
    std::fs::write(
        &script,
        "#!/usr/bin/env bash\nwords=(one two); echo ${words[1]} $1\n",
    )
    .unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script.to_string_lossy().into_owned()
}

fn a_script_below_tmp_runs_with_its_interpreter(machine: &Machine, script: &str) {
    let output = machine.run(&program(script, &["three"])).unwrap();
    assert_eq!(text(&output), "two three\n");
    let other = machine.run(&program(
        "sh",
        &[
            "-c",
            "mktemp -p /tmp && mktemp -p /run && mktemp -p /dev/shm",
        ],
    ));
    assert!(other.unwrap().success());
}

fn devices_are_listed(machine: &Machine) {
    let seen = machine.run(&program("ibv_devinfo", &[])).unwrap();
    let printed = text(&seen);
    assert!(seen.success(), "{printed}");
    assert!(
        printed.contains("rxe0") && printed.contains("PORT_ACTIVE"),
        "{printed}"
    );
    let cm = machine.run(&program("ls", &["/dev/infiniband"])).unwrap();
    assert!(text(&cm).contains("rdma_cm") && text(&cm).contains("uverbs0"));
}

fn messages_are_exchanged_between_two_processes(machine: &Machine) {
    let address = machine.address();
    let printed = exchange(
        (machine, &PINGPONG),
        (machine, &[&PINGPONG[..], &[address]].concat()),
    );
    assert!(printed.contains("100 iters"), "{printed}");
}

fn the_status_of_a_program_is_passed_on(machine: &Machine) {
    let ending = |script: &str| {
        let run = machine.run(&program("sh", &["-c", script]));
        run.unwrap().ending
    };
    assert_eq!(ending("exit 0"), Ending::Exited(0));
    assert_eq!(ending("exit 77"), Ending::Exited(77));
    assert_eq!(ending("kill -SEGV $$"), Ending::Signaled(11));
}

fn streams_are_kept_apart_and_all_output_arrives(machine: &Machine) {
    let script = "echo to stderr >&2; echo $GREETING; dd if=/dev/zero bs=1000 count=3000 2>&-";
    let run = program("sh", &["-c", script]).env("GREETING", "hello");
    let output = machine.run(&run).unwrap();
    assert_eq!(output.stderr, b"to stderr\n");
    assert_eq!(output.stdout.len(), "hello\n".len() + 3_000_000);
    assert!(output.stdout.starts_with(b"hello\n\0"));
}

fn a_program_that_hangs_is_ended_with_its_descendants(machine: &Machine) {
    let script = "echo begun; sleep 1000 & sleep 1000";
    let limit = Span::from_ms(700);
    let begin = Instant::now();
    let run = program("sh", &["-c", script]).limit(limit);
    let output = machine.run(&run).unwrap();
    assert_eq!(output.ending, Ending::LimitReached);
    assert_eq!(output.stdout, b"begun\n");
    assert!(begin.elapsed() < Duration::from_secs(60));
    let left = machine.run(&program("ps", &[])).unwrap();
    assert!(!text(&left).contains("sleep 1000"), "{}", text(&left));
}

fn a_killed_program_says_so(machine: &Machine) {
    let job = machine.start_program(&program("sleep", &["1000"])).unwrap();
    job.kill().unwrap();
    assert_eq!(job.output().unwrap().ending, Ending::Signaled(9));
}

fn a_program_whose_job_is_dropped_is_killed(machine: &Machine) {
    let script = ["-c", "echo begun; sleep 1001"];
    let job = machine.start_program(&program("sh", &script)).unwrap();
    assert_eq!(job.progress().unwrap(), Progress::Stdout(b"begun\n".into()));
    let running = || {
        let seen = machine.run(&program("ps", &[])).unwrap();
        text(&seen).contains("sleep 1001")
    };
    drop(job);
    let deadline = Instant::now() + Duration::from(SOON);
    while running() {
        assert!(Instant::now() < deadline, "the program still runs");
    }
}

fn a_program_that_is_not_there_is_an_error(machine: &Machine) {
    let error = machine.run(&program("no-such-program", &[])).unwrap_err();
    let line = error.to_string();
    assert!(
        line.starts_with("machine vm1: cannot run no-such-program: No such file"),
        "{line}"
    );
}

fn files_go_both_ways(machine: &Machine) {
    let content: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    machine.write_file("/run/in/data", 0o640, &content).unwrap();
    machine
        .write_file("/run/in/deep/empty", 0o600, b"")
        .unwrap();
    assert_eq!(machine.read_file("/run/in/data").unwrap(), content);
    let here = tempfile::tempdir().unwrap();
    machine.get("/run/in", &here.path().join("out")).unwrap();
    let read = |name: &str| std::fs::read(here.path().join("out").join(name)).unwrap();
    assert_eq!(read("data"), content);
    assert_eq!(read("deep/empty"), b"");
    let error = machine.read_file("/no/such").unwrap_err().to_string();
    assert!(error.contains("cannot read /no/such"), "{error}");
}

/// Ends the machine.
fn a_panic_of_the_guest_ends_in_an_error(machine: &Machine) {
    let job = machine.start_program(&program("sleep", &["1000"])).unwrap();
    let begin = Instant::now();
    let panic = program(
        "sh",
        &[
            "-c",
            "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger",
        ],
    );
    let error = machine.run(&panic).unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    assert!(error.to_string().contains("Kernel panic"), "{error}");
    assert!(matches!(job.output(), Err(Error::Ended { .. })));
    assert!(matches!(machine.run(&panic), Err(Error::Ended { .. })));
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn two_machines() {
    let needs = [("ibv_rc_pingpong", "ibverbs-utils")];
    let begin = Instant::now();
    let Some(lab) = boot("two machines", LabSpec::two(), &needs) else {
        return;
    };
    eprintln!("two machines were up after {:?}", begin.elapsed());
    let (one, two) = (lab.machine(0), lab.machine(1));
    for machine in [one, two] {
        assert_eq!(active_mtu(machine), 4096);
    }
    let before = sent(one);
    let printed = exchange(
        (two, &PINGPONG),
        (one, &[&PINGPONG[..], &[two.address()]].concat()),
    );
    assert!(printed.contains("100 iters"), "{printed}");
    let packets = sent(one) - before;
    assert!(packets >= 200, "{packets} packets crossed the link");
    a_machine_that_hangs_is_an_error_in_bounded_time(one);
    a_killed_qemu_is_an_error_in_bounded_time(one);
    assert!(two.run(&program("ip", &["link"])).unwrap().success());
}

/// RoCE's path MTU in bytes, as the driver reports it.
fn active_mtu(machine: &Machine) -> u32 {
    let seen = text(&machine.run(&program("ibv_devinfo", &[])).unwrap());
    let mut lines = seen
        .lines()
        .filter_map(|l| l.trim().strip_prefix("active_mtu:"));
    let mtu = lines.next().unwrap_or_else(|| panic!("no MTU in {seen}"));
    mtu.split_whitespace().next().unwrap().parse().unwrap()
}

/// Packets that a machine sent through its network card.
fn sent(machine: &Machine) -> u64 {
    let count = machine.read_file("/sys/class/net/eth0/statistics/tx_packets");
    let count = String::from_utf8(count.unwrap()).unwrap();
    count.trim().parse().unwrap()
}

/// As after a lock-up of its kernel: nothing in it runs any more.
fn a_machine_that_hangs_is_an_error_in_bounded_time(machine: &Machine) {
    let pid = rustix::process::Pid::from_raw(machine.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let begin = Instant::now();
    let error = machine.read_file("/proc/version").unwrap_err();
    assert!(matches!(error, Error::Hung { .. }), "{error}");
    let line = error.to_string();
    assert!(
        line.starts_with("machine vm1 did not send a file within 20.0 s"),
        "{line}"
    );
    assert!(begin.elapsed() < Duration::from_secs(60));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(machine.read_file("/proc/version").is_ok());
}

fn a_killed_qemu_is_an_error_in_bounded_time(machine: &Machine) {
    let job = machine.start_program(&program("sleep", &["1000"])).unwrap();
    let pid = rustix::process::Pid::from_raw(machine.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let begin = Instant::now();
    let error = job.output().unwrap_err();
    assert!(matches!(error, Error::Ended { .. }), "{error}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_device_that_the_kernel_does_not_have_is_refused_by_name() {
    if !missing().is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: Soft-iWARP: see `adverb-vm check`"
        );
        return;
    }
    match spec(LabSpec::one()).link_type(LinkType::Siw).boot() {
        Err(Error::Unsupported(line)) => assert!(line.contains("has no module siw"), "{line}"),
        Err(error) => panic!("{error}"),
        Ok(lab) => {
            let seen = lab.machine(0).run(&program("ibv_devinfo", &[])).unwrap();
            assert!(text(&seen).contains("siw0"), "{}", text(&seen));
        }
    }
}
