//! Options of queue pairs and of the path between them, for all programs.

use adverb_launch::Usage;
use adverb_verbs::{PathMtu, PathOptions, PostApi, ServiceLevel, TrafficClass};
use clap::Args;

use super::impair::ImpairArgs;
use super::retry::RetryArgs;

/// What queue pairs ask of the path between them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PathArgs {
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both sides carry]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<PathMtu>,

    #[command(flatten)]
    retry: RetryArgs,

    /// Traffic class of packets (IP TOS: DSCP and ECN), 0 to 255 [default: the device's]
    #[arg(long, value_name = "CLASS")]
    traffic_class: Option<TrafficClass>,

    /// Service level of packets, 0 to 15 [default: the device's]
    #[arg(long, value_name = "LEVEL")]
    service_level: Option<ServiceLevel>,

    /// Posting interface of libibverbs: post (ibv_post_send) or wr (ibv_wr_*, not of every driver)
    /// [default: post]
    #[arg(long, value_name = "WHICH")]
    api: Option<PostApi>,

    #[command(flatten)]
    impair: ImpairArgs,
}

impl PathArgs {
    /// As programs take them.
    ///
    /// # Errors
    /// There is a seed and nothing that it is for.
    pub(crate) fn options(&self) -> Result<PathOptions, Usage> {
        Ok(PathOptions {
            path_mtu: self.mtu,
            ack_timeout: self.retry.timeout,
            retries: self.retry.retries,
            // Only `connect` lets messages find no receive.
            rnr_retries: None,
            traffic_class: self.traffic_class,
            service_level: self.service_level,
            api: self.api,
            impairment: self.impair.impairment().map_err(Usage)?,
        })
    }
}

/// Returns each option of a path with its flag, as it is typed; `None` for those that are left to the device.
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
