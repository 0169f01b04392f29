//! The binary interface of `libibverbs` (`infiniband/verbs.h`) and of connection set-up in
//! `librdmacm` (`rdma/rdma_cma.h`), as rdma-core keeps it stable.
//!
//! Only layout: structures, operation tables and constants, by their names in C. No function is
//! declared here, for the libraries are loaded at run time. Numbers of C's enumerations are plain
//! integers, because a driver may give others than those named here.
//!
//! The mirroring macros also list every structure, member and constant ([`LAYOUTS`],
//! [`CONSTANTS`]), and `tests/layout.rs` holds these lists against the installed headers.
//!
//! Quantities have the units of the headers: bytes, indices, codes. Members whose comment in C says
//! `__be32` and the like are in network byte order here, too.

#![allow(unsafe_code, reason = "an all-zero structure of C is made here")]
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "names as in the C headers"
)]
#![allow(missing_docs, reason = "members are documented by the C headers")]

mod attributes;
mod cma;
mod constants;
mod context;
mod extended;
mod mirror;
mod objects;
mod requests;

pub use attributes::*;
pub use cma::*;
pub use constants::*;
pub use context::*;
pub use extended::*;
pub use mirror::{Constant, Field, Layout};
pub use objects::*;
pub use requests::*;

/// All mirrored structures, by header.
pub const LAYOUTS: [&[Layout]; 6] = [
    objects::LAYOUTS,
    requests::LAYOUTS,
    extended::LAYOUTS,
    context::LAYOUTS,
    attributes::LAYOUTS,
    cma::LAYOUTS,
];

/// `vendor_id` of the user-space NIC, as `adverb run` shows it to programs.
pub const ADVERB_VENDOR: u32 = 0x02_ad_fe;

/// An operation that is mirrored only for its place.
pub type Unused = Option<unsafe extern "C" fn()>;
