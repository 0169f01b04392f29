//! The command lines of `run` and `env`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use adverb_launch::Usage;
use adverb_softnic::{NamedDevice, ParseDeviceError, Settings, StatsFormat};
use adverb_verbs::{Impairment, PathMtu};
use clap::Args;

use super::impair::ImpairArgs;
use super::value::{count, one_of};

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
  adverb run --loss 1% --seed 7 -- ibv_rc_pingpong            both sides need
  adverb run --loss 1% --seed 7 -- ibv_rc_pingpong localhost  the same options
  adverb run --udp-only -- ib_write_bw
  adverb run --udp-only --pcap packets.pcap -- ib_write_bw localhost
  mpirun -n 2 adverb run -- ./program

The C interface is that of rdma-core 44, with the functions of 64. The layouts
of its structures suit programs built with the headers of rdma-core 24 to 64.

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
    address: Option<IpAddr>,

    /// Number of devices: adverb0, adverb1 …
    #[arg(long, value_name = "COUNT", value_parser = count::<u8, _>(1..=16), conflicts_with = "device_name")]
    devices: Option<u8>,

    /// Name of a device, instead of adverb0, with an address of its own as NAME=ADDR; repeatable
    #[arg(long, value_name = "NAME")]
    device_name: Vec<NamedDevice>,

    /// Largest path MTU of the port: 256, 512, 1024, 2048 or 4096 [default: what its interface carries]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<PathMtu>,

    /// Send everything over UDP, also what could be sent through shared memory
    ///
    /// Both sides have to be started with it, or with options of a bad network, which include it.
    #[arg(long)]
    udp_only: bool,

    /// Capture the packets of the UDP port in a file, for Wireshark; traffic in shared memory has no packets
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    /// Print on stderr, when a process ends, what it did with the devices: requests, completions, polls, packets
    ///
    /// As a table, or with --stats=json as a record. A process that ends by SIGKILL or _exit prints nothing.
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = one_of([("table", StatsFormat::Table), ("json", StatsFormat::Json)]),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    stats: Option<StatsFormat>,

    /// Write a record of what each process did to a folder: sizes, lists, signaling, waits
    ///
    /// Each process has a file of its own there, replaced once a second.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Hide the machine's real RDMA devices, which the program otherwise sees after these
    #[arg(long)]
    only_adverb: bool,

    /// Print the reason of each refused verbs call on stderr
    #[arg(long)]
    explain: bool,

    #[command(flatten)]
    impair: ImpairArgs,
}

impl NicArgs {
    /// Returns what the library reads.
    ///
    /// # Errors
    /// --seed is given without any faults, or two devices have one name.
    pub(crate) fn settings(&self) -> Result<Settings, Usage> {
        let default = Settings::default();
        let devices = match (self.devices, &self.device_name[..]) {
            (Some(count), _) => NamedDevice::numbered(count),
            (None, []) => default.devices,
            (None, named) => named.to_vec(),
        };
        let mut names = HashSet::new();
        if let Some(twice) = devices.iter().find(|device| !names.insert(&device.name)) {
            let name = &twice.name;
            return Err(Usage(format!(
                "--device-name '{name}' is given twice: give each device a name of its own"
            )));
        }
        let faults = self.impair.impairment().map_err(Usage)?;
        Ok(Settings {
            address: self.address.unwrap_or(default.address),
            devices,
            mtu: self.mtu,
            faults: faults.or_else(|| self.udp_only.then(Impairment::default)),
            stats: self.stats,
            record: self.record.clone(),
            only_adverb: self.only_adverb,
            explain: self.explain,
        })
    }
}

fn address(text: &str) -> Result<IpAddr, ParseDeviceError> {
    let refuse = |_| ParseDeviceError::Address(text.to_owned());
    text.parse().map_err(refuse)
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn settings(options: &str) -> Settings {
        let line = format!("adverb run {options} true");
        let matches = crate::args::command().get_matches_from(line.split_whitespace());
        let run = RunArgs::from_arg_matches(matches.subcommand().unwrap().1).unwrap();
        run.nic.settings().unwrap()
    }

    #[test]
    fn the_settings_are_the_options_as_they_were_given() {
        assert_eq!(settings(""), Settings::default());
        let some = settings(
            "--address 10.0.0.1 --device-name a --device-name b=fd00::1 --mtu 1024 --explain",
        );
        assert_eq!(some.address.to_string(), "10.0.0.1");
        let named: Vec<_> = some.devices.iter().map(NamedDevice::to_string).collect();
        assert_eq!(named, ["a", "b=fd00::1"]);
        assert_eq!(some.mtu, Some(PathMtu::B1024));
        assert!(some.explain);
        assert_eq!(some.faults, None);
        assert_eq!(settings("--stats").stats, Some(StatsFormat::Table));
        assert_eq!(settings("--stats=json").stats, Some(StatsFormat::Json));
        assert_eq!(settings("--devices 3").devices[2].name, "adverb2");
    }

    #[test]
    fn faults_and_udp_only_force_udp() {
        assert_eq!(settings("--udp-only").faults, Some(Impairment::default()));
        let faults = settings("--udp-only --loss 1% --seed 7").faults.unwrap();
        assert_eq!(faults.to_string(), "loss 1 % (seed 7)");
    }
}
