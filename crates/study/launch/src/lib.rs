//! Starts the roles of any [`Program`](adverb_workload::Program): as threads, as processes, on several
//! hosts, or in virtual time.
//!
//! * [`Launcher`]: runs roles on real devices of this host and others; [`Run`] is the result;
//! * [`Hardware::run`]: runs roles on modelled hardware, as coroutines of one simulation
//!   ([`run_in_virtual_time`]); [`in_order`] starts such runs ahead on all cores;
//! * [`Catalog`]: the programs of an executable, which other processes and hosts name by id;
//!   [`run_roles`] is the main function of a process of roles;
//! * [`Peer`]: another host, where [`serve`] runs as `adverb serve`, or one of the [`Ranks`] of this job;
//! * [`place()`]: assigns hosts to roles;
//! * [`UnmodifiedProgram`], [`Variables`]: a program of somebody else that gets the user-space device;
//! * [`DeviceChoice`], [`DeviceInfo`]: devices by name, and their limits.
//!
//! Messages between roles pass through a star. Each process of roles has one socket to its parent, and each
//! host one connection to the caller. Nothing is printed here: the user gets [`Event`]s.

mod agent;
mod ahead;
mod catalog;
mod control;
mod device;
mod event;
mod hardware;
mod info;
mod interrupt;
mod local;
mod place;
mod process;
mod ranks;
mod remote;
mod role;
mod run;
mod space;
mod text;
mod unmodified;
mod virtual_time;

pub use adverb_hwmodel::{MMIO, Usage as HardwareUsage};
pub use adverb_ibverbs::GidChoice;
pub use agent::{AgentOptions, Until, serve};
pub use ahead::{Stop, in_order};
pub use catalog::{Catalog, Details, Entry};
pub use control::{HostPort, Peer, PeerAddress, Ranks, Welcome};
pub use device::{DeviceChoice, SoftAddress, TcpAddress};
pub use event::{Event, Log};
pub use hardware::{Hardware, Limits, PresetChoice, SUPPORT};
pub use info::DeviceInfo;
pub use interrupt::{Interrupt, report_file_size_limit};
pub use place::{Pinning, Placement, place};
pub use process::Mode;
pub use ranks::serve_rank_0;
pub use role::run_roles;
pub use run::{Failure, Launcher, RoleRun, Run, RunError};
pub use space::{NotRun, take_what_does_not_fit};
pub use text::{Usage, one_line, printable};
pub use unmodified::{CannotRun, UnmodifiedProgram, Variables};
pub use virtual_time::{VirtualLimits, VirtualRun, run_in_virtual_time};
