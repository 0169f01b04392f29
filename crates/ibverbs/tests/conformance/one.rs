//! One case, in a process of its own.

use std::process::ExitCode;

use adverb_conformance::{NotSupported, cases};

use crate::args::{Peer, Subject};
use crate::boundaries;
use crate::mixed::Mixed;

/// The exit status of a case that the device does not support; what is on the last line of stdout.
pub(crate) const LACKS: u8 = 3;

pub(crate) fn run(subject: &Subject, name: &str) -> ExitCode {
    let device = match subject.device() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match subject.peer {
        Peer::Itself => run_on(&device, name),
        Peer::Soft(first) => {
            let mixed = Mixed::new(device, first);
            if boundaries::run(&mixed, name) {
                return ExitCode::SUCCESS;
            }
            run_on(&mixed, name)
        }
    }
}

fn run_on<D: adverb_conformance::Subject>(device: &D, name: &str) -> ExitCode {
    let case = cases::<D>().into_iter().find(|c| c.name == name);
    let Some(case) = case else {
        eprintln!("there is no case {name}");
        return ExitCode::from(2);
    };
    match (case.run)(device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(NotSupported(what)) => {
            println!("{what}");
            ExitCode::from(LACKS)
        }
    }
}
