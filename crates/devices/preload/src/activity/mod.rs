//! What the program does, for `adverb run --stats` and `--record`.
//!
//! `counts` has the counters of queue pairs and completion queues, `output` writes them when the process ends, and
//! `table` prints them for people. This module has the list of all counters of the process. A forked child begins with
//! an empty list: what it inherits belongs to its parent.

pub(crate) mod counts;
mod output;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, MutexGuard};
use std::time::{Duration, Instant};

use adverb_results::{Activity, MemoryActivity};
use adverb_verbs::{Context as _, Counters};

use crate::context::Context;
use crate::fork::ForkLock;
use crate::object::lock;
use crate::settings::{print, settings};
use counts::{CqCounts, PostCounts, QpCounts, QpFacts, QpsByNumber};
pub(crate) use output::at_exit;

/// The longest lists of queue pairs and completion queues; the counters of further ones are added up.
const MAX_LISTED: usize = 256;

/// All counters of a process.
pub(crate) struct Process {
    id: u32,
    began: Instant,
    /// RFC 3339.
    started: String,
    memory: MemoryActivity,
    qps: Vec<Arc<QpCounts>>,
    /// One for each type of queue pair.
    more_qps: HashMap<String, Arc<QpCounts>>,
    cqs: Vec<Arc<CqCounts>>,
    shared_receives: Arc<PostCounts>,
    /// Counters of the UDP ports that were closed, by device.
    ports: BTreeMap<String, Counters>,
}

pub(crate) static PROCESS: ForkLock<Option<Process>> = ForkLock::new(None);

/// The counters of this process; `None` if it has opened no device.
fn process() -> MutexGuard<'static, Option<Process>> {
    let mut process = PROCESS.lock();
    if process.as_ref().is_some_and(|p| p.id != std::process::id()) {
        *process = None;
    }
    process
}

/// Whether the program is observed.
pub(crate) fn is_wanted() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| {
        settings().is_ok_and(|settings| settings.stats.is_some() || settings.record.is_some())
    });
    *WANTED
}

impl Process {
    fn new() -> Self {
        Process {
            id: std::process::id(),
            began: Instant::now(),
            started: adverb_host::now_rfc3339(),
            memory: MemoryActivity::default(),
            qps: Vec::new(),
            more_qps: HashMap::new(),
            cqs: Vec::new(),
            shared_receives: Arc::default(),
            ports: BTreeMap::new(),
        }
    }

    fn add_qp(&mut self, facts: QpFacts) -> Arc<QpCounts> {
        if self.qps.len() < MAX_LISTED {
            let counts = Arc::new(QpCounts::new(facts));
            self.qps.push(counts.clone());
            return counts;
        }
        let key = facts.qp_type.to_string();
        let rest = self.more_qps.entry(key).or_insert_with(|| {
            let device = String::new();
            let mut counts = QpCounts::new(QpFacts { device, ..facts });
            counts.is_rest = true;
            Arc::new(counts)
        });
        rest.clone()
    }

    fn activity(&self, written_at: &str) -> Activity {
        let qps = self.qps.iter().chain(self.more_qps.values());
        Activity {
            written_at: written_at.to_owned(),
            elapsed_s: self.began.elapsed().as_secs_f64(),
            memory: self.memory,
            queue_pairs: qps.map(|counts| counts.read()).collect(),
            completion_queues: self.cqs.iter().map(|counts| counts.read()).collect(),
            shared_receives: self.shared_receives.read(),
        }
    }

    /// Returns the counters of the UDP ports that are not 0, by device.
    fn port_counters(&self) -> BTreeMap<String, Counters> {
        let mut ports = self.ports.clone();
        Context::each_open(|context| add(&mut ports, context));
        for counters in ports.values_mut() {
            counters.retain(|_, count| *count > 0);
        }
        ports
    }
}

/// Adds the counters of a context's port.
fn add(ports: &mut BTreeMap<String, Counters>, context: &Context) {
    let device = context.device.name.to_owned();
    let sums = ports.entry(device).or_default();
    for (name, count) in context.soft.counters() {
        *sums.entry(name).or_default() += count;
    }
}

/// Begins to observe the program when it has opened its first device.
pub(crate) fn opened() {
    if is_wanted() {
        process().get_or_insert_with(|| {
            output::begin();
            Process::new()
        });
    }
}

/// Adds the counters of a context that is about to be closed.
pub(crate) fn closing(context: &Context) {
    if is_wanted()
        && let Some(process) = process().as_mut()
    {
        add(&mut process.ports, context);
    }
}

/// Returns counters for a queue pair; `None` if the program is not observed.
pub(crate) fn queue_pair(by_number: &QpsByNumber, facts: QpFacts) -> Option<Arc<QpCounts>> {
    if !is_wanted() {
        return None;
    }
    let number = facts.qp_num;
    let counts = process().as_mut()?.add_qp(facts);
    counts.queue_pairs.add(1);
    lock(by_number).insert(number, counts.clone());
    Some(counts)
}

/// Returns counters for a completion queue; `None` if the program is not observed.
pub(crate) fn completion_queue(qps: &QpsByNumber) -> Option<Arc<CqCounts>> {
    if !is_wanted() {
        return None;
    }
    let mut process = process();
    let cqs = &mut process.as_mut()?.cqs;
    match cqs.last() {
        Some(rest) if cqs.len() >= MAX_LISTED && Arc::ptr_eq(&rest.qps, qps) => {
            return Some(rest.clone());
        }
        _ => cqs.push(Arc::new(CqCounts::new(cqs.len(), qps.clone()))),
    }
    cqs.last().cloned()
}

/// Returns the counters of shared receive queues; `None` if the program is not observed.
pub(crate) fn shared_receives() -> Option<Arc<PostCounts>> {
    if !is_wanted() {
        return None;
    }
    process()
        .as_ref()
        .map(|process| process.shared_receives.clone())
}

/// Counts memory that was registered.
pub(crate) fn registered(bytes: usize) {
    if is_wanted()
        && let Some(process) = process().as_mut()
    {
        let memory = &mut process.memory;
        memory.registrations += 1;
        memory.registered_bytes += bytes as u64;
        memory.max_registered_bytes = memory.max_registered_bytes.max(memory.registered_bytes);
    }
}

/// Counts memory that was deregistered.
pub(crate) fn deregistered(bytes: usize) {
    if is_wanted()
        && let Some(process) = process().as_mut()
    {
        let memory = &mut process.memory;
        memory.registered_bytes = memory.registered_bytes.saturating_sub(bytes as u64);
    }
}

/// How long a process that ends waits for the lock: the thread that holds it may wait for one that ends the process.
const PATIENCE: Duration = Duration::from_millis(200);

/// The counters of this process when it ends; `None` if it has opened no device, and in the child of a fork.
fn at_end() -> Option<MutexGuard<'static, Option<Process>>> {
    let Some(process) = PROCESS.lock_within(PATIENCE) else {
        print("the final statistics are lost: another thread holds their lock");
        return None;
    };
    let is_own = process.as_ref().is_some_and(|p| p.id == std::process::id());
    is_own.then_some(process)
}
