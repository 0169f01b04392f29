//! Options of queue pairs and of the path between them, for all programs.

use adverb_launch::Usage;
use adverb_verbs::{
    AckTimeout, PathMtu, PathOptions, PostApi, RetryCount, ServiceLevel, TrafficClass,
};
use clap::Args;

use super::impair::ImpairArgs;

/// Options of the path between queue pairs.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PathArgs {
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both sides carry]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<PathMtu>,

    /// Local ACK timeout: retransmit what is unacknowledged for this long: 1ms, 200us [default: 67ms]
    ///
    /// A queue pair has timeouts of 4.096 µs × 2^n: the next longer one is used, and shown. A number
    /// without a unit is n, 1 to 31, as in perftest (14 is the default). The specification lets a device
    /// wait up to four times as long; soft@ADDR does.
    #[arg(short = 'u', long, visible_alias = "qp-timeout", value_name = "TIME")]
    timeout: Option<AckTimeout>,

    /// Retransmissions before a request fails, 0 to 7 [default: 7]
    #[arg(long, visible_alias = "retry-cnt", value_name = "N")]
    retries: Option<RetryCount>,

    /// Traffic class of packets (IP TOS: DSCP and ECN), 0 to 255 [default: the device's]
    #[arg(long, value_name = "CLASS")]
    traffic_class: Option<TrafficClass>,

    /// Service level of packets, 0 to 15 [default: the device's]
    #[arg(long, value_name = "LEVEL")]
    service_level: Option<ServiceLevel>,

    /// Posting interface of libibverbs: post (ibv_post_send) or wr (ibv_wr_*; not all drivers have it)
    /// [default: post]
    #[arg(long, value_name = "WHICH")]
    api: Option<PostApi>,

    #[command(flatten)]
    impair: ImpairArgs,
}

impl PathArgs {
    /// Returns the options for a program.
    ///
    /// # Errors
    /// --seed is given without any faults.
    pub(crate) fn options(&self) -> Result<PathOptions, Usage> {
        Ok(PathOptions {
            path_mtu: self.mtu,
            ack_timeout: self.timeout,
            retries: self.retries,
            // Only `connect` lets messages find no receive.
            rnr_retries: None,
            traffic_class: self.traffic_class,
            service_level: self.service_level,
            rate: None,
            api: self.api,
            impairment: self.impair.impairment().map_err(Usage)?,
            routed: false,
        })
    }
}

/// Returns each option of a path with its flag, as typed; `None` if the device chooses.
pub(crate) fn flags_of(path: &PathOptions) -> [(&'static str, Option<String>); 7] {
    [
        (
            "--mtu",
            path.path_mtu.map(|mtu| mtu.bytes().get().to_string()),
        ),
        (
            "--timeout",
            path.ack_timeout.map(|timeout| timeout.to_string()),
        ),
        (
            "--retries",
            path.retries.map(|retries| retries.get().to_string()),
        ),
        (
            "--traffic-class",
            path.traffic_class.map(|class| class.to_string()),
        ),
        (
            "--service-level",
            path.service_level.map(|level| level.to_string()),
        ),
        ("--api", path.api.map(|api| api.to_string())),
        ("--loss", path.impairment.map(|faults| faults.to_string())),
    ]
}
