//! The environment of a role on a real machine.
//!
//! * [`threads()`]: runs a program on threads of this process, which is the shortest way to a first program
//!   (see `examples/` of the repository);
//! * [`HostStation`]: the [`Station`](adverb_verbs::Station) of a real device: `CLOCK_MONOTONIC`,
//!   `getrusage`, busy polling, and [`Link`]s to the other roles;
//! * [`TcpDevice`]: a host without RDMA, for programs that use the kernel's TCP, the
//!   [`Streams`](adverb_verbs::Streams) of each [`HostStation`];
//! * [`HubLink`]: the socket from a process of roles to its parent, which forwards out-of-band messages;
//!   [`Link`]: a direct channel between two roles;
//! * [`Wire`]: the same frames over TCP between hosts, for an owner that sleeps in `poll`;
//! * [`pin`], [`usable_cores`], [`die_with_parent`]: the process and its cores;
//! * [`nodes`], [`resolve`]: NUMA nodes, to which a station binds threads and memory;
//! * [`Topology`], [`Resident`]: where the memory and the threads of another process are, and moving pages;
//! * [`memory_times()`]: latency and bandwidth between NUMA nodes;
//! * [`Rank`]: the rank of a process in a job of `mpirun` or `srun`;
//! * [`OtherWork`], [`Busy`]: CPU use of other programs;
//! * [`PcieCounters`]: bytes over PCIe, from the counters of the processor;
//! * [`Machine`], [`Socket`], [`numa_node`], [`now_rfc3339`], [`Kernel`], [`memory()`]: facts for a record's provenance;
//! * [`cpu_times()`]: what clock, atomics, system calls, wake-ups and copies cost here;
//! * [`available_memory`]: a limit of what programs can allocate.
//!
//! Sockets, clocks and sleeping belong into this crate, RDMA does not.

mod clock;
mod computation;
mod cpu_times;
mod hub;
mod link;
mod load;
mod machine;
mod memory;
mod memory_times;
mod numa;
mod other_work;
mod pcie;
mod perf;
mod pmix;
mod process;
mod ranks;
mod resident;
mod socket;
mod station;
mod streams;
mod system_calls;
mod tcp;
mod threads;
mod wire;

pub use clock::CpuScope;
pub use cpu_times::{CpuTimes, cpu_times};
pub use hub::{HubFrame, HubLink, HubMail};
pub use link::{Link, MAX_FRAME, MAX_MESSAGE, Stream};
pub use machine::{Kernel, Machine, now_rfc3339, numa_node};
pub use memory::{available_memory, memory};
pub use memory_times::{memory_times, usual_arrays};
pub use numa::{nodes, resolve};
pub use other_work::{Busy, OtherWork};
pub use pcie::{PcieBytes, PcieCounters, PcieLog};
pub use process::{die_with_parent, pin, usable_cores};
pub use ranks::{Published, Rank, RankError};
pub use resident::{Mapping, Moved, Resident, Topology};
pub use socket::Socket;
pub use station::HostStation;
pub use streams::{KeyedListener, TcpConnection};
pub use tcp::{NoVerbs, TcpContext, TcpDevice};
pub use threads::threads;
pub use wire::{Wire, WireError};
