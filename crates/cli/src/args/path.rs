//! Options of the path between queue pairs, for all programs.

use adverb_launch::Usage;
use adverb_verbs::{PathMtu, PathOptions, ServiceLevel, TrafficClass};
use clap::Args;

use super::impair::ImpairArgs;
use super::retry::RetryArgs;

/// What queue pairs ask of the path between them.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PathArgs {
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that both sides carry]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<PathMtu>,

    #[command(flatten)]
    pub(crate) retry: RetryArgs,

    /// Traffic class of packets (IP TOS: DSCP and ECN), 0 to 255 [default: the device's]
    #[arg(long, value_name = "CLASS")]
    pub(crate) traffic_class: Option<TrafficClass>,

    /// Service level of packets, 0 to 15 [default: the device's]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) service_level: Option<ServiceLevel>,

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
            traffic_class: self.traffic_class,
            service_level: self.service_level,
            impairment: self.impair.impairment().map_err(Usage)?,
        })
    }
}
