//! Devices and places: options that all measuring commands share.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use adverb_launch::{
    DeviceChoice, GidChoice, PeerAddress, Placement, PresetChoice, Ranks, SoftAddress, Usage,
};
use clap::Args;

/// The device of a measurement.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// The device to measure [default: soft]
    ///
    /// soft, the user-space device of this machine; soft@ADDR, the same with RoCE over UDP at ADDR, an
    /// address of this host; verbs:NAME[:PORT[:GID]], a device behind libibverbs (GID: index or IP
    /// address; verbs+cm:NAME connects through librdmacm); model:PRESET, a simulated NIC in virtual
    /// time (see `adverb model`); tcp or tcp@ADDR[:PORT], the kernel's TCP in place of RDMA, for programs that
    /// can use sockets (ADDR: of this host, PORT: where its passive side listens).
    /// soft@ADDR,soft@ADDR… makes this host act as several, one for each address. Under mpirun or srun,
    /// soft@auto uses the address at which the other ranks reach each host. `study`, `connect` and `rpc` compare
    /// several: model:cx3,model:connect_ib, or each with --device.
    #[arg(long, value_name = "DEV")]
    device: Vec<DeviceList>,

    /// A model from a preset file of your own, instead of --device (`adverb model show -h` shows one)
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    preset: Option<PathBuf>,

    /// GID of this host's port: index in its table (RoCE v1 or v2, IPv4 or IPv6), or IP address [default:
    /// as `adverb devices` shows]
    #[arg(long, value_name = "INDEX")]
    gid: Option<GidChoice>,
}

impl DeviceArgs {
    /// Returns the device given by --device or --preset.
    pub(crate) fn named(&self) -> Option<DeviceChoice> {
        let model = self.preset.as_ref();
        let model = model.map(|file| DeviceChoice::Model(PresetChoice::file(file)));
        let listed = || Some(self.with_gid(&self.device.first()?.0[0]));
        model.or_else(listed)
    }

    fn with_gid(&self, device: &DeviceChoice) -> DeviceChoice {
        let chosen = self.gid.and_then(|gid| device.with_gid(gid).ok());
        chosen.unwrap_or_else(|| device.clone())
    }

    /// The devices after the first one, which it is compared with.
    pub(crate) fn other_devices(&self) -> impl Iterator<Item = &DeviceChoice> {
        let lists = self.device.iter().flat_map(DeviceList::devices);
        lists.skip(1).flatten()
    }

    /// Returns each device as if it were the only one.
    pub(crate) fn each(&self) -> Vec<DeviceArgs> {
        let lists = self.device.iter().flat_map(DeviceList::devices);
        let of = |device: &[DeviceChoice]| DeviceArgs {
            device: vec![DeviceList(device.to_vec())],
            ..self.clone()
        };
        match self.device.len() {
            0 => vec![self.clone()],
            _ => lists.map(of).collect(),
        }
    }

    /// Returns the arguments that name this device alone, which has an address for each host that this machine acts as.
    pub(crate) fn of(addresses: Vec<DeviceChoice>) -> Self {
        DeviceArgs {
            device: vec![DeviceList(addresses)],
            preset: None,
            gid: None,
        }
    }

    /// Refuses several devices, and --gid for a device without a GID table.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        match self.other_devices().next() {
            Some(device) => Err(Usage(format!(
                "--device {device}: a device was named before; only `adverb study`, `adverb connect` and `adverb rpc` compare several"
            ))),
            None => self.check_gid(),
        }
    }

    /// Refuses --gid for a device without a GID table.
    pub(crate) fn check_gid(&self) -> Result<(), Usage> {
        let typed = match self.device.first() {
            Some(list) => list.0[0].clone(),
            None => self.choice(),
        };
        self.gid.map_or(Ok(()), |gid| typed.with_gid(gid).map(drop))
    }

    /// Returns the address of the user-space device, if it has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self.choice() {
            DeviceChoice::Soft(SoftAddress::At(ip)) => Some(ip),
            _ => None,
        }
    }

    /// Replaces `soft@auto` by the address at which peers reach this host.
    pub(crate) fn meet(&mut self, reached_from: Option<IpAddr>) {
        for device in self.device.iter_mut().flat_map(|list| &mut list.0) {
            if *device == DeviceChoice::Soft(SoftAddress::Met) {
                *device = device.met_at(reached_from);
            }
        }
    }

    /// Returns the devices of all hosts that this machine acts as.
    pub(crate) fn all(&self) -> Vec<DeviceChoice> {
        match self.device.first() {
            Some(list) if list.is_of_hosts() => list.0.clone(),
            _ => vec![self.choice()],
        }
    }

    /// Returns the given device, or the user-space device.
    pub(crate) fn choice(&self) -> DeviceChoice {
        self.named().unwrap_or(DeviceChoice::SOFT)
    }
}

/// Devices; or one user-space device at the addresses of several hosts.
#[derive(Clone, Debug)]
struct DeviceList(Vec<DeviceChoice>);

impl DeviceList {
    /// Whether it is one device, at an address for each of several hosts that this machine acts as.
    fn is_of_hosts(&self) -> bool {
        let is_at = |device: &DeviceChoice| match device {
            DeviceChoice::Soft(address) => *address != SoftAddress::None,
            _ => false,
        };
        self.0.len() > 1 && self.0.iter().all(is_at)
    }

    /// Returns the devices, each with all of its hosts.
    fn devices(&self) -> impl Iterator<Item = &[DeviceChoice]> {
        let hosts = if self.is_of_hosts() { self.0.len() } else { 1 };
        self.0.chunks(hosts)
    }
}

impl FromStr for DeviceList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let devices = text.split(',').map(str::parse);
        Ok(DeviceList(devices.collect::<Result<_, _>>()?))
    }
}

/// Where the roles of a program run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Run roles on another host, too, where `adverb serve` listens (default port 18600); repeatable
    ///
    /// ping, blast and study: the passive side; kv, sequencer and rpc: the server on the first one, further
    /// clients on others; closed-loop: the targets of the requests. Under mpirun or srun the other ranks
    /// are the peers, in their order: leave out --peer.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Vec<PeerAddress>,

    /// The other processes of `mpirun` or `srun`, if they are the peers.
    #[arg(skip)]
    pub(crate) ranks: Ranks,

    /// Override the host of roles: server=1,client=0 (host 0 is this one, the peers are 1, 2 …)
    #[arg(long, value_name = "ROLE=HOST,…")]
    pub(crate) place: Option<Placement>,

    /// Run each role in a process of its own (ping, blast and study always do)
    #[arg(long)]
    pub(crate) processes: bool,

    /// Cores of the roles on this host, in their order [default: the first usable ones, if there is one
    /// for each busy role]
    ///
    /// Roles of a peer run on cores that `adverb serve` chooses.
    #[arg(long, value_name = "N,N", conflicts_with = "no_pin")]
    pub(crate) cpu: Option<CoreList>,

    /// Do not pin; polling roles may then share a core
    #[arg(long)]
    pub(crate) no_pin: bool,
}

/// Cores of roles, in the roles' order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreList(pub(crate) Vec<u32>);

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cores = text.split(',').map(|core| core.trim().parse());
        cores.collect::<Result<_, _>>().map(CoreList).map_err(|_| {
            format!("invalid list of cores '{text}': expected core numbers, such as 0,1")
        })
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&cores.join(","))
    }
}
