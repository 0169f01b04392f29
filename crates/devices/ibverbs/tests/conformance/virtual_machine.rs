//! The suite on Soft-RoCE, in virtual machines: whole through the extended interface of the driver, what posts and polls
//! in special ways through the classic one, and with the user-space NIC's UDP port at the other end of the wire.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use adverb_ibverbs::Interface;
use adverb_units::Span;
use adverb_vm::{Ending, LabSpec, Output, Program, missing};

use crate::args::{Peer, Subject};
use crate::mixed::First;

/// How long the suite may take on an emulated processor, on a loaded host.
const LIMIT: Span = Span::from_secs(900);

/// What is tried between the user-space NIC and Soft-RoCE, each of them active in turn: what crosses the
/// wire, with many losses at one path MTU only. The rest of it takes minutes; `--first soft` and
/// `--first verbs` run it by hand.
const WITH_THE_SOFT_NIC: [&str; 9] = [
    "data::",
    "rnr::",
    "access::",
    "atomics::",
    "unreliable::",
    "datagram::",
    "_lost_0_percent",
    "_lost_1_percent",
    "mtu_1024_lost_10_percent",
];

/// What is tried through the classic interface: cases in which it matters how requests are posted and completions polled.
/// The others go through it with the user-space NIC as peer, or depend on the kernel alone.
const THROUGH_THE_CLASSIC_INTERFACE: [&str; 8] = [
    "data::",
    "order::",
    "signaling::",
    "inline::",
    "events::",
    "sharing::",
    "shared_receive::",
    "shared_datagram::",
];

/// Returns whether all is as expected.
pub(crate) fn run() -> bool {
    let needs = missing();
    if !needs.is_empty() {
        let needs: Vec<_> = needs.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: conformance of libibverbs devices on Soft-RoCE: needs the packages {}",
            needs.join(", ")
        );
        return true;
    }
    let alone = [
        (Interface::Extended, 1, &[][..]),
        (Interface::Classic, 2, &THROUGH_THE_CLASSIC_INTERFACE),
    ];
    let alone = alone.map(|(interface, processors, filters)| Run {
        subject: subject(interface, Peer::Itself),
        processors,
        filters,
    });
    let mixed = First::BOTH.map(|first| Run {
        subject: subject(Interface::Classic, Peer::Soft(first)),
        processors: 1,
        filters: &WITH_THE_SOFT_NIC,
    });
    all_as_expected(&[alone, mixed].concat())
}

/// One run of the suite.
#[derive(Clone)]
struct Run {
    subject: Subject,
    /// Processors of its machine. One takes a quarter less of this host's time, because a second one mostly spins;
    /// a run on two shows what threads do at the same time.
    processors: u32,
    filters: &'static [&'static str],
}

fn subject(interface: Interface, peer: Peer) -> Subject {
    Subject {
        name: "rxe0".into(),
        interface,
        peer,
    }
}

/// Carries out the runs, each in a machine of its own, two at any time: most cases wait for timers. The
/// longest is first. Whether all is as expected.
fn all_as_expected(runs: &[Run]) -> bool {
    let left = Mutex::new(runs.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let carry_out = || {
        let mut as_expected = true;
        while let Some(run) = next() {
            match outcome(run) {
                Ok(output) => as_expected &= report(&output),
                Err(error) => {
                    println!("the virtual machine failed: {error}");
                    as_expected = false;
                }
            }
        }
        as_expected
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(carry_out), scope.spawn(carry_out)];
        threads.map(|thread| thread.join().unwrap_or(false)) == [true, true]
    })
}

/// Output of the suite in one run.
fn outcome(run: &Run) -> Result<Output, String> {
    let me = std::env::current_exe().expect("the running program has a path");
    let lab = match run.subject.peer {
        Peer::Itself => LabSpec::one(),
        Peer::Soft(_) => LabSpec::looped(),
    };
    let lab = lab.processors(run.processors).init(&me).boot();
    let lab = lab.map_err(|e| format!("cannot boot: {e}"))?;
    let filters = run.filters.iter().map(ToString::to_string);
    let program =
        Program::new(me.to_string_lossy()).args(run.subject.args().into_iter().chain(filters));
    let ran = lab.machine(0).run(&program.limit(LIMIT));
    ran.map_err(|e| e.to_string())
}

/// Prints it in one piece; whether all is as expected.
fn report(output: &Output) -> bool {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    print!("{out}{err}");
    if output.ending != Ending::Exited(0) {
        println!("the suite ended with {:?}", output.ending);
    }
    output.ending == Ending::Exited(0)
}
