//! Programs of the study of RDMA over IP in a WAN, each by RDMA and by sockets: `overlap`, `fetch`, `interference`
//! and `rendezvous`.

mod content;
mod end;
mod exchange;
mod interference;
mod outcome;
mod receiver;
mod streams;
mod transfers;

use adverb_results::{Completion, LatencyRecorder, Word, words};
use adverb_units::{Bytes, CpuTime, Span};
use adverb_verbs::{DeviceCaps, PathOptions, RoleId, Station};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::{Role, RoleLoad};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rendezvous::Protocol;
pub(crate) use content::last_byte;
pub(crate) use end::End;
pub use end::Traffic;
use exchange::Exchange;
use interference::Interference;
pub(crate) use streams::{Way, accept, connect};

/// The message of a member at its end.
const DONE: &[u8] = b"done";
/// Length of the requests of `fetch`.
const REQUEST: u32 = 16;

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// RDMA WRITE; the receiver polls its memory.
    Write,
    /// RDMA READ of the peer's memory.
    Read,
    /// SEND, and a receive.
    Send,
    /// Sockets of the kernel's TCP.
    Tcp,
}

impl By {
    /// Returns why nothing can wait like that for messages sent this way, and what to do; `None` if it can.
    fn refusal(self, completion: Completion) -> Option<&'static str> {
        match (self, completion) {
            (_, Completion::Poll) => None,
            (By::Write, _) => Some(
                "a WRITE's receiver polls memory, which raises no events; choose --completion poll",
            ),
            (By::Tcp, Completion::Hybrid(_)) => {
                Some("a reader of a socket polls or sleeps; choose --completion poll or event")
            }
            _ => None,
        }
    }
}

words! {
    By { Write => "write", Read => "read", Send => "send", Tcp => "tcp" }
}

/// What a program measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A client that computes while its message is answered.
    Overlap {
        /// How messages are sent.
        by: By,
        /// The length of its computation.
        compute: Span,
    },
    /// A client that fetches data of a busy server.
    Fetch {
        /// How it fetches them.
        by: By,
        /// What the server computes before it answers.
        response_delay: Span,
    },
    /// A computation at a server to which clients stream.
    Interference {
        /// How they send.
        by: By,
        /// The length of the computation.
        compute: Span,
        /// Clients.
        clients: u32,
        /// Machines that they are on.
        machines: u32,
        /// Memory that the computation reads in each millisecond.
        reads: Bytes,
    },
    /// Messages in turn by a protocol.
    Rendezvous {
        /// The protocol.
        protocol: Protocol,
    },
}

/// A program of the study, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// What it measures.
    pub task: Task,
    /// Length of messages: of answers (`fetch`), of both directions (`overlap`).
    pub size: Bytes,
    /// How many times it is measured.
    pub iters: u32,
    /// How roles wait for messages: a rendezvous polls.
    pub completion: Completion,
    /// Options of the path.
    pub path: PathOptions,
}

/// What a role has measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WanTally {
    /// Times of whole exchanges, of transfers, or of the computation under load.
    pub whole: LatencyRecorder,
    /// Times of exchanges without computation (`overlap`).
    pub communication: LatencyRecorder,
    /// Times of the computation alone (`overlap`, `interference`).
    pub computation: LatencyRecorder,
    /// Measured messages, and their payload.
    pub messages: u64,
    /// Payload in bytes.
    pub bytes: u64,
    /// Messages whose bytes were all checked.
    pub checked: u64,
    /// Requests posted, in the whole run.
    pub traffic: Traffic,
    /// The measured time.
    pub elapsed: Span,
    /// CPU time in the measured time.
    pub cpu: CpuTime,
}

impl Wan {
    /// Largest message.
    pub const MOST_SIZE: Bytes = Bytes::mib(64);

    /// Returns the length of messages.
    fn bytes(&self) -> u32 {
        u32::try_from(self.size.get()).unwrap_or(u32::MAX)
    }

    /// Returns how long its computations take; a server with clients takes some longer.
    pub(crate) fn asked(&self) -> Span {
        let iters = u64::from(self.iters);
        match self.task {
            Task::Overlap { compute, .. } => compute * iters,
            Task::Fetch { response_delay, .. } => response_delay * iters,
            Task::Interference { compute, .. } => compute * iters * 3,
            Task::Rendezvous { .. } => Span::ZERO,
        }
    }

    /// Returns how messages are sent, unless a protocol says it.
    fn by(&self) -> Option<By> {
        match self.task {
            Task::Overlap { by, .. } | Task::Fetch { by, .. } | Task::Interference { by, .. } => {
                Some(by)
            }
            Task::Rendezvous { .. } => None,
        }
    }

    /// Whether messages are sent by sockets.
    pub fn is_stream(&self) -> bool {
        match self.task {
            Task::Rendezvous { protocol } => protocol == Protocol::Sockets,
            _ => self.by() == Some(By::Tcp),
        }
    }

    /// Returns the program's name and its parameters, as records have them.
    pub fn parameters(&self) -> (&'static str, Value) {
        let (size, iters) = (self.size, self.iters);
        let (name, mut params) = match self.task {
            Task::Overlap { by, compute } => {
                let compute = compute.as_ns_f64();
                let params = json!({
                    "by": by.word(), "size_bytes": size, "compute_ns": compute, "iters": iters,
                });
                ("overlap", params)
            }
            Task::Fetch { by, response_delay } => {
                let delay = response_delay.as_ns_f64();
                let params = json!({
                    "by": by.word(), "size_bytes": size, "response_delay_ns": delay, "iters": iters,
                });
                ("fetch", params)
            }
            Task::Interference {
                by,
                compute,
                clients,
                machines,
                reads,
            } => {
                let mut params = json!({
                    "by": by.word(), "size_bytes": size, "clients": clients, "machines": machines,
                    "compute_ns": compute.as_ns_f64(), "iters": iters,
                });
                if reads > Bytes::new(0) {
                    params["read_memory_bytes"] = json!(reads);
                }
                ("interference", params)
            }
            Task::Rendezvous { protocol } => {
                let params = json!({
                    "protocol": protocol.word(), "size_bytes": size, "iters": iters,
                });
                ("rendezvous", params)
            }
        };
        params["completion"] = json!(self.completion);
        (name, params)
    }

    /// The host whose roles run where the program is started.
    pub fn home(&self) -> u32 {
        u32::from(matches!(self.task, Task::Interference { .. }))
    }

    fn exchange(&self) -> Option<Exchange> {
        let size = self.bytes();
        let (by, compute, response_delay, request) = match self.task {
            Task::Overlap { by, compute } => (by, Some(compute), Span::ZERO, size),
            Task::Fetch { by, response_delay } => (by, None, response_delay, REQUEST),
            _ => return None,
        };
        Some(Exchange {
            by,
            completion: self.completion,
            compute,
            response_delay,
            request,
            response: size,
            iters: self.iters,
        })
    }

    fn interference(&self) -> Option<Interference> {
        match self.task {
            Task::Interference {
                by,
                compute,
                clients,
                reads,
                ..
            } => Some(Interference {
                by,
                completion: self.completion,
                clients,
                compute,
                reads,
                size: self.bytes(),
                iters: self.iters,
            }),
            _ => None,
        }
    }

    /// The roles: a client and a server, a server, its clients and their readers, or two peers.
    pub fn roles(&self) -> Vec<Role> {
        let role = |number: u32, name: String, host: u32| Role {
            name,
            host,
            process: number,
            load: RoleLoad::Busy,
        };
        let named = |names: [&str; 2]| {
            let both = names.into_iter().zip(0..);
            both.map(|(name, number)| role(number, name.to_owned(), number))
                .collect()
        };
        match self.task {
            Task::Interference {
                clients, machines, ..
            } => {
                let server = role(0, "server".to_owned(), 0);
                let client = |n| role(1 + n, format!("client {n}"), 1 + n % machines.max(1));
                let reader = |n| Role {
                    load: RoleLoad::Preempting,
                    ..role(1 + clients + n, format!("reader {n}"), 0)
                };
                let readers = match self.completion {
                    Completion::Poll => 0,
                    _ => clients,
                };
                let clients = (0..clients).map(client);
                let all = std::iter::once(server).chain(clients);
                all.chain((0..readers).map(reader)).collect()
            }
            Task::Rendezvous { .. } => named(["first peer", "second peer"]),
            _ => named(["client", "server"]),
        }
    }

    /// Returns the memory that a role registers.
    pub fn memory(&self, role: RoleId) -> Bytes {
        let bytes = match (self.exchange(), self.interference()) {
            _ if self.is_stream() => 0,
            (Some(exchange), _) => exchange.memory(),
            (_, Some(interference)) => interference.memory(role),
            (None, None) => match self.task {
                Task::Rendezvous { protocol } => protocol.memory(self.bytes()),
                _ => 0,
            },
        };
        Bytes::new(bytes)
    }

    /// Checks the parameters against the limits of the device.
    ///
    /// # Errors
    /// The parameter that is out of range, and its limit.
    pub fn check(&self, caps: &DeviceCaps) -> Result<(), String> {
        if let Some(why) = self.by().and_then(|by| by.refusal(self.completion)) {
            return Err(format!("--completion {}: {why}", self.completion));
        }
        if self.is_stream() {
            return Ok(());
        }
        let roles = self.roles().len() as u32;
        let largest = (0..roles).map(|role| self.memory(RoleId(role))).max();
        match largest.filter(|bytes| *bytes > caps.max_mr_size) {
            Some(bytes) => Err(format!(
                "{bytes} of memory of a role exceed the device's max_mr_size {}; use a smaller --size or fewer --clients",
                caps.max_mr_size
            )),
            None => Ok(()),
        }
    }
}

/// Runs one role of a program.
///
/// # Errors
/// The device refuses, a message is wrong, or another role has failed.
pub fn run_wan<S: Station>(station: &S, wan: &Wan, role: RoleId) -> Result<WanTally, Fault> {
    let count = wan.roles().len() as u32;
    let others = (0..count).map(RoleId).filter(|other| {
        // Clients of one server do not know each other.
        *other != role && (role.0 == 0 || other.0 == 0)
    });
    let members = Members::new(station, (role, count), others);
    match (wan.exchange(), wan.interference(), wan.task) {
        (Some(exchange), ..) => exchange.run(&members, (role, wan.path)),
        (_, Some(interference), _) => interference.run(&members, (role, wan.path)),
        (.., Task::Rendezvous { protocol }) => transfers::run(
            &members,
            (role, wan.path),
            (protocol, wan.bytes(), wan.iters),
        ),
        _ => unreachable!("a task is an exchange, an interference or a rendezvous"),
    }
}
