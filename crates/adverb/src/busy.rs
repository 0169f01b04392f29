//! Warns of other work that ran on this machine during a measurement.

use adverb_host::OtherWork;
use adverb_launch::DeviceChoice;

use crate::terminal;

/// Share of a machine's CPU time that other programs may use without a warning.
const UNNOTICED: f64 = 0.1;

/// Measures the CPU time of other programs during a command; `None` if the system does not report it.
pub(crate) struct LoadMonitor(Option<OtherWork>);

impl LoadMonitor {
    /// Starts measuring; does nothing on a model, whose time is virtual.
    pub(crate) fn from_now(device: &DeviceChoice) -> Self {
        match device {
            DeviceChoice::Model(_) => LoadMonitor(None),
            DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => {
                Self::of_this_machine()
            }
        }
    }

    /// Starts measuring.
    pub(crate) fn of_this_machine() -> Self {
        LoadMonitor(OtherWork::from_now())
    }

    /// Warns if other programs used too much, and returns their share.
    pub(crate) fn warn(self) -> Option<f64> {
        let share = self.0.and_then(|work| work.share());
        let share = share.filter(|share| *share > UNNOTICED);
        if let Some(share) = share {
            terminal::warn(&format!(
                "other programs used {:.0} % of this machine's CPU time during the measurement: the figures are noisy; measure again on an idle machine",
                100.0 * share
            ));
        }
        share
    }
}
