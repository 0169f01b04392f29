//! Virtual machines in which verbs devices of the Linux kernel are tested, without root and
//! without RDMA hardware.
//!
//! A [`Lab`] is one machine or two, joined by a link. Each is QEMU in software emulation with a
//! Debian kernel and Soft-RoCE (`rxe0`)
//! over its network card (`eth0`, 10.77.0.1 and 10.77.0.2), with a path MTU of 4096 B. A machine runs programs of this host:
//!
//! ```no_run
//! use adverb_vm::{LabSpec, Program};
//!
//! let lab = LabSpec::one().boot()?;
//! let seen = lab.machine(0).run(&Program::new("ibv_devinfo"))?;
//! assert!(String::from_utf8_lossy(&seen.stdout).contains("rxe0"));
//! # Ok::<(), adverb_vm::Error>(())
//! ```
//!
//! A machine has the files of this host, at their own paths and read-only (9P); what it writes stays in its
//! memory (overlayfs). `/dev`, `/proc`, `/run` and `/sys` are its own.
//!
//! Nothing leaves the host: the link is a Unix socket, and programs are started over a
//! virtio-serial port. A machine ends with its [`Lab`], or with the process that booted it.
//!
//! For comparisons between programs in it, a machine is quiet: its `/init` sleeps until it is asked
//! for something, nothing else runs, the clock is the TSC, and nothing is mitigated or watched.
//!
//! Figures measured in such a machine belong to an emulated processor: they show that something works, but not
//! how fast it is.

mod console;
mod cpio;
mod error;
mod guest;
mod image;
mod kernel;
mod lab;
mod machine;
mod needs;
mod program;
mod protocol;
mod qemu;
mod unpack;

pub use error::Error;
pub use guest::{INIT_NAME, run_init};
pub use kernel::{Kernel, cache};
pub use lab::{Lab, LabSpec, LinkType, PEER_ADDRESS, PEER_NAMESPACE};
pub use machine::{Job, Machine};
pub use needs::{Need, missing};
pub use program::{Output, Program, Progress};
pub use protocol::Ending;
