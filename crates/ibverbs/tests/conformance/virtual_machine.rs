//! The suite on Soft-RoCE, in a virtual machine: once through each interface of the driver.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use adverb_ibverbs::Interface;
use adverb_units::Span;
use adverb_vm::{Ending, LabSpec, Output, Program, missing};

use crate::args::Subject;

/// How long the suite may take on an emulated processor, on a loaded host.
const LIMIT: Span = Span::from_secs(900);

pub(crate) fn run() -> ExitCode {
    let needs = missing();
    if !needs.is_empty() {
        let needs: Vec<_> = needs.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            std::io::stderr(),
            "\nNOT RUN: conformance of libibverbs devices on Soft-RoCE: needs the packages {}",
            needs.join(", ")
        );
        return ExitCode::SUCCESS;
    }
    let me = std::env::current_exe().expect("the running program has a path");
    // Each interface in a machine of its own, at once: most cases wait for timers.
    let interfaces = [Interface::Classic, Interface::Extended];
    let outcomes = interfaces.map(|interface| {
        let me = me.clone();
        std::thread::spawn(move || outcome(&me, interface))
    });
    let mut failed = false;
    for outcome in outcomes {
        let told = outcome.join();
        match told.unwrap_or_else(|_| Err("the thread of a machine panicked".into())) {
            Ok(output) => failed |= !report(&output),
            Err(error) => {
                println!("the virtual machine failed: {error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

/// What the suite says of one interface.
fn outcome(me: &Path, interface: Interface) -> Result<Output, String> {
    let lab = LabSpec::one().init(me).with(me).boot();
    let lab = lab.map_err(|e| format!("cannot boot: {e}"))?;
    let subject = Subject {
        name: "rxe0".into(),
        interface,
    };
    let program = Program::new(me.to_string_lossy()).args(subject.args());
    let ran = lab.machine(0).run(&program.limit(LIMIT));
    ran.map_err(|e| e.to_string())
}

/// Prints it; whether all is as expected.
fn report(output: &Output) -> bool {
    for text in [&output.stdout, &output.stderr] {
        print!("{}", String::from_utf8_lossy(text));
    }
    if output.ending != Ending::Exited(0) {
        println!("the suite ended with {:?}", output.ending);
    }
    output.ending == Ending::Exited(0)
}
