//! The command line of `serve`.

use clap::Args;

use super::count;
use crate::device::DeviceChoice;
use crate::remote::HostPort;

/// Run the passive side for `--peer` on another host
///
/// Serves one client after another until Ctrl-C: `adverb ping`, `blast` and `study`
/// with --peer. While one is served, others are told so.
///
/// Whoever reaches the port can run measurements on this host: there is no
/// authentication and no encryption. A client chooses the program and its
/// parameters, within this host's limits, and nothing else. Without --bind, only
/// this host reaches it.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  adverb serve                          on this host alone, to try it
  adverb serve --bind 10.0.0.2          on the address of the RDMA network
  adverb serve --bind 0.0.0.0 --cpu 4   on all networks; its side on core 4
  adverb serve --bind [fe80::2%eth0]:7000 --once     ends after one client

On the other host:
  adverb ping --op send --peer 10.0.0.2"
)]
pub(crate) struct ServeArgs {
    /// Where to listen: an address of this host [default: 127.0.0.1:18600, this host alone]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// The device of this side [default: the one that the client names]
    ///
    /// Device names differ between hosts. Clients of another kind of device are refused.
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// The core of this side [default: the first usable one]
    #[arg(long, value_name = "N", conflicts_with = "no_pin", value_parser = count::<u32>)]
    pub(crate) cpu: Option<u32>,

    /// Let the kernel choose the core
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// End after one client
    #[arg(long)]
    pub(crate) once: bool,
}
