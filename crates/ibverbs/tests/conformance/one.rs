//! One case, in a process of its own.

use std::process::ExitCode;

use adverb_conformance::{NotSupported, cases};
use adverb_ibverbs::VerbsDevice;

use crate::args::Subject;

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
    let case = cases::<VerbsDevice>().into_iter().find(|c| c.name == name);
    let Some(case) = case else {
        eprintln!("there is no case {name}");
        return ExitCode::from(2);
    };
    match (case.run)(&device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(NotSupported(what)) => {
            println!("{what}");
            ExitCode::from(LACKS)
        }
    }
}
