//! Requests of many clients to one server, answered by SEND, by WRITE, or not at all, because the clients READ what
//! they want (Kalia et al., SIGCOMM 2014 and ATC 2016).
//!
//! The members are server cores and clients, as in an [`Rpc`](crate::Rpc). A core computes a reply from all bytes
//! of its request, so that a client, which knows its request, can check each byte of the reply. READs fetch records with
//! which the server has filled its memory.

mod answers;
mod client;
mod content;
mod ends;
mod server;
mod service;
mod streams;

use adverb_results::{Word, words};
use adverb_units::{Bytes, Span, Time};
use adverb_verbs::{
    Context, DeviceCaps, Level, MemoryRegion, PathOptions, QpType, RoleId, Station, WaitError, Work,
};
use serde::{Deserialize, Serialize};

use crate::rpc::seats::Seats;
use crate::rpc::slots::Slots;
use crate::rpc::{Clients, Counter, RpcPart};
use crate::tally::ServiceTally;
use adverb_workload::attend::Members;
use adverb_workload::pattern::{Meter, PatternError, Schedule, Transport, Wait};
use adverb_workload::wiring::GRH;
use ends::Ends;

/// Records that clients READ.
const RECORDS: u64 = 1024;
/// Sizes of requests and replies.
const SIZES: std::ops::RangeInclusive<u32> = 8..=1 << 20;
/// Bytes of a number that a sequencer hands out.
const NUMBER: u32 = 8;
/// Most clients of a core: immediate data have 15 bits for the client.
const MAX_CLIENTS: u32 = 1 << 15;

/// How requests and replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EchoBy {
    /// Both by SEND.
    Send,
    /// Both by WRITE into memory that the receiver polls.
    Write,
    /// The request by WRITE, the reply by SEND, as in HERD. If replies are datagrams, requests use UC.
    WriteSend,
    /// The client READs what it wants; the server does nothing.
    Read,
    /// Both over a TCP connection of each client, whose sockets client and server poll.
    Tcp,
}

impl EchoBy {
    /// All ways.
    pub const ALL: [EchoBy; 5] = [
        EchoBy::Send,
        EchoBy::Write,
        EchoBy::WriteSend,
        EchoBy::Read,
        EchoBy::Tcp,
    ];

    /// Whether requests are written to memory that the server polls.
    fn writes_requests(self) -> bool {
        matches!(self, EchoBy::Write | EchoBy::WriteSend)
    }

    /// Whether replies are received.
    fn sends_replies(self) -> bool {
        matches!(self, EchoBy::Send | EchoBy::WriteSend)
    }

    /// Returns the bytes of the longest datagram over UD, which carries requests only if they are SENDs.
    pub fn longest_datagram(self, request: u32, reply: u32) -> u32 {
        match self {
            EchoBy::Send => request.max(reply),
            _ => reply,
        }
    }

    /// Returns why this way cannot use a transport, or clients cannot wait like that; `None` if it can.
    pub fn refusal(self, transport: Transport, wait: Wait) -> Option<&'static str> {
        match (self, transport) {
            (EchoBy::Read, QpType::Uc | QpType::Ud) => Some("only RC has READ"),
            (EchoBy::Write, QpType::Ud) => Some("UD has no WRITE"),
            // Of a program over TCP the transport of queue pairs is RC, as everywhere.
            (EchoBy::Tcp, QpType::Uc | QpType::Ud) => Some("TCP has no queue pairs"),
            (EchoBy::Tcp, _) if wait != Wait::Poll => Some("both sides poll their sockets"),
            (EchoBy::Write, _) if wait != Wait::Poll => {
                Some("both sides poll memory, which raises no events")
            }
            _ => None,
        }
    }
}

words! {
    EchoBy {
        Send => "send", Write => "write", WriteSend => "write-send", Read => "read", Tcp => "tcp"
    }
}

/// What a server replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Bytes that depend on all bytes of the request.
    Digest,
    /// The next number of a sequencer, which is handed out once. Only over TCP: an [`Rpc`](crate::Rpc) hands out numbers
    /// over queue pairs.
    Number,
}

/// A program of one server and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Echo {
    /// How requests and replies are sent.
    pub by: EchoBy,
    /// What the server replies.
    pub content: Reply,
    /// Transport of the replies, and of requests if it can carry them.
    pub transport: Transport,
    /// Bytes of a request.
    pub request: u32,
    /// Bytes of a reply.
    pub reply: u32,
    /// Server cores: machine 0.
    pub cores: u32,
    /// The clients: machines 1 and up.
    pub clients: Clients,
    /// Time from a reply to the client's next request.
    pub think: Span,
    /// How members wait for completions.
    pub wait: Wait,
    /// Options of the path between all queue pairs.
    pub path: PathOptions,
}

impl Echo {
    /// Returns a sequencer over TCP.
    pub fn sequencer(cores: u32, clients: Clients) -> Self {
        Echo {
            by: EchoBy::Tcp,
            content: Reply::Number,
            transport: Transport::Rc,
            request: NUMBER,
            reply: NUMBER,
            cores,
            clients,
            think: Span::ZERO,
            wait: Wait::Poll,
            path: PathOptions::default(),
        }
    }

    pub(crate) fn seats(&self) -> Seats {
        Seats {
            cores: self.cores,
            clients: self.clients.threads,
            machines: self.clients.machines,
        }
    }

    /// Returns the transport of requests: WRITEs need a connection.
    fn request_transport(&self) -> Transport {
        match self.transport {
            QpType::Ud if self.by.writes_requests() => QpType::Uc,
            transport => transport,
        }
    }

    fn slots(&self, bytes: u32) -> Slots {
        Slots {
            each: self.clients.outstanding,
            stride: (bytes + GRH).next_multiple_of(64),
        }
    }

    /// Returns the slots of a client's requests.
    fn requests(&self) -> Slots {
        self.slots(self.request)
    }

    /// Returns the slots of a client's replies.
    fn replies(&self) -> Slots {
        self.slots(self.reply)
    }

    /// Returns the size of the memory into which a member's peers write, which is followed by what it sends.
    fn inbox(&self, role: RoleId) -> u64 {
        match self.seats().part(role) {
            RpcPart::Core(_) if self.by == EchoBy::Read => {
                RECORDS * u64::from(self.replies().stride)
            }
            RpcPart::Core(core) => self.requests().bytes() * self.clients_of(core),
            RpcPart::Client(_) => self.replies().bytes(),
        }
    }

    /// Returns the memory of a member.
    pub(crate) fn memory(&self, role: RoleId) -> Bytes {
        if self.by == EchoBy::Tcp {
            return Bytes::new(0);
        }
        let outbox = match self.seats().part(role) {
            RpcPart::Core(_) if self.by == EchoBy::Read => 0,
            RpcPart::Core(core) => self.replies().bytes() * self.clients_of(core),
            RpcPart::Client(_) => self.requests().bytes(),
        };
        Bytes::new(self.inbox(role) + outbox)
    }

    fn clients_of(&self, core: u32) -> u64 {
        self.seats().clients_of(core).count() as u64
    }

    pub(crate) fn check(&self, caps: &DeviceCaps) -> Result<(), PatternError> {
        let clients = &self.clients;
        let (first, last) = (*SIZES.start(), *SIZES.end());
        let per_core = clients.threads.div_ceil(self.cores.max(1));
        // Requests as datagrams are received by one queue pair of a core.
        let receives = match (self.by, self.transport) {
            (EchoBy::Tcp, _) => 1,
            (EchoBy::Send, QpType::Ud) => per_core.saturating_mul(clients.outstanding),
            _ => clients.outstanding,
        };
        for (what, given, max) in [
            ("server cores", self.cores, 1 << 10),
            ("clients", clients.threads, 1 << 14),
            ("clients of a core", per_core, MAX_CLIENTS),
            ("client machines", clients.machines, 1 << 14),
            ("requests of a client", clients.outstanding, 1 << 12),
            ("receives of a queue pair", receives, caps.max_qp_wr.max(1)),
            ("bytes of a request", self.request, last),
            ("bytes of a reply", self.reply, last),
        ] {
            if !(1..=max).contains(&given) {
                return Err(PatternError::Count { what, given, max });
            }
        }
        if self.request.min(self.reply) < first {
            return Err(PatternError::Refused(format!(
                "requests and replies of less than {first} B cannot be checked"
            )));
        }
        if self.content == Reply::Number && (self.by, self.reply) != (EchoBy::Tcp, NUMBER) {
            return Err(PatternError::Refused(format!(
                "numbers are handed out over TCP, in replies of {NUMBER} B"
            )));
        }
        match self.by.refusal(self.transport, self.wait) {
            Some(why) => Err(PatternError::Refused(format!(
                "{} over {}: {why}",
                self.by.word(),
                self.transport
            ))),
            None => Ok(()),
        }
    }
}

/// Runs member `me`; all members run at the same time. The cores share `counter`, so on real devices they are threads of
/// one process.
///
/// # Errors
/// An object could not be created, a request was refused, failed or was lost, a reply is wrong, or another member has
/// ended.
pub fn run_echo<S: Station>(
    station: &S,
    echo: &Echo,
    me: RoleId,
    counter: &Counter,
    schedule: Schedule,
) -> Result<ServiceTally, PatternError> {
    echo.check(station.context().caps())?;
    let seats = echo.seats();
    let members = Members::new(station, (me, seats.members()), seats.peers(me));
    let part = seats.part(me);
    if echo.by == EchoBy::Tcp {
        return streams::run(&members, echo, part, counter, schedule);
    }
    let ends = Ends::new(&members, echo, me)?;
    if matches!(part, RpcPart::Core(_)) && echo.by == EchoBy::Read {
        fill_records(echo, ends.requests())?;
    }
    members.meet()?;
    let tally = match part {
        RpcPart::Core(_) if echo.by == EchoBy::Read => rest(station, schedule),
        RpcPart::Core(core) => server::Core::new(&members, echo, &ends, core, schedule).run()?,
        RpcPart::Client(client) => {
            client::Client::new(&members, echo, &ends, client, schedule).run()?
        }
    };
    // Objects are kept until all members are done, because their last messages may be in flight.
    members.meet()?;
    Ok(tally)
}

/// Returns where a record of `reply` bytes begins.
fn record(slots: Slots, place: u64) -> u64 {
    place * u64::from(slots.stride)
}

/// Fills the server's memory with records.
fn fill_records(echo: &Echo, mr: &impl MemoryRegion) -> Result<(), PatternError> {
    let mut bytes = vec![0; echo.reply as usize];
    for place in 0..RECORDS {
        content::fill(&mut bytes, place);
        mr.write(record(echo.replies(), place), &bytes)?;
    }
    Ok(())
}

/// Sleeps through the measured time, and returns the CPU time used in it.
fn rest<S: Station>(station: &S, schedule: Schedule) -> ServiceTally {
    let mut meter = Meter::new(station.now(), schedule);
    for part in [schedule.warm_up, schedule.measured] {
        station.sleep(part);
        meter.look(station, station.now(), 0);
    }
    ServiceTally::default().measured_by(&meter)
}

/// Accounts for loading a message.
fn load<S: Station>(station: &S, bytes: u32) {
    station.account(Work::Load {
        lines: bytes.div_ceil(64),
        from: Level::Cache,
    });
}

/// Accounts for loading and decoding a request.
fn load_request<S: Station>(station: &S, bytes: u32) {
    load(station, bytes);
    station.account(Work::Decode { requests: 1 });
}

/// Returns what a core has served until `until`: its clients may have begun, and ended, a little earlier.
fn served<S: Station>(station: &S, until: Time, mut meter: Meter, answered: u64) -> ServiceTally {
    let now = station.now();
    if now < until {
        station.sleep(until - now);
    }
    meter.look(station, station.now(), answered);
    ServiceTally::default().measured_by(&meter)
}

/// Returns 0 for a timeout.
fn or_none(found: Result<usize, PatternError>) -> Result<usize, PatternError> {
    match found {
        Err(PatternError::Wait(WaitError::TimedOut { .. })) => Ok(0),
        found => found,
    }
}
