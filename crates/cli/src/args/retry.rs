//! How long to wait for acknowledgements: options of all programs.

use adverb_verbs::{AckTimeout, RetryCount};
use clap::Args;

/// When and how often requests are sent again.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RetryArgs {
    /// Send again what was not acknowledged for so long: 1ms, 200us [default: 67ms]
    ///
    /// A queue pair has timeouts of 4.096 µs × 2^n: the next longer one is taken, and shown. A number
    /// without a unit is n, 1 to 31, as perftest takes it (14 is the default). Devices may wait up to four
    /// times as long; soft@ADDR does.
    #[arg(short = 'u', long, visible_alias = "qp-timeout", value_name = "TIME")]
    pub(crate) timeout: Option<AckTimeout>,

    /// Send again so often before a request fails, 0 to 7 [default: 7]
    #[arg(long, visible_alias = "retry-cnt", value_name = "N")]
    pub(crate) retries: Option<RetryCount>,
}
