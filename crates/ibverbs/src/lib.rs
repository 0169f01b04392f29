//! Real devices: the seam over `libibverbs`, which is loaded at run time.
//!
//! [`devices`] lists them, [`VerbsDevice`] names one. Nothing is linked and nothing of it needs to
//! be installed to build. The data path calls through the operation tables of the driver, as the
//! inline functions of `infiniband/verbs.h` do, without allocating.
//!
//! Queue pairs are connected by hand, with what programs tell each other
//! ([`adverb_verbs::Endpoint`]), or through `librdmacm` ([`Connecting`]), which is the only way of
//! iWARP.
//!
//! What a driver leaves unchecked and costs nothing here is checked here: the state that requests
//! are posted in (as of the last Modify QP), inline READs and destinations. All else is the
//! driver's; its refusals are explained ([`mod@explain`]).

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
mod library;
mod memory;
mod modify;
mod multicast;
mod poll;
mod provenance;
mod qp;
mod raw;
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
