//! The command line.

use std::path::PathBuf;

use adverb_units::{Bytes, Span};
use adverb_vm::LinkType;
use clap::{Args, Parser, Subcommand, ValueEnum};

const ABOUT: &str = "\
Runs programs in virtual machines that have an RDMA device: Soft-RoCE, which the Linux kernel has in
software. Needs neither root nor RDMA hardware nor a network; nothing leaves this host. They see the
files of this host, and keep what they write to themselves.";

const EXAMPLES: &str = "\
Examples:
  adverb-vm check
  adverb-vm run -- ibv_devinfo -v
  adverb-vm run --serve 'ib_write_lat -d rxe0' -- ib_write_lat -d rxe0 10.77.0.1
  adverb-vm run --machines 2 --serve 'ib_send_lat -d rxe0' -- ib_send_lat -d rxe0 10.77.0.2
  adverb-vm run -- target/debug/deps/rules-0123 --nocapture

The machines: eth0 is 10.77.0.1 on the first (vm1) and 10.77.0.2 on the second (vm2); over it is
rxe0, whose GID 1 is that address (RoCEv2). The processor is emulated: what is measured here says
that something works, never how fast it is.

Exit status: that of PROGRAM (128 + N if signal N ended it); 124 if its time limit was reached;
125 if the machines failed; 2 for a command line that cannot be.";

/// The port of perftest, and of the pingpongs of libibverbs.
const PERFTEST_PORT: u16 = 18515;

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "adverb-vm",
    version,
    about = "Runs programs in virtual machines with Soft-RoCE",
    long_about = ABOUT,
    after_help = EXAMPLES,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Boot, run a program on the first machine, forward its output and exit status
    #[command(after_help = EXAMPLES)]
    Run(RunArgs),
    /// List missing requirements, one Debian package per line; exit status 1 if there are any
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Number of machines: 1, or 2 with connected network cards
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) machines: u8,

    /// Give the machine a second network card that is joined to the first: 10.77.0.2 in the network
    /// namespace `peer` (`ip netns exec peer PROGRAM`)
    #[arg(long = "loop", conflicts_with = "machines")]
    pub(crate) looped: bool,

    /// Write what passes the first machine's eth0 to this file of this host, as pcap
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,

    /// When the program has ended, copy a file or folder of the first machine to this host
    #[arg(long, value_name = "GUEST_PATH=HOST_PATH", value_parser = get)]
    pub(crate) get: Vec<Get>,

    /// Set a variable of the program's environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,

    /// First start this on the last machine (words at spaces) and wait until it listens on
    /// --serve-port; it is killed when the program has ended
    #[arg(long, value_name = "COMMAND")]
    pub(crate) serve: Option<String>,

    /// The TCP port on which the server is reached
    #[arg(long, value_name = "PORT", default_value_t = PERFTEST_PORT)]
    pub(crate) serve_port: u16,

    /// Kill the program after this time
    #[arg(long, value_name = "TIME", default_value = "600s")]
    pub(crate) limit: Span,

    /// The RDMA device: rxe (Soft-RoCE) or siw (Soft-iWARP, where the kernel has it)
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "rxe",
        hide_possible_values = true
    )]
    pub(crate) link: Link,

    /// Processors of each machine
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processors: u32,

    /// Memory of each machine
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) memory: Bytes,

    /// MTU of eth0 in bytes; RoCE's path MTU is the largest that fits with its headers: 4096 from
    /// 4176 on, 1024 with 1500
    #[arg(long, value_name = "BYTES", default_value = "9000", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: u16,

    /// The program (of this host, by path or name) and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<String>,
}

/// From where in the guest to where on this host.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    pub(crate) from: String,
    pub(crate) to: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Link {
    Rxe,
    Siw,
}

impl From<Link> for LinkType {
    fn from(link: Link) -> Self {
        match link {
            Link::Rxe => LinkType::Rxe,
            Link::Siw => LinkType::Siw,
        }
    }
}

fn get(text: &str) -> Result<Get, String> {
    let (from, to) = variable(text)?;
    let to = PathBuf::from(to);
    Ok(Get { from, to })
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' has no '=' with something before it")),
    }
}
