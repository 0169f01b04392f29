//! Checks the RDMA setup of this machine and suggests fixes.
//!
//! [`Machine::gather`] collects facts: files below a root directory, and the kernel's facts about a
//! process. [`examine`] judges them: facts in, findings out, nothing is read or changed. [`text()`]
//! writes findings for people.
//!
//! A check judges what can be known here. Whether a switch keeps frames of 4200 bytes, a firewall
//! lets UDP port 4791 through or the fabric is lossless cannot, and is not guessed.

mod checks;
mod finding;
mod machine;
mod text;

pub use checks::{Scope, UnknownDevice, examine};
pub use finding::{Check, Finding, Remedy, Subject, System, Verdict};
pub use machine::{
    Access, CpuSet, DeviceFacts, HugePages, Iommu, Leftover, Libraries, Limit, Machine, Memory,
    Process, Processors, RefusedDir, SharedMemory,
};
pub use text::{Paint, counted, text};
