//! The command line of `serve`.

use adverb_launch::{DeviceChoice, HostPort};
use clap::Args;

use super::place::CoreList;

/// Run roles of programs for `--peer` on another host
///
/// Serves any number of clients at the same time until Ctrl-C: every program takes
/// --peer. Each client has processes of its own here, which end with it.
///
/// Anyone who reaches the port can run measurements on this host: there is no
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
  adverb serve --bind 0.0.0.0 --cpu 4,5   on all networks; on cores 4 and 5
  adverb serve --bind [fe80::2%eth0]:7000 --once     ends after one client

On the other host:
  adverb ping --op send --peer 10.0.0.2"
)]
pub(crate) struct ServeArgs {
    /// Where to listen: an address of this host [default: 127.0.0.1:18600, this host alone]
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// The device of its roles [default: the one that the client names]
    ///
    /// Device names differ between hosts. Clients of another kind of device are refused.
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<DeviceChoice>,

    /// Cores of its roles [default: the first usable ones, if there is one for each busy role]
    #[arg(long, value_name = "N,N", conflicts_with = "no_pin")]
    pub(crate) cpu: Option<CoreList>,

    /// Let the kernel choose the cores
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// End after one client
    #[arg(long)]
    pub(crate) once: bool,

    /// End with this process, which has started this one
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
}
