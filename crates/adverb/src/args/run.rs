//! The command lines of `run` and `env`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use adverb_launch::Usage;
use adverb_verbs::{Impairment, PathMtu};
use clap::Args;

use super::impair::ImpairArgs;
use super::value::count;

/// Run a verbs program on a user-space RDMA device
///
/// PROGRAM needs no change and no rebuild: a library that `adverb` preloads takes
/// the place of libibverbs. It needs no RDMA hardware, kernel module or
/// root. In two terminals:
///
///   adverb run -- ib_write_lat
///   adverb run -- ib_write_lat localhost
///
/// The device is called adverb0. Two programs on one host, of one user, exchange
/// messages through shared memory; between hosts, containers or network
/// namespaces, give each side an address of its own host: RoCE over UDP.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "adverb run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "\
Examples:
  adverb run -- ibv_devinfo -v
  adverb run --address 10.0.0.1 -- ib_send_bw
  adverb run --loss 1% --seed 7 -- ibv_rc_pingpong localhost
  adverb run --pcap packets.pcap --udp-only -- ib_write_bw localhost
  mpirun -n 2 adverb run -- ./program

Exit status: that of PROGRAM; 127 if it is not found, and 126 if it cannot be
started with the library (statically linked, or for another processor)."
)]
pub(crate) struct RunArgs {
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,

    #[command(flatten)]
    pub(crate) nic: NicArgs,
}

/// Print what `adverb run` sets, as commands of a shell
///
/// Every program that this shell then starts gets the device:
///
///   eval "$(adverb env)"
///   ib_write_lat
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    pub(crate) nic: NicArgs,
}

/// The devices that a program sees.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NicArgs {
    /// Address of the devices: an IPv4 or IPv6 address of this host [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) address: Option<IpAddr>,

    /// Number of devices: adverb0, adverb1 …
    #[arg(long, value_name = "COUNT", value_parser = count::<u8, _>(1..=16), conflicts_with = "device_name")]
    pub(crate) devices: Option<u8>,

    /// Name of a device, instead of adverb0, with an address of its own as NAME=ADDR; repeatable
    #[arg(long, value_name = "NAME", value_parser = device)]
    pub(crate) device_name: Vec<String>,

    /// Largest path MTU of the port: 256, 512, 1024, 2048 or 4096 [default: what its interface carries]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<PathMtu>,

    /// Send everything over UDP, also what could be sent through shared memory
    ///
    /// Both sides have to be started with it, or with --loss, --duplicate, --reorder or --corrupt, which include it.
    #[arg(long)]
    pub(crate) udp_only: bool,

    /// Capture the packets of the UDP port in a file, for Wireshark; traffic in shared memory has no packets
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    /// Print the reason of each refused verbs call on stderr
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    impair: ImpairArgs,
}

impl NicArgs {
    /// Returns the injected faults; `None` if peers that share memory use it.
    ///
    /// # Errors
    /// --seed is given without any faults.
    pub(crate) fn faults(&self) -> Result<Option<Impairment>, Usage> {
        let faults = self.impair.impairment().map_err(Usage)?;
        Ok(faults.or_else(|| self.udp_only.then(Impairment::default)))
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        format!("invalid address '{text}': expected an IPv4 or IPv6 address of this host, such as 10.0.0.1")
    })
}

/// Checks `NAME` or `NAME=ADDR`.
fn device(text: &str) -> Result<String, String> {
    let (name, at) = match text.split_once('=') {
        Some((name, at)) => (name, Some(at)),
        None => (text, None),
    };
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !(1..=63).contains(&name.len()) || !name.chars().all(is_valid) {
        return Err(format!(
            "invalid name '{name}': expected 1 to 63 letters, digits, '_', '-' and '.'"
        ));
    }
    at.map_or(Ok(()), |at| address(at).map(drop))?;
    Ok(text.to_owned())
}
