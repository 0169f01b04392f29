//! Counters of one object. Several threads may use an object, so each counter is an atomic that is added to without
//! ordering; the objects of a program that is not observed have none.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_abi::{IBV_WC_RECV, ibv_wc};
use adverb_results::{
    CompletionQueueActivity, OperationActivity, Posts, QueuePairActivity, Received,
};
use adverb_softnic::Route;
use adverb_verbs::{Operation, QpType, SendFlags, SendRequest, WcStatus};

use crate::object::lock;
use crate::settings::settings;

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of values by the power of two that is at least the value; 0 has an entry of its own.
#[derive(Debug)]
struct Histogram([Count; Histogram::ENTRIES]);

impl Default for Histogram {
    fn default() -> Self {
        Histogram([const { Count(AtomicU64::new(0)) }; Histogram::ENTRIES])
    }
}

impl Histogram {
    /// 0, and the powers up to 2^32.
    const ENTRIES: usize = 34;

    fn add(&self, value: u64) {
        let entry = match value {
            0 => 0,
            _ => 1 + value.next_power_of_two().trailing_zeros() as usize,
        };
        self.0[entry.min(Self::ENTRIES - 1)].add(1);
    }

    fn read(&self) -> BTreeMap<u64, u64> {
        let all = self.0.iter().enumerate().map(|(entry, count)| {
            let value = entry.checked_sub(1).map_or(0, |power| 1 << power);
            (value, count.get())
        });
        all.filter(|(_, count)| *count > 0).collect()
    }
}

/// Calls that post requests.
#[derive(Debug, Default)]
pub(crate) struct PostCounts {
    calls: Count,
    requests: Count,
    lengths: Histogram,
}

impl PostCounts {
    /// Counts a call that posted `requests`.
    pub(crate) fn add(&self, requests: usize) {
        if requests > 0 {
            self.calls.add(1);
            self.requests.add(requests as u64);
            self.lengths.add(requests as u64);
        }
    }

    pub(super) fn read(&self) -> Posts {
        Posts {
            calls: self.calls.get(),
            requests: self.requests.get(),
            lengths: self.lengths.read(),
        }
    }
}

#[derive(Debug, Default)]
struct OperationCounts {
    requests: Count,
    bytes: Count,
    inline: Count,
    signaled: Count,
    sizes: Histogram,
}

/// Names by [`index_of`].
const OPERATIONS: [&str; 10] = [
    "SEND",
    "SEND_WITH_IMM",
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "RDMA_READ",
    "ATOMIC_FETCH_AND_ADD",
    "ATOMIC_CMP_AND_SWP",
    "SEND_WITH_INV",
    "BIND_MW",
    "LOCAL_INV",
];

/// Returns the position of an operation's counters; `None` if this library does not post it.
fn index_of(operation: &Operation) -> Option<usize> {
    Some(match operation {
        Operation::Send => 0,
        Operation::SendWithImm(_) => 1,
        Operation::RdmaWrite(_) => 2,
        Operation::RdmaWriteWithImm(..) => 3,
        Operation::RdmaRead(_) => 4,
        Operation::FetchAdd(..) => 5,
        Operation::CompareSwap(..) => 6,
        Operation::SendWithInvalidate(_) => 7,
        Operation::BindWindow(_) => 8,
        Operation::LocalInvalidate(_) => 9,
        _ => return None,
    })
}

/// Names by [`path_index`].
const PATHS: [&str; 4] = [
    "shared memory",
    "UDP: the peer has another address",
    "UDP: the peer shares no memory with this process (another user or container, or no queue pair)",
    "UDP: --udp-only or injected faults",
];

const fn path_index(route: Route) -> Option<usize> {
    match route {
        Route::Unconnected => None,
        Route::SharedMemory => Some(0),
        Route::UdpToOtherAddress => Some(1),
        Route::UdpUnshared => Some(2),
        Route::UdpForAll => Some(3),
    }
}

/// What does not change during the life of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct QpFacts {
    /// Name of the device.
    pub(crate) device: String,
    pub(crate) qp_num: u32,
    pub(crate) qp_type: QpType,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: bool,
    pub(crate) max_inline_data: u32,
}

/// Send requests that are not known to be completed.
#[derive(Debug, Default)]
struct Outstanding {
    posted: u64,
    completed: u64,
    /// Positions of signaled requests.
    signaled: VecDeque<u64>,
    max: u64,
}

/// Number of status codes that are counted each on its own.
const STATUSES: usize = 24;

/// Counters of a queue pair, or of all that were created after the first ones.
#[derive(Debug)]
pub(crate) struct QpCounts {
    facts: QpFacts,
    /// Whether it counts for several queue pairs.
    pub(super) is_rest: bool,
    pub(super) queue_pairs: Count,
    paths: [Count; PATHS.len()],
    sends: PostCounts,
    pub(crate) wr_batches: Count,
    operations: [OperationCounts; OPERATIONS.len()],
    pub(crate) receives: PostCounts,
    outstanding: Mutex<Outstanding>,
    completions: [Count; STATUSES],
    received: Count,
    received_bytes: Count,
}

impl QpCounts {
    pub(super) fn new(facts: QpFacts) -> Self {
        QpCounts {
            facts,
            is_rest: false,
            queue_pairs: Count::default(),
            paths: Default::default(),
            sends: PostCounts::default(),
            wr_batches: Count::default(),
            operations: Default::default(),
            receives: PostCounts::default(),
            outstanding: Mutex::default(),
            completions: Default::default(),
            received: Count::default(),
            received_bytes: Count::default(),
        }
    }

    /// Begins to count a call that posts send requests.
    #[cold]
    pub(crate) fn posting(&self) -> Posting<'_> {
        Posting {
            counts: self,
            accepted: Cell::new(0),
        }
    }

    /// Counts a connection.
    pub(crate) fn connected(&self, route: Route) {
        if let Some(path) = path_index(route) {
            self.paths[path].add(1);
        }
    }

    /// Forgets outstanding requests, which a transition to RESET discards.
    pub(crate) fn reset(&self) {
        let mut outstanding = lock(&self.outstanding);
        let max = outstanding.max;
        *outstanding = Outstanding::default();
        outstanding.max = max;
    }

    fn count(&self, request: &SendRequest<'_>) {
        let Some(counts) = index_of(&request.operation).map(|index| &self.operations[index]) else {
            return;
        };
        let bytes = request.sges.iter().map(|sge| u64::from(sge.length())).sum();
        counts.requests.add(1);
        counts.bytes.add(bytes);
        counts.sizes.add(bytes);
        if request.flags.contains(SendFlags::INLINE) {
            counts.inline.add(1);
        }
        if request.flags.contains(SendFlags::SIGNALED) {
            counts.signaled.add(1);
        }
        if self.facts.qp_type == QpType::Ud {
            let route = request
                .to
                .map_or(Route::Unconnected, |to| Route::of_handle(to.ah));
            self.connected(match route {
                Route::UdpToOtherAddress
                    if settings().is_ok_and(|settings| settings.faults.is_some()) =>
                {
                    Route::UdpForAll
                }
                route => route,
            });
        }
    }

    /// Notes requests that are about to be posted. A completion may be polled before the call returns.
    fn begin(&self, requests: &[SendRequest<'_>]) {
        if self.is_rest {
            return;
        }
        let mut outstanding = lock(&self.outstanding);
        for request in requests {
            outstanding.posted += 1;
            if request.flags.contains(SendFlags::SIGNALED) {
                let position = outstanding.posted;
                outstanding.signaled.push_back(position);
            }
        }
        let now = outstanding.posted.saturating_sub(outstanding.completed);
        outstanding.max = outstanding.max.max(now);
    }

    /// Forgets requests that were not accepted.
    fn refused(&self, requests: &[SendRequest<'_>]) {
        let mut outstanding = lock(&self.outstanding);
        for request in requests {
            outstanding.posted = outstanding.posted.saturating_sub(1);
            if request.flags.contains(SendFlags::SIGNALED) {
                outstanding.signaled.pop_back();
            }
        }
    }

    fn completed(&self, completion: &ibv_wc) {
        let status = (completion.status as usize).min(STATUSES - 1);
        self.completions[status].add(1);
        if status != 0 {
            return;
        }
        if completion.opcode & IBV_WC_RECV != 0 {
            self.received.add(1);
            self.received_bytes.add(completion.byte_len.into());
        } else if !self.is_rest {
            // A completion also ends the requests before it.
            let mut outstanding = lock(&self.outstanding);
            if let Some(position) = outstanding.signaled.pop_front() {
                outstanding.completed = position;
            }
        }
    }

    pub(super) fn read(&self) -> QueuePairActivity {
        let facts = &self.facts;
        let named = |(name, count): (&&str, &Count)| ((*name).to_owned(), count.get());
        let paths = PATHS.iter().zip(&self.paths).map(named);
        let operations = OPERATIONS
            .iter()
            .zip(&self.operations)
            .map(|(name, counts)| {
                let read = OperationActivity {
                    requests: counts.requests.get(),
                    bytes: counts.bytes.get(),
                    inline: counts.inline.get(),
                    signaled: counts.signaled.get(),
                    sizes: counts.sizes.read(),
                };
                ((*name).to_owned(), read)
            });
        let statuses = self.completions.iter().enumerate();
        let statuses = statuses
            .map(|(code, count)| (WcStatus::from_code(code as u32).to_string(), count.get()));
        QueuePairActivity {
            device: facts.device.clone(),
            qp_num: (!self.is_rest).then_some(facts.qp_num),
            qp_type: facts.qp_type.to_string(),
            queue_pairs: self.queue_pairs.get(),
            paths: paths.filter(|(_, count)| *count > 0).collect(),
            send_cq: facts.send_cq,
            recv_cq: facts.recv_cq,
            srq: facts.srq,
            max_inline_data: facts.max_inline_data,
            sends: self.sends.read(),
            wr_batches: self.wr_batches.get(),
            operations: operations.filter(|(_, read)| read.requests > 0).collect(),
            receives: self.receives.read(),
            max_outstanding: lock(&self.outstanding).max,
            completions: statuses.filter(|(_, count)| *count > 0).collect(),
            received: Received {
                messages: self.received.get(),
                bytes: self.received_bytes.get(),
            },
        }
    }
}

/// A call that posts send requests. Dropping it counts the call.
#[derive(Debug)]
pub(crate) struct Posting<'a> {
    counts: &'a QpCounts,
    accepted: Cell<usize>,
}

impl Posting<'_> {
    /// Posts requests by `post`, which fails with the index of the first that was refused.
    pub(crate) fn post<E>(
        &self,
        requests: &[SendRequest<'_>],
        post: impl FnOnce() -> Result<(), E>,
        refused: impl FnOnce(&E) -> usize,
    ) -> Result<(), E> {
        self.counts.begin(requests);
        let posted = post();
        let accepted = posted.as_ref().err().map_or(requests.len(), refused);
        self.counts.refused(&requests[accepted..]);
        for request in &requests[..accepted] {
            self.counts.count(request);
        }
        self.accepted.set(self.accepted.get() + accepted);
        posted
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        self.counts.sends.add(self.accepted.get());
    }
}

/// Counters of a context's queue pairs by number, for completions.
pub(crate) type QpsByNumber = Arc<Mutex<HashMap<u32, Arc<QpCounts>>>>;

/// Counters of a completion queue.
#[derive(Debug)]
pub(crate) struct CqCounts {
    /// Position in the record.
    pub(crate) index: usize,
    pub(super) qps: QpsByNumber,
    polls: Count,
    empty_polls: Count,
    completions: Count,
    notify_requests: Count,
    events: Count,
}

impl CqCounts {
    pub(super) fn new(index: usize, qps: QpsByNumber) -> Self {
        CqCounts {
            index,
            qps,
            polls: Count::default(),
            empty_polls: Count::default(),
            completions: Count::default(),
            notify_requests: Count::default(),
            events: Count::default(),
        }
    }

    /// Counts a poll that found these completions.
    #[cold]
    pub(crate) fn polled(&self, found: &[ibv_wc]) {
        self.polls.add(1);
        if found.is_empty() {
            self.empty_polls.add(1);
            return;
        }
        self.completions.add(found.len() as u64);
        let qps = lock(&self.qps);
        for completion in found {
            if let Some(counts) = qps.get(&completion.qp_num) {
                counts.completed(completion);
            }
        }
    }

    pub(crate) fn notify_requested(&self) {
        self.notify_requests.add(1);
    }

    pub(crate) fn event_taken(&self) {
        self.events.add(1);
    }

    pub(super) fn read(&self) -> CompletionQueueActivity {
        CompletionQueueActivity {
            polls: self.polls.get(),
            empty_polls: self.empty_polls.get(),
            completions: self.completions.get(),
            notify_requests: self.notify_requests.get(),
            events: self.events.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_by_the_power_of_two_above_them() {
        let histogram = Histogram::default();
        for size in [0, 1, 2, 3, 4, 5, 4096, 4097, 1 << 40] {
            histogram.add(size);
        }
        let expected = [
            (0, 1),
            (1, 1),
            (2, 1),
            (4, 2),
            (8, 1),
            (4096, 1),
            (8192, 1),
            (1 << 32, 1),
        ];
        assert_eq!(histogram.read(), BTreeMap::from(expected));
    }
}
