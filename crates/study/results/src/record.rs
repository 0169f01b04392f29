//! The record and its parts, as the file stores them.

use std::collections::BTreeMap;

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Impairment;
use adverb_verbs::{LinkRate, PostApi};

/// Version of the record's layout. A reader refuses a newer one, and reads all older ones.
pub const SCHEMA: u32 = 2;

/// Parameters or metrics by name, in the order in which the program names them. Names end with the unit.
pub type Values = serde_json::Map<String, Value>;

/// Returns the names of the parameters that differ between `points`, or that only some have, in the order of their first
/// use.
pub fn swept(points: &[&Values]) -> Vec<String> {
    let mut names: Vec<&String> = Vec::new();
    for name in points.iter().flat_map(|point| point.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let differs = |name: &&String| {
        let mut values = points.iter().map(|point| point.get(name.as_str()));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    names.into_iter().filter(differs).cloned().collect()
}

/// Returns a parameter as a word, such as `rpc` or `16`; `None` without a value.
pub fn word(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the number at a path of names, such as `latency_ns.mean`.
fn at(metrics: &Values, path: &str) -> Option<f64> {
    let mut names = path.split('.');
    let first = metrics.get(names.next()?)?;
    names
        .try_fold(first, |value, name| value.get(name))?
        .as_f64()
}

/// One measured (or failed) cell: one program with one set of parameters on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Layout version, [`SCHEMA`].
    pub schema: u32,
    /// Identity of the cell: equal for the same program and parameters.
    pub cell: String,
    /// Name that the user gave to the measurement (`--label`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Number of the pass over a study's plan that measured this, from 1; `None` if the record holds
    /// all repetitions. [`merged`](crate::merged) combines the passes of a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<u32>,
    /// Figures of the study that show this cell (`fig1`, `rank-rtt`, …); empty outside a study.
    pub figures: Vec<String>,
    /// Program that ran: `ping`, `kv`, ….
    pub program: String,
    /// Device that it ran on.
    pub device: DeviceRef,
    /// Parameters by name.
    pub params: Values,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Metrics by name; `None` if the cell failed.
    pub metrics: Option<Values>,
    /// Where each role ran, and what it did; empty in records of `ping` and `blast` that schema 1 wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleRun>,
    /// Device counters that changed, by role.
    #[serde(default)]
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
    /// Where, when and with what.
    pub provenance: Provenance,
}

impl Record {
    /// Returns the metric at a path of names, such as `one_way_ns.mean`; `None` if it was not measured.
    pub fn metric(&self, path: &str) -> Option<f64> {
        at(self.metrics.as_ref()?, path)
    }

    /// Returns a metric of each role that requests, in their order.
    pub fn of_requesters(&self, path: &str) -> Vec<f64> {
        let roles = self.roles.iter();
        let requesters = roles.filter(|role| role.name.starts_with("requester"));
        requesters
            .filter_map(|role| at(&role.metrics, path))
            .collect()
    }

    /// Returns the requests per second that clients were to send; `None` in a closed loop.
    pub fn offered(&self) -> Option<f64> {
        self.params.get("offered_per_s")?.as_f64()
    }

    /// Whether its path loses packets by chance.
    pub fn loses(&self) -> bool {
        let path = self.params.get("impairment").map(Impairment::deserialize);
        path.is_some_and(|path| path.is_ok_and(|path| path.loses()))
    }

    /// Whether another repetition may give other figures: a model that loses no packets is deterministic.
    pub fn has_noise(&self) -> bool {
        self.device.kind != DeviceKind::Model || self.loses()
    }

    /// Returns the values of a metric in each repetition; empty if repetitions do not have it.
    pub fn repetitions(&self, name: &str) -> Vec<f64> {
        let all = self.each_repetition();
        all.filter_map(|repetition| repetition.get(name)?.as_f64())
            .collect()
    }

    /// Returns the number of repetitions.
    pub fn repetition_count(&self) -> usize {
        self.each_repetition().count()
    }

    fn each_repetition(&self) -> impl Iterator<Item = &Value> {
        let all = self.metrics.as_ref().and_then(|m| m.get("repetitions"));
        all.and_then(Value::as_array).into_iter().flatten()
    }

    /// Returns whether it is of a `ping` whose round is a single request ([`Program::is_round_trip`]).
    pub fn is_round_trip(&self) -> bool {
        let op = self.params.get("op").map(Opcode::deserialize);
        self.program == "ping" && op.is_some_and(|op| op.is_ok_and(Opcode::is_fetch))
    }

    /// Whether the cell was measured.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Ok && self.metrics.is_some()
    }
}

/// One role of a measured program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoleRun {
    /// Name within the program: `active`, `server core 0`, `client 3`.
    pub name: String,
    /// Host that it ran on.
    pub host: String,
    /// Device that it used, if it is not the record's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Core that it was pinned to.
    pub core: Option<u32>,
    /// NUMA node of that core.
    pub numa_node: Option<u32>,
    /// CPU time over elapsed time, in percent of one core.
    pub cpu: CpuShare,
    /// What the role itself measured, by name, such as `requests` and `latency_ns`.
    #[serde(default, skip_serializing_if = "Values::is_empty")]
    pub metrics: Values,
}

/// A record of `ping` or `blast`, with typed parameters and metrics.
///
/// It has the same JSON as a [`Record`]; both convert to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRecord {
    /// Layout version, [`SCHEMA`].
    pub schema: u32,
    /// The cell's identity within its study: equal for the same program and parameters.
    pub cell: String,
    /// Ids of the study's figures that show this cell (`fig1`, `rank-rtt`, …); empty outside a study.
    pub figures: Vec<String>,
    /// Which program ran.
    pub program: Program,
    /// Which device it ran on.
    pub device: DeviceRef,
    /// Its parameters.
    pub params: Params,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Its metrics; `None` if the cell failed.
    pub metrics: Option<Metrics>,
    /// Device counters that changed while the cell ran.
    #[serde(default)]
    pub counters: Counters,
    /// Where, when and with what.
    pub provenance: Provenance,
}

impl From<&PairRecord> for Record {
    fn from(record: &PairRecord) -> Record {
        let json = serde_json::to_value(record).expect("a record is a JSON object");
        serde_json::from_value(json).expect("its fields are those of any record")
    }
}

impl PairRecord {
    /// Reads a record as one of `ping` or `blast`; `None` for other programs.
    pub fn of(record: &Record) -> Option<PairRecord> {
        if !["ping", "blast"].contains(&record.program.as_str()) {
            return None;
        }
        serde_json::from_value(serde_json::to_value(record).ok()?).ok()
    }

    /// Returns whether a device behind libibverbs is software: the kernel's Soft-RoCE or siw, or the user-space NIC
    /// that `adverb run` loads.
    pub fn has_software_driver(&self) -> bool {
        self.device.kind == DeviceKind::Verbs && self.provenance.has_software_driver()
    }

    /// The same as [`Record::has_noise`].
    pub fn has_noise(&self) -> bool {
        let path = self.params.impairment;
        self.device.kind != DeviceKind::Model || path.is_some_and(|path| path.loses())
    }

    /// Returns the link layer of the active side's port, as `adverb devices` prints it; `None` if it was not recorded.
    pub fn link_layer(&self) -> Option<&str> {
        let details = &self.provenance.active.device;
        details.get("link layer").map(String::as_str)
    }

    /// Returns the adapter of the active side: vendor and part, or what a model represents; `None` if it was not recorded.
    pub fn adapter(&self) -> Option<&str> {
        let details = &self.provenance.active.device;
        let modelled = || details.get("hardware")?.split(',').next();
        let part = details.get("vendor and part").map(String::as_str);
        part.or_else(modelled)
    }

    /// Converts a time of this record for display: records contain half of the round trip, except for rounds that
    /// are a single request the whole round trip is shown.
    pub fn shown_ns(&self, one_way_ns: f64) -> f64 {
        match self.program.is_round_trip(self.params.op) {
            true => 2.0 * one_way_ns,
            false => one_way_ns,
        }
    }
}

/// How a cell ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Outcome {
    /// Measured.
    Ok,
    /// Not measured.
    Failed {
        /// Why, in one line.
        reason: String,
    },
}

/// The programs of MacArthur & Russell (HPCC 2012, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Client and server answer each other, one message in flight.
    Ping,
    /// The client sends as fast as its buffers allow.
    Blast,
}

impl Program {
    /// Returns whether a round is a single request, which the passive side's CPU does not see.
    pub fn is_round_trip(self, op: Opcode) -> bool {
        self == Program::Ping && op.is_fetch()
    }
}

/// A kind of device. Figures of different kinds are never mixed without naming them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Adverb's user-space NIC: measures this machine's CPU and memory.
    Soft,
    /// A device behind libibverbs.
    Verbs,
    /// The virtual-time model: predicts, does not measure.
    Model,
    /// The kernel's TCP: no RDMA, what RDMA is compared with.
    Tcp,
}

/// A device, by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceRef {
    /// Its kind.
    pub kind: DeviceKind,
    /// Its name within the kind: `soft`, `mlx5_0`, `connect_ib`.
    pub name: String,
}

impl DeviceRef {
    /// Whether it is the user-space NIC with a UDP port (`soft@ADDR`).
    pub fn has_udp_port(&self) -> bool {
        self.kind == DeviceKind::Soft && self.name.contains('@')
    }

    /// Returns whether both sides share memory: then one-sided operations have completed when they are posted,
    /// so that there is no event to wait for and no network round trip in their time.
    pub fn is_shared_memory(&self) -> bool {
        self.kind == DeviceKind::Soft && !self.has_udp_port()
    }
}

/// What the program transfers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opcode {
    /// SEND into a posted RECV.
    Send,
    /// RDMA WRITE WITH IMMEDIATE, announced by a RECV.
    WriteImm,
    /// RDMA WRITE. In `ping`: into memory that the other side polls, as `ib_write_lat` does.
    Write,
    /// RDMA READ.
    Read,
    /// `ping` only: the active client pushes with WRITE and pulls with READ; the server is passive.
    WriteRead,
    /// Fetch-and-add of 1 to a counter of the server, which is passive.
    FetchAdd,
    /// Compare-and-swap of that counter.
    Cas,
    /// SEND with immediate data, which is in the receive's completion.
    SendImm,
}

impl Opcode {
    /// Returns whether it is an atomic operation, whose operand has 8 bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Opcode::FetchAdd | Opcode::Cas)
    }

    /// Returns whether it only fetches data: a READ or an atomic operation, which only the requester notices.
    pub const fn is_fetch(self) -> bool {
        matches!(self, Opcode::Read) || self.is_atomic()
    }

    /// Returns whether it consumes a receive request of the peer.
    pub const fn consumes_receive(self) -> bool {
        matches!(self, Opcode::Send | Opcode::SendImm | Opcode::WriteImm)
    }
}

/// How a side detects completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Completion {
    /// Busy polling of the completion queue.
    Poll,
    /// Completion events: arm, sleep on the channel, poll.
    Event,
    /// Polls for this long, then arms and sleeps.
    Hybrid(Span),
}

impl Completion {
    /// Longest time to poll before sleeping: a role that polls does not watch the others.
    pub const MOST_POLLING: Span = Span::from_ms(5);

    /// Whether members may sleep until an event arrives.
    pub fn has_events(self) -> bool {
        self != Completion::Poll
    }
}

/// How work requests reach the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Posting {
    /// One post call for each work request.
    Single,
    /// One post call for all requests that can be posted at that moment.
    List,
}

/// Which send requests ask for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signaling {
    /// Every request.
    All,
    /// One in n/2, where n is the number of buffers (`blast`).
    Periodic,
    /// One in `n` (`blast`).
    Every(u32),
    /// The WRITE of a `write-read` ping is unsignaled; its READ is signaled.
    WriteUnsignaled,
}

/// Transport of `ping` and `blast`: the service of their queue pairs, or TCP.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The kernel's TCP, without queue pairs.
    Tcp,
}

impl Transport {
    /// Whether lost packets are retransmitted.
    pub fn is_reliable(&self) -> bool {
        matches!(self, Transport::Rc | Transport::Tcp)
    }

    /// Whether it is the one that is meant if none is named.
    pub fn is_default(&self) -> bool {
        *self == Transport::default()
    }
}

/// How messages flow between the two sides. Records from before an option existed have its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Queue pairs between the two sides; messages take them in turn.
    pub qps: u32,
    /// Both sides of `blast` send and receive at the same time; rates count both directions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bidirectional: bool,
    /// The active side runs at the peer (`--peer`), and the passive side on the host of the command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reversed: bool,
    /// Transport service of the queue pairs.
    #[serde(skip_serializing_if = "Transport::is_default")]
    pub transport: Transport,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            qps: 1,
            bidirectional: false,
            reversed: false,
            transport: Transport::Rc,
        }
    }
}

/// Parameters of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Params {
    /// Transfer operation.
    pub op: Opcode,
    /// Payload of one message.
    pub size_bytes: Bytes,
    /// Payload carried in the work request.
    pub inline: bool,
    /// How both sides detect completions.
    pub completion: Completion,
    /// Messages in flight at most on each queue pair, each with its own buffer; `ping` has one.
    pub buffers: u32,
    /// Single posts or lists.
    pub post: Posting,
    /// Which send requests are signaled.
    pub signal: Signaling,
    /// How messages flow between the two sides.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Path MTU of the connection; `None` if messages are not split into packets (shared memory, iWARP), and if the
    /// cell failed without a requested one.
    #[serde(default)]
    pub path_mtu_bytes: Option<Bytes>,
    /// Time that a requester of the connection waits for an acknowledgement before it retransmits; `None` if it is
    /// unknown (iWARP), and if the cell failed without a requested one.
    #[serde(default, rename = "ack_timeout_ns", with = "some_span_as_ns")]
    pub ack_timeout: Option<Span>,
    /// Retransmissions before a request fails; `None` in the same cases.
    #[serde(default)]
    pub retry_cnt: Option<u8>,
    /// Rate that packets were limited to; of a model, rate of its link. `None` if it is the link's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LinkRate>,
    /// Posting interface of libibverbs; `None` if the device chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<PostApi>,
    /// Faults that both sides' ports injected into the packets that they sent; `None` if they injected none.
    #[serde(default)]
    pub impairment: Option<Impairment>,
    /// Payload checked by the receiving side (this costs time: never compare with unverified cells).
    pub verify: bool,
    /// Measured messages (`blast`) or rounds (`ping`) in each repetition; `None` if the cell failed before they
    /// were chosen.
    pub iters: Option<u64>,
    /// Messages or rounds before the first repetition; likewise.
    pub warmup_iters: Option<u64>,
    /// Core of the active side, if pinned.
    pub active_core: Option<u32>,
    /// Core of the passive side, if pinned.
    pub passive_core: Option<u32>,
    /// NUMA node of the active side's core, if pinned.
    #[serde(default)]
    pub active_numa_node: Option<u32>,
    /// NUMA node of the passive side's core, if pinned.
    #[serde(default)]
    pub passive_numa_node: Option<u32>,
    /// Seed of the payload.
    pub seed: u64,
}

/// What was measured. Means are over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// One-way time, ns. `mean` is the paper's figure (`blast`: elapsed / messages; `ping`: half of
    /// elapsed / rounds); percentiles are of single messages: `ping`: half of each sampled round;
    /// `blast`: from a message's post to its reaped completion, and null where it was unsignaled.
    pub one_way_ns: Latency,
    /// Messages per second, counting both directions of a `ping`.
    pub messages_per_s: Option<MessageRate>,
    /// Payload bytes per second, counting both directions of a `ping`.
    pub bytes_per_s: Option<Throughput>,
    /// Sum over the repetitions of the time from just before the first post to just after the last
    /// completion.
    #[serde(rename = "elapsed_ns", with = "span_as_ns")]
    pub elapsed: Span,
    /// CPU use of both sides during `elapsed`.
    pub cpu: Cpu,
    /// The raw figure of each repetition.
    pub repetitions: Vec<Repetition>,
    /// Distribution of the sampled latencies.
    pub histogram: Option<Histogram>,
    /// The messages of a `blast` over UC or UD that arrived, which the other figures count; `None` if nothing
    /// can be lost, or if the receiver does not learn of messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// Whether a repetition had fewer messages than four for each buffer, or than 16, as the cell could not
    /// afford more: its metrics are dominated by the beginning and the end of a run, and no finding uses them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub few_messages: bool,
}

/// What arrived of the messages that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Messages sent.
    pub sent: u64,
    /// Messages that the receiver got.
    pub received: u64,
    /// The others: lost on the way, or dropped by the receiver's device because no receive was posted.
    pub lost: u64,
}

impl Delivery {
    /// Returns the lost messages in percent of those sent; `None` if none was sent.
    pub fn loss_percent(&self) -> Option<f64> {
        (self.sent > 0).then(|| 100.0 * self.lost as f64 / self.sent as f64)
    }
}

/// Statistics of a latency in ns; `None` if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean over all messages of all repetitions, from elapsed time.
    pub mean: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean over repetitions (Student's t).
    pub ci95: Option<f64>,
    /// Standard deviation of the single latencies, including the clock's resolution.
    #[serde(default)]
    pub sd: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
}

/// One repetition's raw figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Messages (`blast`) or rounds (`ping`).
    pub iters: u64,
    /// From just before the first post to just after the last completion.
    #[serde(rename = "elapsed_ns", with = "span_as_ns")]
    pub elapsed: Span,
    /// One-way time of this repetition, ns.
    pub one_way_ns: f64,
    /// CPU of the active side.
    pub cpu_active: CpuShare,
    /// CPU of the passive side.
    pub cpu_passive: CpuShare,
}

/// CPU use of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The side that starts transfers.
    pub active: CpuShare,
    /// The other side.
    pub passive: CpuShare,
}

/// CPU time by `getrusage` over elapsed time, in percent of one core; `None` if not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShare {
    /// Share in user space.
    pub user: Option<f64>,
    /// Share in the kernel.
    pub system: Option<f64>,
    /// Sum of the two.
    pub percent: Option<f64>,
}

/// A latency distribution, in HdrHistogram's V2 + deflate encoding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Unit of the recorded values.
    pub unit: String,
    /// How many latencies were recorded.
    pub samples: u64,
    /// Every how many messages one was timed.
    pub sampled_every: u64,
    /// The histogram, base64 of HdrHistogram's V2 serialization.
    pub hdr_v2: String,
}

/// What the devices of both sides counted during a cell, its set-up included, by the driver's
/// names; only counters that moved. Counters belong to a device: they also count what others did on
/// it, and both sides show the same ones where they share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// At the side that starts transfers.
    pub active: BTreeMap<String, u64>,
    /// At the other side.
    pub passive: BTreeMap<String, u64>,
}

/// Provenance of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Adverb's version.
    pub adverb: String,
    /// Revision of the source, where it was known at build time.
    pub revision: Option<String>,
    /// Start of the cell, RFC 3339, UTC.
    pub started: String,
    /// Whether the clock is virtual (a model) or real.
    pub virtual_time: bool,
    /// Where the active side ran.
    #[serde(flatten)]
    pub active: Site,
    /// Where the passive side ran, if on another host.
    #[serde(default)]
    pub passive: Option<Site>,
}

impl Provenance {
    /// Returns whether the driver of a device behind libibverbs is software.
    pub fn has_software_driver(&self) -> bool {
        let driver = self.active.device.get("driver");
        driver.is_some_and(|driver| {
            let names = ["rxe", "siw", "adverb"];
            names.iter().any(|name| driver.contains(name))
        })
    }
}

/// A host and its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that could be used.
    pub cores: u32,
    /// What else this kind of device wants recorded (firmware, driver, GID, MTU, preset …).
    pub device: BTreeMap<String, String>,
}

mod span_as_ns {
    //! A span as a JSON number of nanoseconds.
    use super::Span;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(span.as_ns_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        let ns = f64::deserialize(d)?;
        if ns.is_finite() && ns >= 0.0 {
            Ok(Span::from_ps((ns * 1e3).round() as u64))
        } else {
            Err(serde::de::Error::custom(format!(
                "invalid span of time: {ns} ns"
            )))
        }
    }
}

mod some_span_as_ns {
    //! The same of a span that may be missing.
    use super::{Span, span_as_ns};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Ns(#[serde(with = "span_as_ns")] Span);

    pub(super) fn serialize<S: Serializer>(span: &Option<Span>, s: S) -> Result<S::Ok, S::Error> {
        span.map(Ns).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Span>, D::Error> {
        Ok(Option::<Ns>::deserialize(d)?.map(|Ns(span)| span))
    }
}
