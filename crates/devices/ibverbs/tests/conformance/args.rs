//! The command line: the arguments that cargo gives a test harness, `--device`, and `--first`: which of two
//! devices a pair begins with.

use adverb_ibverbs::{Interface, VerbsDevice};

use crate::mixed::First;

/// Asks for [`Mode::Cases`].
pub(crate) const CASES: &str = "--cases";

/// What to do.
pub(crate) enum Mode {
    /// The suite on the user-space NIC's C interface, and in virtual machines.
    All,
    /// The suite on a device of this machine, or its cases whose names have one of these parts.
    Device(Subject, Vec<String>),
    /// The cases whose names are on stdin, for the process that runs the suite.
    Cases(Subject),
    /// The harness is asked for other tests.
    Nothing,
}

/// A device, its interfaces, and its peer.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) interface: Interface,
    pub(crate) peer: Peer,
}

/// The other end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The device itself.
    Itself,
    /// The user-space NIC's UDP port.
    Soft(First),
}

impl Subject {
    pub(crate) fn device(&self) -> Result<VerbsDevice, String> {
        let device: VerbsDevice = self.name.parse().map_err(|e| format!("{e}"))?;
        let interface = self.interface;
        Ok(device.with_posting(interface).with_polling(interface))
    }

    /// The arguments that name it.
    pub(crate) fn args(&self) -> Vec<String> {
        let mut args = vec!["--device".to_owned(), self.name.clone()];
        if self.interface == Interface::Extended {
            args.push("--extended".into());
        }
        if let Peer::Soft(first) = self.peer {
            args.extend(["--first".to_owned(), first.name().to_owned()]);
        }
        args
    }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Mode, String> {
    let (mut name, mut filters) = (None, Vec::new());
    let (mut interface, mut only_listed, mut is_asked) = (Interface::Classic, false, false);
    let mut peer = Peer::Itself;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--device" => name = Some(args.next().ok_or("--device needs a name")?),
            CASES => is_asked = true,
            "--first" => {
                let first = args.next().as_deref().and_then(First::named);
                peer = Peer::Soft(first.ok_or("--first needs soft or verbs")?);
            }
            "--extended" => interface = Interface::Extended,
            "--list" => only_listed = true,
            option if option.starts_with('-') => {}
            filter => filters.push(filter.to_owned()),
        }
    }
    let wanted = filters.is_empty() || filters.iter().any(|f| "conformance::rxe".contains(f));
    let subject = name.map(|name| Subject {
        name,
        interface,
        peer,
    });
    Ok(match subject {
        _ if only_listed => Mode::Nothing,
        Some(subject) if is_asked => Mode::Cases(subject),
        Some(subject) => Mode::Device(subject, filters),
        None if wanted => Mode::All,
        None => Mode::Nothing,
    })
}
