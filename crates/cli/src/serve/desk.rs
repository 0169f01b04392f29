//! Who is let in, and to what: the server's device, core and limits.

use std::net::IpAddr;

use adverb_host::{Machine, memory, numa_node, usable_cores};
use adverb_units::Bytes;
use adverb_verbs::DeviceCaps;

use crate::args::ServeArgs;
use crate::device::{DeviceChoice, DeviceInfo};
use crate::failure::{Usage, one_line};
use crate::remote::{Identity, Limits, Visit, Welcome, printable};
use crate::request::usable_core;

/// What the command line allows.
pub(super) struct Desk {
    device: Option<DeviceChoice>,
    core: Option<u32>,
    host: String,
}

/// Where a client's cells run.
pub(super) struct Place {
    pub(super) device: DeviceChoice,
    pub(super) caps: DeviceCaps,
    pub(super) welcome: Welcome,
}

impl Desk {
    /// # Errors
    /// In words for the user: the core or the device cannot be had.
    pub(super) fn new(args: &ServeArgs) -> anyhow::Result<Self> {
        let usable = usable_cores();
        let core = match args.cpu {
            Some(core) => Some(usable_core(core, &usable)?),
            None if args.no_pin => None,
            None => usable.first().copied(),
        };
        if let Some(device) = &args.device {
            refuse_model(device).map_err(|reason| Usage(format!("--device: {reason}")))?;
            DeviceInfo::query(device)?;
        }
        Ok(Desk {
            device: args.device.clone(),
            core,
            host: Machine::this().host,
        })
    }

    /// The device, if it is not for the client to choose.
    pub(super) fn device(&self) -> Option<&DeviceChoice> {
        self.device.as_ref()
    }

    /// Lets a client in that reaches this host `at` an address, unless `busy` with another one.
    ///
    /// # Errors
    /// Why not, for the client's user.
    pub(super) fn admit(
        &self,
        visit: &Visit,
        at: Option<IpAddr>,
        busy: Option<&str>,
    ) -> Result<Place, String> {
        if let Some(name) = busy {
            return Err(format!("busy with {name}: try again when that has ended"));
        }
        let device = match self.device_for(visit)? {
            device @ DeviceChoice::Soft(_) => device.met_at(at),
            device => device,
        };
        let info = DeviceInfo::query(&device.met_at(at)).map_err(|e| {
            format!(
                "{}; devices may have other names there: `adverb devices` lists them, and `adverb serve --device` chooses one",
                one_line(&e)
            )
        })?;
        let identity = Identity::of(&info);
        if device == DeviceChoice::SOFT {
            self.check_reach(&identity, visit)?;
        }
        let limits = Limits::of(&info, half_of(memory()));
        Ok(Place {
            caps: limits.within(&info.caps),
            welcome: Welcome {
                site: info.site,
                device: info.reference,
                limits,
                identity,
                core: self.core,
                numa_node: self.core.and_then(numa_node),
            },
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

    /// The user-space device reaches as far as one machine's memory.
    fn check_reach(&self, ours: &Identity, visit: &Visit) -> Result<(), String> {
        match visit.identity.parted_from(ours) {
            None => Ok(()),
            Some(why) => Err(format!(
                "device soft cannot reach from {} to {}: {why}, and its local port is shared memory of one user on one machine: name --device soft@ADDR on both sides, each with an address of its own",
                printable(&visit.host),
                self.host
            )),
        }
    }
}

/// Both sides of a model run in one process: it is not served, and no preset file is read for others.
fn refuse_model(device: &DeviceChoice) -> Result<(), String> {
    match device {
        DeviceChoice::Model(_) => Err(format!(
            "{device} is a model: both sides run in virtual time in one process, and nothing is served"
        )),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => Ok(()),
    }
}

/// A client may not take all of a host's memory.
fn half_of(memory: Bytes) -> Bytes {
    Bytes::new(memory.get() / 2)
}
