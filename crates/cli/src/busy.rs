//! A machine that has other things to do than what is measured.

use std::{fmt, fs};

use adverb_host::{OtherWork, usable_cores};
use adverb_launch::DeviceChoice;
use serde::{Deserialize, Serialize};

use crate::terminal;

/// Share of a machine's CPU time that other programs may use before it is said.
const UNNOTICED: f64 = 0.1;

/// Whether other programs run while a command measures, where that can be told.
pub(crate) struct Beside(Option<OtherWork>);

impl Beside {
    /// From now on; nothing on a model, whose time is virtual.
    pub(crate) fn from_now(device: &DeviceChoice) -> Self {
        Beside(match device {
            DeviceChoice::Model(_) => None,
            DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => OtherWork::from_now(),
        })
    }

    /// Warns where they did.
    pub(crate) fn warn(self) {
        let share = self.0.and_then(|work| work.share());
        if let Some(share) = share.filter(|share| *share > UNNOTICED) {
            terminal::warn(&format!(
                "other programs took {:.0} % of this machine's CPU time meanwhile: the figures are noisy; measure again where nothing else runs",
                100.0 * share
            ));
        }
    }
}

/// A machine that had other things to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Busy {
    /// Processes that wanted to run in the last minute.
    load: f64,
    /// Cores for them.
    cores: usize,
}

impl Busy {
    /// Whether this machine is, now: who measures beside other work measures the other work.
    pub(crate) fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/loadavg").ok()?;
        let load = text.split_whitespace().next()?.parse().ok()?;
        let cores = usable_cores().len();
        (load > 0.5 * cores as f64).then_some(Busy { load, cores })
    }

    /// The one of the larger load.
    pub(crate) fn busier(self, other: Self) -> Self {
        if other.load > self.load { other } else { self }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load {:.1} on {} cores", self.load, self.cores)
    }
}
