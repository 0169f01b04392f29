//! What is measured, and where: options that all measuring commands share.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::device::DeviceChoice;
use crate::model::PresetChoice;
use crate::remote::HostPort;

/// Which device: for all that measures.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// The device to measure [default: soft]
    ///
    /// soft, the user-space device of this machine; soft@ADDR, the same with RoCE over UDP at ADDR, an
    /// address of this host; verbs:NAME[:PORT[:GID]], a device behind libibverbs (GID: index or IP
    /// address; verbs+cm:NAME connects through librdmacm); model:PRESET, hardware that is not there, in
    /// virtual time (see `adverb model`).
    #[arg(long, value_name = "DEV")]
    device: Option<DeviceChoice>,

    /// A model by a preset file of your own, in place of --device (`adverb model show -h` has one)
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    preset: Option<PathBuf>,
}

impl DeviceArgs {
    /// The device that was named, either way.
    pub(crate) fn named(&self) -> Option<DeviceChoice> {
        let model = self.preset.as_ref();
        let model = model.map(|file| DeviceChoice::Model(PresetChoice::file(file)));
        model.or_else(|| self.device.clone())
    }

    /// That, or the user-space device.
    pub(crate) fn choice(&self) -> DeviceChoice {
        self.named().unwrap_or(DeviceChoice::SOFT)
    }
}

/// Where the two sides run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Run the passive side on another host, where `adverb serve` listens (default port 18600)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Option<HostPort>,

    /// Cores of the active and the passive side [default: the first two usable ones]
    ///
    /// With --peer, the core of the active side alone: the server chooses its own.
    #[arg(long, value_name = "A,B", conflicts_with = "no_pin")]
    pub(crate) cpu: Option<CoreList>,

    /// Let the kernel choose the cores (two polling sides may meet on one)
    #[arg(long)]
    pub(crate) no_pin: bool,
}

/// Cores: that of the active side, and, where both sides run here, that of the passive side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreList {
    pub(crate) active: u32,
    pub(crate) passive: Option<u32>,
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let core = |part: &str| part.trim().parse::<u32>();
        let (active, passive) = match text.split_once(',') {
            Some((active, passive)) => (core(active), Some(core(passive))),
            None => (core(text), None),
        };
        match (active, passive.transpose()) {
            (Ok(active), Ok(passive)) => Ok(CoreList { active, passive }),
            _ => Err(format!(
                "'{text}' is no pair of cores: write two core numbers, such as 0,1 (with --peer one)"
            )),
        }
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.active)?;
        match self.passive {
            Some(passive) => write!(f, ",{passive}"),
            None => Ok(()),
        }
    }
}
