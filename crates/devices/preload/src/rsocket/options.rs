//! The options of an rsocket.

use std::ffi::c_int;
use std::time::Duration;

use libc::linger;

use super::sizes::Sizes;

/// Value of `TCP_KEEPIDLE` in seconds, unless the program sets it.
const KEEP_IDLE: c_int = 7200;

/// The options that a program has set. An accepted rsocket begins with the options of its listener.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    pub(super) keeps_alive: bool,
    pub(super) keep_idle: c_int,
    /// Options with a value that has no effect, by level and name.
    values: Vec<((c_int, c_int), c_int)>,
    pub(super) linger: linger,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sizes: Sizes::configured(),
            keeps_alive: false,
            keep_idle: KEEP_IDLE,
            values: Vec::new(),
            linger: linger {
                l_onoff: 0,
                l_linger: 0,
            },
        }
    }
}

impl Options {
    /// Returns the idle time after which a keepalive message is sent; `None` if the option is off.
    pub(super) fn keep_alive_after(&self) -> Option<Duration> {
        let idle = Duration::from_secs(self.keep_idle.unsigned_abs().into());
        self.keeps_alive.then_some(idle)
    }

    pub(super) fn kept(&self, option: (c_int, c_int)) -> c_int {
        let found = self.values.iter().find(|(name, _)| *name == option);
        found.map_or(0, |(_, value)| *value)
    }

    pub(super) fn keep(&mut self, option: (c_int, c_int), value: c_int) {
        self.values.retain(|(name, _)| *name != option);
        self.values.push((option, value));
    }
}
