//! How long to wait for acknowledgements: options of all programs.

use adverb_verbs::{AckTimeout, RetryCount};
use clap::Args;

/// Retransmission parameters.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RetryArgs {
    /// Local ACK timeout: retransmit what is unacknowledged for this long: 1ms, 200us [default: 67ms]
    ///
    /// A queue pair has timeouts of 4.096 µs × 2^n: the next longer one is used, and shown. A number
    /// without a unit is n, 1 to 31, as in perftest (14 is the default). The specification lets a device
    /// wait up to four times as long; soft@ADDR does.
    #[arg(short = 'u', long, visible_alias = "qp-timeout", value_name = "TIME")]
    pub(crate) timeout: Option<AckTimeout>,

    /// Retransmissions before a request fails, 0 to 7 [default: 7]
    #[arg(long, visible_alias = "retry-cnt", value_name = "N")]
    pub(crate) retries: Option<RetryCount>,
}
