//! Real devices: the traits of `adverb-verbs` over `libibverbs`, which is loaded at run time.
//!
//! [`devices`] lists them, [`VerbsDevice`] names one. Nothing is linked, and building needs no
//! package of rdma-core. The data path calls through the operation tables of the driver, as the
//! inline functions of `infiniband/verbs.h` do, without allocating.
//!
//! The program connects queue pairs itself, by exchanging [`adverb_verbs::Endpoint`]s, or through
//! `librdmacm` ([`Connecting`]), the only way on iWARP.
//!
//! This crate checks what drivers do not and what costs nothing: the state in which requests are
//! posted (as of the last Modify QP), inline READs and destinations. The driver checks everything
//! else, and [`mod@explain`] turns the errno of a refusal into a cause and a remedy.

#![allow(unsafe_code, reason = "this crate calls libibverbs")]

mod address;
mod chain;
mod channel;
mod choice;
mod cm;
mod context;
mod cq;
mod device;
mod explain;
mod extended;
mod faults;
mod gid;
mod handle;
mod library;
mod mapping;
mod memory;
mod modify;
mod multicast;
mod poll;
mod provenance;
mod qp;
mod raw;
mod raw_qp;
mod srq;

pub use address::VerbsAh;
pub use channel::VerbsChannel;
pub use choice::{Connecting, GidChoice, Interface, NameError, ParseGidChoiceError, VerbsDevice};
pub use context::{VerbsContext, VerbsPd};
pub use cq::VerbsCq;
pub use device::{ListError, devices};
pub use gid::{GidError, GidTableEntry, choose};
pub use memory::VerbsMr;
pub use qp::VerbsQp;
pub use srq::VerbsSrq;
