//! The verbs: vocabulary, rules and the traits that every Adverb device implements.
//!
//! This crate is the one seam of Adverb. A program written against [`Context`] and [`Station`]
//! runs unchanged on the user-space NIC, on libibverbs hardware and on the virtual-time model.
//! Nothing here does I/O.
//!
//! * vocabulary in the words of the InfiniBand specification (IBTA volume 1) and `libibverbs`:
//!   [`ids`], [`access`], [`work`], [`completion`], [`caps`], [`path`];
//! * the queue pair's life: [`qp`] holds its states, attributes, the one transition table and the rules
//!   of requests, by which devices decide and explain refusals;
//! * [`impairment`]: the faults that a port injects on purpose, each with its [`probability`];
//! * [`srq`]: shared receive queues and the events that belong to them;
//! * the traits: [`device`] (what a device does) and [`station`] (what a role stands on: its
//!   device, clock, CPU account and out-of-band channel), and [`guarded`] (a station whose waits pass
//!   somebody else);
//! * errors by operation: [`error`].
//!
//! Here and elsewhere, sections of IBTA volume 1 have the numbers that releases after 1.2.1 give them
//! (in 1.2.1 the verbs of queue pairs, 11.2.5, are 11.2.4). Tables are counted as in those where 45
//! is that of the RNR timers.
//!
//! Every wait of a program goes through [`Station`]: in virtual time that is where its coroutine
//! yields. Hold no lock and no borrow across one.

pub mod access;
pub mod caps;
pub mod completion;
pub mod connect;
pub mod device;
pub mod error;
pub mod guarded;
pub mod ids;
pub mod impairment;
pub mod path;
pub mod probability;
pub mod qp;
pub mod srq;
pub mod station;
pub mod work;

pub use access::AccessFlags;
pub use caps::{
    AtomicCap, DeviceCaps, DeviceName, GidType, LinkLayer, MAX_MESSAGE, PacketMarking,
    ParsePathMtuError, PathMtu, PortCaps, QpCaps,
};
pub use completion::{NotifyOn, WcFlags, WcOpcode, WcStatus, WorkCompletion};
pub use connect::{ConnectError, Connection, Endpoint, first_psn};
pub use device::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, Counters, Device, MemoryRegion,
    ProtectionDomain, QpInit, QueuePair,
};
pub use error::{
    CreateError, McastError, MemoryAccessError, ModifyQpError, ModifySrqError, OpenError,
    PollError, PostError, PostErrorCause, QuerySrqError, RegisterError, Unsupported,
};
pub use guarded::{Guard, Guarded};
pub use ids::{CqId, Gid, Imm, Lid, Lkey, PortNum, Psn, Qpn, Rkey, SrqId, WrId};
pub use impairment::Impairment;
pub use path::{PathOptionError, PathOptions, ServiceLevel, TrafficClass};
pub use probability::{ParseProbabilityError, Probability};
pub use qp::{
    AckTimeout, AddressVector, QpAttr, QpAttrMask, QpState, QpType, RetryCount, RetryParams,
    RnrTimer,
};
pub use srq::{AsyncEvent, NoSrq, SharedReceiveQueue, SrqAttr, SrqCaps};
pub use station::{CpuTime, Level, OutOfBandError, RoleId, Station, WaitError, Work};
pub use work::{
    AhRef, Comparison, Destination, Operation, RecvRequest, RemoteAddress, SendFlags, SendRequest,
    Sge,
};
