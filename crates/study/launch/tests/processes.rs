//! Roles as processes and as threads: this program is also what the processes run.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_launch::{
    Catalog, DeviceChoice, Entry, Failure, Interrupt, Launcher, Mode, Pinning, Placement, Run,
    RunError, run_roles,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{RoleId, Station};
use adverb_workload::{Cause, Program, Role, RoleError, RoleLoad};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};

static CATALOG: Catalog = Catalog {
    version: "test",
    programs: &[Entry::of::<Ring>()],
};

/// Roles that pass a number around, each adding one; then one of them does something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Ring {
    roles: u32,
    /// Roles of one process.
    together: u32,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Then {
    /// All end.
    End,
    /// Role 1 fails.
    Fail,
    /// Role 1 panics.
    Panic,
    /// Role 1 dies.
    Die,
    /// Role 1 waits for a message that never arrives.
    Wait,
}

/// What a role saw.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    number: u32,
    process: u32,
    /// Roles of its process that had been there before.
    before: u32,
}

impl Program for Ring {
    const ID: &'static str = "ring";
    type Report = Seen;
    type Shared = AtomicU32;

    fn roles(&self) -> Vec<Role> {
        let role = |number: u32| Role {
            name: format!("member {number}"),
            host: number,
            process: number / self.together,
            load: RoleLoad::Idle,
        };
        (0..self.roles).map(role).collect()
    }

    fn memory(&self, _: RoleId) -> Bytes {
        Bytes::new(0)
    }

    fn run<S: Station>(
        &self,
        station: &S,
        RoleId(me): RoleId,
        shared: &AtomicU32,
    ) -> Result<Seen, RoleError> {
        let timeout = Span::from_secs(20);
        let gone = |error: adverb_verbs::OutOfBandError| RoleError {
            reason: format!("member {me}: {error}"),
            cause: Cause::Peer,
        };
        let before = shared.fetch_add(1, Ordering::Relaxed);
        let (last, next) = ((me + self.roles - 1) % self.roles, (me + 1) % self.roles);
        let mut number = 0;
        if me > 0 {
            let said = station.receive(RoleId(last), timeout).map_err(gone)?;
            number = u32::from_le_bytes(said.try_into().unwrap()) + 1;
        }
        if me == 1 {
            match self.then {
                Then::End => {}
                Then::Fail => {
                    let reason = "member 1: out of luck".to_owned();
                    return Err(RoleError {
                        reason,
                        cause: Cause::Own,
                    });
                }
                Then::Panic => panic!("no number"),
                Then::Die => kill_process(getpid(), Signal::KILL).unwrap(),
                Then::Wait => drop(
                    station
                        .receive(RoleId(2), Span::from_secs(60))
                        .map_err(gone)?,
                ),
            }
        }
        let message = number.to_le_bytes();
        station.send(RoleId(next), &message).map_err(gone)?;
        if me == 0 {
            let said = station.receive(RoleId(last), timeout).map_err(gone)?;
            number = u32::from_le_bytes(said.try_into().unwrap()) + 1;
        }
        let process = Pid::as_raw(Some(getpid())).unsigned_abs();
        Ok(Seen {
            number,
            process,
            before,
        })
    }
}

fn launcher(mode: Mode) -> Launcher {
    Launcher::new(&CATALOG, vec![DeviceChoice::SOFT]).with_mode(mode)
}

fn run_for(mode: Mode, program: &Ring, timeout: Duration) -> Result<Run<Seen>, RunError> {
    let interrupt = Interrupt::listen().unwrap();
    launcher(mode).run(program, timeout, &interrupt)
}

const LATE: Duration = Duration::from_secs(60);

/// A ring of processes or threads with one role each.
fn ring(roles: u32, then: Then) -> Ring {
    Ring {
        roles,
        together: 1,
        then,
    }
}

fn failure(mode: Mode, then: Then) -> Failure {
    let run = run_for(mode, &ring(4, then), LATE);
    run.unwrap().reports.unwrap_err()
}

fn a_number_goes_around() {
    for (mode, processes) in [(Mode::Threads, 1), (Mode::Processes, 3)] {
        let ring = Ring {
            together: 2,
            ..ring(5, Then::End)
        };
        let run = run_for(mode, &ring, LATE).unwrap();
        let seen = run.reports.unwrap();
        let numbers: Vec<u32> = seen.iter().map(|seen| seen.number).collect();
        assert_eq!(numbers, [5, 1, 2, 3, 4], "{mode:?}");
        let mut pids: Vec<u32> = seen.iter().map(|seen| seen.process).collect();
        pids.dedup();
        assert_eq!(pids.len(), processes, "{mode:?}");
        // Two by two they share state.
        let mut before: Vec<u32> = seen.iter().map(|seen| seen.before).collect();
        before.sort_unstable();
        assert_eq!(before, [0, 0, 0, 1, 1], "{mode:?}");
        assert_eq!(run.roles[3].name, "member 3");
        assert_eq!(run.roles[3].device.name, "soft");
        assert!(!run.roles[3].details.is_empty());
    }
}

fn a_role_that_fails_is_named_and_the_others_end() {
    for mode in [Mode::Threads, Mode::Processes] {
        let start = Instant::now();
        assert_eq!(failure(mode, Then::Fail).reason, "member 1: out of luck");
        let panicked = failure(mode, Then::Panic).reason;
        assert_eq!(panicked, "member 1: panicked: no number");
        assert!(start.elapsed() < LATE, "{mode:?}");
    }
}

fn a_process_that_dies_is_named_with_all_its_roles() {
    let died = failure(Mode::Processes, Then::Die).reason;
    assert_eq!(died, "member 1: killed by signal 9");
    let ring = Ring {
        together: 2,
        ..ring(4, Then::Die)
    };
    let run = run_for(Mode::Processes, &ring, LATE).unwrap();
    let died = run.reports.unwrap_err().reason;
    assert_eq!(died, "member 0: killed by signal 9");
}

fn a_run_ends_by_its_deadline() {
    for mode in [Mode::Threads, Mode::Processes] {
        let run = run_for(mode, &ring(4, Then::Wait), Duration::from_secs(1)).unwrap();
        let reason = run.reports.unwrap_err().reason;
        let overdue = "timed out after 1 s";
        assert_eq!(reason, overdue, "{mode:?}");
    }
}

fn a_signal_ends_a_run() {
    // Only once: a second signal would end this process.
    let interrupt = Interrupt::listen().unwrap();
    let signal = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        kill_process(getpid(), Signal::INT).unwrap();
    });
    let run = launcher(Mode::Threads).run(&ring(4, Then::Wait), LATE, &interrupt);
    let error = run.unwrap_err();
    assert!(matches!(error, RunError::Interrupted), "{error}");
    signal.join().unwrap();
}

fn several_devices_are_several_hosts() {
    let devices = ["soft@127.61.0.1", "soft@127.61.0.2"].map(|text| text.parse().unwrap());
    let interrupt = Interrupt::listen().unwrap();
    let run = |placement: &str| {
        let places: Placement = placement.parse().unwrap();
        let launcher = Launcher::new(&CATALOG, devices.to_vec());
        let mut launcher = launcher.with_places(places, Pinning::None);
        launcher.run(&ring(3, Then::End), LATE, &interrupt)
    };
    let roles = run("member 2=1").unwrap().roles;
    let hosts: Vec<u32> = roles.iter().map(|role| role.host).collect();
    assert_eq!(hosts, [0, 1, 1]);
    assert_eq!(roles[2].device.name, "soft@127.61.0.2");
    let refused = run("client=1").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "role 'client=1' has no place: expected ROLE=HOST with ROLE one of member, HOST 0 to 1"
    );
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("role") {
        assert!(getppid().is_some());
        run_roles(&CATALOG).unwrap();
        return ExitCode::SUCCESS;
    }
    macro_rules! tests {
        ($($name:ident)*) => { [$((stringify!($name), $name as fn())),*] };
    }
    let tests = tests! {
        a_number_goes_around
        a_role_that_fails_is_named_and_the_others_end
        a_process_that_dies_is_named_with_all_its_roles
        a_run_ends_by_its_deadline
        several_devices_are_several_hosts
        a_signal_ends_a_run
    };
    let mut failed = 0;
    for (name, test) in tests {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    println!(
        "\ntest result: {} passed; {failed} failed",
        tests.len() - failed
    );
    ExitCode::from(u8::from(failed > 0))
}
