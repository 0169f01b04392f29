//! A process of roles: receives its order, pins its threads, runs the roles, and answers.
//!
//! Each role is a thread of the process. With [`Mode::Threads`](crate::Mode) the same code runs in threads of
//! the calling process, over a socket to itself.

use std::any::Any;
use std::ffi::CString;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use adverb_host::{
    CpuScope, HostStation, HubFrame, HubLink, HubMail, TcpDevice, die_with_parent, pin,
    usable_cores,
};
use adverb_results::Impairment;
use adverb_units::{Bytes, CpuTime, Span};
use adverb_verbs::{Counters, Device, RoleId};
use adverb_workload::{Cause, Role, RoleError};
use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{AnyProgram, Catalog, Details, Opened, Played};
use crate::device::DeviceChoice;
use crate::text::one_line;

/// Timeout for the order, which was written before this process started.
const ORDER_TIMEOUT: Span = Span::from_secs(5);

/// The order for a process of roles.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The program, by its id.
    pub(crate) program: String,
    pub(crate) params: Value,
    /// The roles that this process runs.
    pub(crate) roles: Vec<Seat>,
    pub(crate) device: DeviceChoice,
    /// The parent process, with which this one dies; `None` in a thread of the parent.
    pub(crate) parent: Option<u32>,
    /// Maximum memory of the process, except registered memory; `None` is unlimited.
    pub(crate) memory: Option<Bytes>,
    /// This host's address on the network to another host of the run; a RoCE device uses a GID of that network.
    pub(crate) reached_at: Option<IpAddr>,
}

impl Order {
    /// Returns the role, if it is the only one of a process.
    fn alone(&self) -> Option<Seat> {
        match &self.roles[..] {
            [alone] if self.parent.is_some() => Some(*alone),
            _ => None,
        }
    }
}

/// A role and its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) role: RoleId,
    pub(crate) core: Option<u32>,
    /// Whether the run has more busy roles than cores, so that this role yields its core whenever a poll
    /// finds nothing.
    pub(crate) shares_core: bool,
}

/// The answer of a role at its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) role: RoleId,
    pub(crate) played: Played,
}

/// Returns the answer of a role that failed before it ran.
fn failed(name: &str, cause: Cause, reason: &str) -> Played {
    Played {
        end: Err(RoleError {
            reason: format!("{}: {reason}", label(name)),
            cause,
        }),
        counters: Counters::new(),
        details: Details::new(),
        cpu: CpuTime::default(),
    }
}

/// Returns a role's name in messages: `active side`, `client 3`.
pub(crate) fn label(name: &str) -> String {
    match name.contains(|c: char| c == ' ' || c.is_ascii_digit()) {
        true => name.to_owned(),
        false => format!("{name} side"),
    }
}

/// The main function of a process of roles; its stdin is a socket to the process that started it.
///
/// # Errors
/// It was started by a user, or the socket failed.
pub fn run_roles(catalog: &Catalog) -> anyhow::Result<()> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    let by_hand = "this command is started by others, such as `adverb ping`, for each role";
    serve(catalog, UnixStream::from(fd), None).context(by_hand)
}

/// Receives an order over `stream` and runs its roles.
pub(crate) fn serve(
    catalog: &Catalog,
    stream: UnixStream,
    stop: Option<Arc<AtomicBool>>,
) -> anyhow::Result<()> {
    let link = Arc::new(HubLink::new(stream)?);
    let order = link.control(ORDER_TIMEOUT)?.context("no order arrived")?;
    let order: Order = serde_json::from_slice(&order).context("the order cannot be read")?;
    if let Some(parent) = order.parent {
        die_with_parent(parent)?;
    }
    if let Some(memory) = order.memory {
        let most = Some(memory.get());
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(Resource::Data, limit)?;
    }
    let program = catalog.read(&order.program, &order.params);
    let program = program.map_err(anyhow::Error::msg)?;
    let group = Group {
        roles: program.roles(),
        shared: program.shared(),
        program,
        order,
        link,
        stop,
        usable: usable_cores(),
    };
    match group.order.alone() {
        Some(alone) => group.run(alone),
        None => std::thread::scope(|scope| {
            for seat in group.order.roles.iter().copied() {
                let group = &group;
                let thread = std::thread::Builder::new().name(group.name(seat.role).to_owned());
                let started = thread.spawn_scoped(scope, move || group.run(seat));
                if let Err(e) = started {
                    let reason = format!("cannot start a thread: {e}");
                    group.answer(
                        seat.role,
                        failed(group.name(seat.role), Cause::Own, &reason),
                    );
                }
            }
        }),
    }
    Ok(())
}

/// The roles of one process.
struct Group {
    program: Arc<dyn AnyProgram>,
    roles: Vec<Role>,
    shared: Box<dyn Any + Send + Sync>,
    order: Order,
    link: Arc<HubLink>,
    stop: Option<Arc<AtomicBool>>,
    /// CPUs that the process may use, before its threads are pinned.
    usable: Vec<u32>,
}

impl Group {
    fn name(&self, role: RoleId) -> &str {
        let role = self.roles.get(role.0 as usize);
        role.map_or("unknown", |role| &role.name)
    }

    /// Runs a role in the calling thread, and answers.
    fn run(&self, seat: Seat) {
        let name = self.name(seat.role);
        let played = catch_unwind(AssertUnwindSafe(|| self.play(seat)));
        let played = played.unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            let reason = format!("panicked: {}", said.unwrap_or("without a message"));
            Ok(failed(name, Cause::Own, &reason))
        });
        let played = played.unwrap_or_else(|error| failed(name, Cause::Own, &one_line(&error)));
        self.answer(seat.role, played);
    }

    fn answer(&self, role: RoleId, played: Played) {
        let answer = Answer { role, played };
        let bytes = serde_json::to_vec(&answer).expect("an answer has string keys");
        // If the parent is gone, there is nobody to answer.
        let _ = self.link.send(&HubFrame::Control(bytes));
    }

    fn play(&self, seat: Seat) -> anyhow::Result<Played> {
        show_name(self.name(seat.role));
        if let Some(core) = seat.core {
            pin(core).with_context(|| format!("cannot run on core {core}"))?;
        }
        let opened = self.open(seat)?;
        Ok(self.program.play(seat.role, opened, &*self.shared))
    }

    fn open(&self, seat: Seat) -> anyhow::Result<Opened> {
        let device = self.order.device.met_at(self.order.reached_at);
        let impairment = self.program.impairment();
        let checked = device.check_impairment(impairment.as_ref());
        checked.map_err(anyhow::Error::msg)?;
        Ok(match device {
            DeviceChoice::Soft(address) => {
                let device = match impairment {
                    None => address.device()?,
                    Some(all) => address.impaired(self.of_role(all, seat.role))?,
                };
                Opened::Soft(self.station(device.open()?, seat))
            }
            DeviceChoice::Verbs(device) => Opened::Verbs(self.station(device.open()?, seat)),
            DeviceChoice::Tcp(address) => {
                let station = self.station(TcpDevice.open()?, seat);
                Opened::Tcp(station.at_address(address.on_host(self.order.reached_at)))
            }
            DeviceChoice::Model(_) => bail!(
                "{} runs in virtual time, with all roles in one process",
                self.order.device
            ),
        })
    }

    /// Returns the faults that a role's port injects, with a different seed for each role.
    fn of_role(&self, impairment: Impairment, role: RoleId) -> Impairment {
        let seed = impairment.seed.wrapping_mul(self.roles.len() as u64);
        Impairment {
            seed: seed.wrapping_add(role.0.into()),
            ..impairment
        }
    }

    fn station<C: adverb_verbs::Context>(&self, context: C, seat: Seat) -> HostStation<C> {
        let roles = self.roles.len() as u32;
        let mail = HubMail::new(Arc::clone(&self.link), seat.role, roles);
        let station = HostStation::at_hub(context, mail)
            .sharing_core(seat.shares_core)
            .of_process_on(self.usable.clone());
        let station = match self.order.alone() {
            Some(_) => station,
            None => station.counting(CpuScope::Thread),
        };
        match &self.stop {
            None => station,
            Some(stop) => station.stopping(Arc::clone(stop)),
        }
    }
}

/// Sets the name that `top` shows; otherwise it would be the `exe` of `/proc/self/exe`.
fn show_name(role: &str) {
    if let Ok(name) = CString::new(format!("adverb-{role}")) {
        // Nothing depends on the name.
        let _ = rustix::thread::set_name(&name);
    }
}
