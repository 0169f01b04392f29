//! Warns of other work that ran on this machine during a measurement.

use adverb_host::OtherWork;
use adverb_launch::DeviceChoice;

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
            DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => {
                OtherWork::from_now()
            }
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
