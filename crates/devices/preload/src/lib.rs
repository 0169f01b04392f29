//! The C interface of libibverbs over the user-space NIC, for programs that were built against rdma-core.
//!
//! `adverb run -- PROGRAM` loads this library into the program with `LD_PRELOAD`. Its symbols have no version, so they
//! satisfy every versioned reference to `libibverbs.so.1`, and the global scope is searched before the library that
//! the program was linked with. Programs reach most operations by exported functions, and the operations of the data
//! path through tables in the context, the queue pair and the completion queue, which the header's inline functions
//! read.
//!
//! # Layers
//! `call` turns results into errno values and catches panics; `object` pairs a C structure with its Rust object. There
//! is one file per object: `device` (the list), `context`, `port`, `pd`, `mr`, `channel`, `cq`, `qp`, `srq`, `ah`,
//! `events`. `open` opens contexts and fills their `tables`, so it is above all objects. `convert` translates
//! attributes and completions, `names` has enumerations as text. The extended interface is in `qp_ex` (with `send_ops`
//! and `batch`), `cq_ex`, `srq_ex`, `device_ex` and `domains`; `explain` is about errors that completions report;
//! `files` answers for the files of the devices in sysfs and `/dev`; `loading` makes `dlopen("libibverbs.so.1")` open
//! this library, on x86-64 with glibc. `fork` has the locks that are held during `fork`. `activity` counts what the
//! program does; `unsupported` has the operations that the user-space NIC does not have. `real` passes calls for real devices on to the machine's libibverbs. `cm` has the
//! functions of librdmacm, `rsocket` the functions of rsockets.
//!
//! # Rules
//! * No call prints to stdout, ends the process, or unwinds into C: `call` catches panics, and elsewhere Rust aborts
//!   the process if an `extern "C"` function panics.
//! * A thread is cancelled (`pthread_cancel`) in calls that wait, in functions that are `extern "C-unwind"`: the stack is
//!   unwound through frames that have nothing to drop. `call` disables cancellation in the rest.
//! * Every operation of the tables is present. A missing feature returns `EOPNOTSUPP`.
//! * With `ADVERB_EXPLAIN=1`, a refused call prints the reason to stderr, each line once.
//!
//! The operations are documented by the manual pages of rdma-core, which this crate follows.
//!
//! This crate needs `unsafe` for the objects behind the pointers of C.
#![allow(unsafe_code)]

#[macro_use]
mod real;

mod activity;
mod ah;
mod batch;
mod call;
mod channel;
mod cm;
mod context;
mod convert;
mod cq;
mod cq_ex;
mod device;
mod device_ex;
mod dm;
mod domains;
mod events;
mod explain;
mod files;
mod fork;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod loading;
mod mr;
mod mw;
mod names;
mod object;
mod open;
mod pd;
mod port;
mod qp;
mod qp_ex;
mod rates;
mod rsocket;
mod send_ops;
mod settings;
mod srq;
mod srq_ex;
mod tables;
mod unsupported;
mod xrcd;
