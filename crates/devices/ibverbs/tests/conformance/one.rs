//! One case, in a process of its own.

use std::process::ExitCode;

use adverb_conformance::threads::{Shareable, Subject as Opened};
use adverb_conformance::{NotSupported, cases};
use adverb_verbs::Device;

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
                return ExitCode::SUCCESS;
            }
            run_on(&opened, name)
        }
    }
}

fn run_on<C: Shareable>(opened: &Opened<'_, C>, name: &str) -> ExitCode {
    let case = cases().into_iter().find(|c| c.name == name);
    let Some(case) = case else {
        eprintln!("there is no case {name}");
        return ExitCode::from(2);
    };
    match opened.run(&case) {
        Ok(()) => ExitCode::SUCCESS,
        Err(NotSupported(what)) => {
            println!("{what}");
            ExitCode::from(LACKS)
        }
    }
}
