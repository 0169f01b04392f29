//! The process that runs cases one after another, as it is asked to.

use std::io::BufRead;
use std::process::ExitCode;

use adverb_conformance::threads::{Shareable, Subject as Opened};
use adverb_conformance::{NotSupported, Verdict, cases};
use adverb_verbs::Device;

use crate::args::{Peer, Subject};
use crate::boundaries;
use crate::mixed::Mixed;

/// The answer to a case that has passed; any other line says what the device lacks.
pub(crate) const PASSED: &str = "passed";

/// Reads names of cases from stdin and writes a line to stdout after each. One that fails ends the process.
pub(crate) fn run(subject: &Subject) -> ExitCode {
    for name in std::io::stdin().lock().lines().map_while(Result::ok) {
        match run_case(subject, &name) {
            Ok(Ok(())) => println!("{PASSED}"),
            Ok(Err(NotSupported(what))) => println!("{what}"),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

fn run_case(subject: &Subject, name: &str) -> Result<Verdict, String> {
    let device = subject.device()?;
    match subject.peer {
        Peer::Itself => {
            let open = || device.open();
            let opened = Opened {
                open: &open,
                station: &open,
            };
            run_on(&opened, name)
        }
        Peer::Soft(first) => {
            let mixed = Mixed::new(device, first);
            let opened = Opened {
                open: &|| mixed.open(),
                station: &|| mixed.open_for_station(),
            };
            if boundaries::run(&opened, name) {
                return Ok(Ok(()));
            }
            run_on(&opened, name)
        }
    }
}

fn run_on<C: Shareable>(opened: &Opened<'_, C>, name: &str) -> Result<Verdict, String> {
    let case = cases().into_iter().find(|c| c.name == name);
    let case = case.ok_or_else(|| format!("unknown case {name}"))?;
    Ok(opened.run(&case))
}
