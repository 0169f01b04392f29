//! The verbs: vocabulary, rules and the traits that every Adverb device implements.
//!
//! All of Adverb meets in this crate: a program written against [`Context`] and [`Station`] runs
//! unchanged on the user-space NIC, on libibverbs hardware and on the virtual-time model. This crate
//! does no I/O.
//!
//! * vocabulary in the words of the InfiniBand specification (IBTA volume 1) and `libibverbs`:
//!   [`ids`], [`access`], [`work`], [`completion`], [`caps`], [`priority`], [`path`];
//! * queue pairs: [`qp`] has their types, states and attributes, [`transition`] the table of state
//!   transitions, and [`rules`] what else devices check; they use both to decide and to explain refusals;
//! * [`impairment`]: the faults that a port injects on purpose, each with its [`probability`];
//! * [`srq`]: shared receive queues and the events that belong to them;
//! * the traits: [`device`] (the objects of a device) and [`station`] (the environment of a role: its
//!   device, clock, CPU account, out-of-band channel and byte streams, [`stream`]), and [`guarded`], a
//!   station with intercepted waits;
//! * errors by operation: [`error`].
//!
//! Section numbers of IBTA volume 1, here and in other crates, refer to releases after 1.2.1 (in 1.2.1 the
//! verbs of queue pairs, 11.2.5, are 11.2.4). Table numbers refer to the release in which table 45 lists
//! the RNR timers.
//!
//! Programs wait only through [`Station`]: in virtual time their coroutine yields there. Do not hold a
//! lock or a borrow across a wait.

pub mod access;
pub mod caps;
pub mod completion;
pub mod connect;
pub mod device;
pub mod error;
pub mod guarded;
pub mod ids;
pub mod impairment;
pub mod numa;
pub mod path;
pub mod priority;
pub mod probability;
pub mod qp;
pub mod random;
pub mod rate;
pub mod rules;
pub mod srq;
pub mod station;
pub mod stream;
pub mod transition;
pub mod work;

pub use access::AccessFlags;
pub use caps::{
    AtomicCap, DeviceCaps, DeviceName, GidType, LinkLayer, MAX_MESSAGE, PacketMarking,
    ParsePathMtuError, PathMtu, PortCaps, QpCaps,
};
pub use completion::{NotifyOn, WcFlags, WcOpcode, WcStatus, WorkCompletion};
pub use connect::{ConnectError, Connection, Endpoint, first_psn};
pub use device::{
    AddressHandle, CompletionChannel, CompletionQueue, Context, Counters, Device, GroupMember,
    MemoryRegion, PageKind, ProtectionDomain, QpInit, QueuePair,
};
pub use error::{
    CreateError, McastError, MemoryAccessError, ModifyQpError, ModifySrqError, OpenError,
    PollError, PostError, PostErrorCause, QuerySrqError, RegisterError, Unsupported,
    open_files_remedy,
};
pub use guarded::{Guard, Guarded};
pub use ids::{CqId, Gid, Imm, Lid, Lkey, PortNum, Psn, Qpn, Rkey, SrqId, Srqn, WrId};
pub use impairment::Impairment;
pub use numa::{
    Access, Arrays, CpuLoad, LoadTally, LoadWork, MemoryTimes, NodeChoice, NumaPlacement,
    ParseNodeChoiceError, PlacementError, WordCount,
};
pub use path::{PathOptionError, PathOptions, PostApi};
pub use priority::{ServiceLevel, TrafficClass};
pub use probability::{ParseProbabilityError, Probability};
pub use qp::{
    AckTimeout, AddressVector, QpAttr, QpAttrMask, QpState, QpType, RetryCount, RetryParams,
    RnrTimer,
};
pub use rate::{LinkRate, ParseLinkRateError};
pub use srq::{AsyncEvent, NoSrq, SharedReceiveQueue, SrqAttr, SrqCaps};
pub use station::{CpuTime, Level, NotCounted, OutOfBandError, RoleId, Station, WaitError, Work};
pub use stream::{Note, StreamAddress, StreamError, StreamStep, StreamWait, Streams};
pub use work::{
    AhRef, Comparison, Destination, Operation, RecvRequest, RemoteAddress, SendFlags, SendRequest,
    Sge, WindowBinding,
};
