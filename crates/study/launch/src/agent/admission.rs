//! Admission of callers: the agent's device, cores and limits.

use std::net::IpAddr;
use std::time::Duration;

use adverb_host::{Machine, memory, usable_cores};
use adverb_units::Bytes;
use adverb_verbs::DeviceCaps;

use super::AgentOptions;
use crate::control::{Identity, Limits, Visit, Welcome};
use crate::device::DeviceChoice;
use crate::info::DeviceInfo;
use crate::place::Pinning;
use crate::text::{Usage, one_line, printable};

/// Decides which callers are admitted, by the command line.
pub(super) struct Admission {
    device: Option<DeviceChoice>,
    pinning: Pinning,
    leisure: Duration,
    host: String,
}

/// Where a session's roles run.
pub(super) struct Place {
    pub(super) pinning: Pinning,
    /// Timeout for a silent caller between runs.
    pub(super) leisure: Duration,
    /// Maximum memory of a process.
    pub(super) memory: Bytes,
    pub(super) device: DeviceChoice,
    pub(super) caps: DeviceCaps,
    pub(super) welcome: Welcome,
}

impl Admission {
    /// Checks the device. Callers may be silent for `leisure` between runs.
    ///
    /// # Errors
    /// The device cannot be used.
    pub(super) fn new(options: &AgentOptions, leisure: Duration) -> anyhow::Result<Self> {
        if let Some(device) = &options.device {
            refuse_model(device).map_err(|reason| Usage(format!("--device: {reason}")))?;
            DeviceInfo::query(device)?;
        }
        Ok(Admission {
            device: options.device.clone(),
            pinning: options.pinning.clone(),
            leisure,
            host: Machine::this().host,
        })
    }

    /// Returns the device, unless the client chooses it.
    pub(super) fn device(&self) -> Option<&DeviceChoice> {
        self.device.as_ref()
    }

    /// Admits a caller that reaches this host at the address `at`.
    ///
    /// # Errors
    /// The reason of a refusal, for the caller's user.
    pub(super) fn admit(&self, visit: &Visit, at: Option<IpAddr>) -> Result<Place, String> {
        let device = match self.device_for(visit)? {
            device @ DeviceChoice::Soft(_) => device.met_at(at),
            device => device,
        };
        let info = DeviceInfo::query(&device.met_at(at)).map_err(|e| {
            format!(
                "{}; device names may differ there: `adverb devices` lists them, and `adverb serve --device` chooses one",
                one_line(&e)
            )
        })?;
        let identity = Identity::of(&info);
        if device == DeviceChoice::SOFT {
            self.check_reach(&identity, visit)?;
        }
        let memory = half_of(memory());
        let limits = Limits::of(&info, memory);
        Ok(Place {
            caps: limits.within(&info.caps),
            welcome: Welcome {
                site: info.site,
                device: info.reference,
                limits,
                identity,
                usable: usable_cores(),
                cores: match &self.pinning {
                    Pinning::Cores(cores) => Some(cores.clone()),
                    Pinning::Automatic | Pinning::None => None,
                },
            },
            pinning: self.pinning.clone(),
            leisure: self.leisure,
            memory,
            device,
        })
    }

    fn device_for(&self, visit: &Visit) -> Result<DeviceChoice, String> {
        refuse_model(&visit.device)?;
        let Some(ours) = &self.device else {
            return Ok(visit.device.clone());
        };
        if ours.reaches(&visit.device) {
            return Ok(ours.clone());
        }
        Err(format!(
            "it serves {ours} only (`adverb serve --device`), which cannot talk to {}: name a --device of the same kind (soft@ADDR and RoCE devices of libibverbs talk to each other)",
            visit.device
        ))
    }

    /// Refuses the user-space device without UDP port between machines, users or containers.
    fn check_reach(&self, ours: &Identity, visit: &Visit) -> Result<(), String> {
        match visit.identity.parted_from(ours) {
            None => Ok(()),
            Some(why) => Err(format!(
                "device soft cannot reach from {} to {}: {why}, and its local port is shared memory of one user on one machine: name --device soft@ADDR on both sides, each with an address of its own (under mpirun or srun, soft@auto)",
                printable(&visit.host),
                self.host
            )),
        }
    }
}

/// Refuses a model: all of its roles run in one process, and an agent reads no preset files for others.
fn refuse_model(device: &DeviceChoice) -> Result<(), String> {
    match device {
        DeviceChoice::Model(_) => Err(format!(
            "{device} is a model: both sides run in virtual time in one process, and nothing is served"
        )),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => Ok(()),
    }
}

/// Returns half of the host's memory: a client must not use all of it.
fn half_of(memory: Bytes) -> Bytes {
    Bytes::new(memory.get() / 2)
}
