//! The command line: that of a test harness, as cargo gives it, and `--device`.

use adverb_ibverbs::{Interface, VerbsDevice};

/// What to do.
pub(crate) enum Mode {
    /// The suite in virtual machines.
    VirtualMachine,
    /// The suite on a device of this machine, or its cases whose names have one of these parts.
    Device(Subject, Vec<String>),
    /// One case, for the process that runs the suite.
    Case { subject: Subject, case: String },
    /// The harness is asked for other tests.
    Nothing,
}

/// A device, and how it is used.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) interface: Interface,
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
        args
    }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Mode, String> {
    let (mut name, mut case, mut filters) = (None, None, Vec::new());
    let (mut interface, mut only_listed) = (Interface::Classic, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--device" => name = Some(args.next().ok_or("--device needs a name")?),
            "--case" => case = Some(args.next().ok_or("--case needs a name")?),
            "--extended" => interface = Interface::Extended,
            "--list" => only_listed = true,
            option if option.starts_with('-') => {}
            filter => filters.push(filter.to_owned()),
        }
    }
    let wanted = filters.is_empty() || filters.iter().any(|f| "conformance::rxe".contains(f));
    Ok(match (name, case) {
        _ if only_listed => Mode::Nothing,
        (Some(name), Some(case)) => Mode::Case {
            subject: Subject { name, interface },
            case,
        },
        (Some(name), None) => Mode::Device(Subject { name, interface }, filters),
        (None, _) if wanted => Mode::VirtualMachine,
        (None, _) => Mode::Nothing,
    })
}
