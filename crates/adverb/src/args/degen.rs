//! The command line of `degen`.

use std::ffi::OsString;
use std::net::Ipv4Addr;

use adverb_degen::Ends;
use adverb_launch::Usage;
use adverb_verbs::Impairment;
use clap::Args;

use super::impair::ImpairArgs;
use super::value::count;

/// Run a program behind a long or bad path: a router between two network
/// namespaces
///
/// COMMAND runs in a new network namespace at 10.77.0.1, which is connected to
/// another one, 10.77.0.2, by nothing but a router in this process. The router
/// holds, drops and limits the packets of both directions as the options say. Any
/// IP traffic passes, the kernel's TCP included; each packet is held by its own
/// arrival time, so that a burst stays a burst. It needs /dev/net/tun, and no root
/// where the kernel allows user namespaces.
///
/// In COMMAND's environment, ADVERB_FAR is the beginning of a command that runs at
/// the far end: `$ADVERB_FAR iperf3 -s -1`.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    override_usage = "adverb degen [OPTIONS] [--far COMMAND] -- COMMAND [ARGS]...
       adverb degen [OPTIONS] --between NEAR FAR",
    after_help = "\
Examples:
  adverb degen --delay 10ms -- ping -c 3 10.77.0.2
  adverb degen --delay 10ms --loss 1% --far 'iperf3 -s -1' -- \\
    sh -c 'sleep 1; iperf3 -c 10.77.0.2'
  adverb degen --delay 5ms \\
    --far 'adverb serve --bind 10.77.0.2 --device soft@10.77.0.2' -- sh -c \\
    'sleep 1; adverb ping --op send --device soft@10.77.0.1 --peer 10.77.0.2'
  adverb degen --rate 100Mbit --queue 50 --between a b

Exit status: that of COMMAND; 127 if it is not found, and 126 if it cannot be
started."
)]
pub(crate) struct DegenArgs {
    /// The program at the near end, and its arguments
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        required_unless_present = "between"
    )]
    pub(crate) program: Vec<OsString>,

    /// Run this command of the shell at the far end, until COMMAND ends
    #[arg(long, value_name = "COMMAND", conflicts_with = "between")]
    pub(crate) far: Option<String>,

    /// Connect two existing network namespaces, by name or file, until Ctrl-C; needs root
    #[arg(long, value_names = ["NEAR", "FAR"], num_args = 2, conflicts_with = "program")]
    between: Option<Vec<String>>,

    /// IPv4 addresses of the near and the far end
    #[arg(
        long,
        value_names = ["NEAR", "FAR"],
        num_args = 2,
        default_values = ["10.77.0.1", "10.77.0.2"]
    )]
    addresses: Vec<Ipv4Addr>,

    /// Largest IP packet on the path, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "1500",
        value_parser = count::<u32, _>(576..=65_535)
    )]
    pub(crate) mtu: u32,

    #[command(flatten)]
    impair: ImpairArgs,
}

impl DegenArgs {
    /// Returns the ends of the path.
    pub(crate) fn ends(&self) -> Ends {
        match self.between.as_deref() {
            Some([near, far]) => Ends::Existing([near.clone(), far.clone()]),
            _ => Ends::New,
        }
    }

    /// Returns the addresses of both ends.
    ///
    /// # Errors
    /// They are the same, or packets to one of them do not leave the other end.
    pub(crate) fn addresses(&self) -> Result<[Ipv4Addr; 2], Usage> {
        let [near, far] = self.addresses[..] else {
            unreachable!("clap takes two");
        };
        if let Some(loopback) = [near, far].into_iter().find(Ipv4Addr::is_loopback) {
            return Err(Usage(format!(
                "--addresses: packets to {loopback} do not leave their host: use another range, such as 10.77.0.0/24"
            )));
        }
        match near == far {
            true => Err(Usage(format!(
                "--addresses: both ends have the address {near}: give each one of its own"
            ))),
            false => Ok([near, far]),
        }
    }

    /// Returns what happens to packets.
    ///
    /// # Errors
    /// --seed is given without any faults, or --jitter exceeds --delay.
    pub(crate) fn impairment(&self) -> Result<Impairment, Usage> {
        let all = self.impair.impairment().map_err(Usage)?;
        Ok(all.unwrap_or_default())
    }
}
