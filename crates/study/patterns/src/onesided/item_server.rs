//! The server loop of a core that owns items: polls questions in its memory, changes items, answers.

use adverb_verbs::{Level, MemoryRegion, Operation, QueuePair, SendRequest, Station, Work};

use crate::rpc::service::loaded;
use crate::rpc::slots::{Call, KEY, Kind, Scan, Slots};
use crate::rpc::{MAX_BATCH, table};
use crate::sends::Sends;
use adverb_workload::attend::Members;
use adverb_workload::pattern::PatternError;
use adverb_workload::pattern::wiring::Wiring;
use adverb_workload::reap::Reaper;

use super::OneSidedClients;
use super::layout::Layout;

/// Lines of the table that a core loads for a question: a bucket and an item.
const LINES: u32 = 2;

/// Returns the send queue size for a client with `outstanding` operations on the queue pair. An answer may
/// still occupy its entry when the client, which has received it, asks again.
pub(super) fn answers(outstanding: u32) -> u32 {
    2 * outstanding + 2
}

/// Writes a question: value, its length, key, last byte.
pub(super) fn question(item: u64, number: u64, last: u8, into: &mut [u8]) {
    let value = into.len() - KEY - 2;
    let (data, rest) = into.split_at_mut(value);
    table::fill(data, item, number as u8);
    rest[0] = value as u8;
    rest[1..=KEY].copy_from_slice(&table::key(item));
    rest[KEY + 1] = last;
}

/// Returns the item of a question without its last byte, if the question is complete.
fn asked(bytes: &[u8]) -> Result<u64, PatternError> {
    let (data, rest) = bytes.split_at(bytes.len() - KEY - 1);
    let key = &rest[1..];
    let item = u64::from_le_bytes(std::array::from_fn(|i| key[i]));
    if key == table::key(item) && table::is_right(data, item) {
        return Ok(item);
    }
    Err(PatternError::Wrong("a PUT whose value is another key's"))
}

/// The state of a running core.
pub(super) struct ItemServer<'w, S: Station> {
    station: &'w S,
    members: &'w Members<'w, S>,
    reaper: Reaper<'w, S::Context>,
    wiring: &'w Wiring<S::Context>,
    layout: &'w Layout,
    slots: Slots,
    scan: Scan,
    calls: Vec<Call>,
    clients: usize,
    /// Queue pairs of a client.
    qps: usize,
    answers: Sends,
    question: Vec<u8>,
    record: Vec<u8>,
}

impl<'w, S: Station> ItemServer<'w, S> {
    pub(super) fn new(
        (members, wiring): (&'w Members<'w, S>, &'w Wiring<S::Context>),
        layout: &'w Layout,
        (slots, clients): (Slots, usize),
        load: &OneSidedClients,
    ) -> Self {
        let depth = answers(load.outstanding);
        ItemServer {
            station: members.station(),
            members,
            reaper: wiring.queue.reaper(),
            wiring,
            layout,
            slots,
            scan: Scan::new(slots, clients),
            calls: Vec::with_capacity(MAX_BATCH as usize),
            clients,
            qps: load.qps as usize,
            answers: Sends::new(wiring.qps.len(), depth, depth / 2),
            question: vec![0; layout.question() as usize],
            record: Vec::new(),
        }
    }

    /// Serves until all clients have announced their end.
    pub(super) fn run(mut self) -> Result<(), PatternError> {
        let mut gone = 0;
        while gone < self.clients {
            self.wait()?;
            let found = self.calls.len();
            self.calls.retain(|call| call.kind != Kind::Bye);
            gone += found - self.calls.len();
            let keys = self.calls.len() as u32;
            if keys > 0 {
                self.station.account(Work::Load {
                    lines: keys * LINES,
                    from: Level::Memory,
                });
                self.station.account(Work::Lookup { keys });
            }
            for place in 0..self.calls.len() {
                self.serve(self.calls[place])?;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), PatternError> {
        let (mr, batch) = (&self.wiring.mr, MAX_BATCH as usize);
        self.scan.wait(self.members, mr, batch, &mut self.calls)?;
        loaded(self.station, self.calls.len());
        Ok(())
    }

    fn serve(&mut self, call: Call) -> Result<(), PatternError> {
        let mr = &self.wiring.mr;
        let end = self.slots.end(call.client, call.number);
        let bytes = self.question.len() - 1;
        mr.read(end - 1 - bytes as u64, &mut self.question[..bytes])?;
        let item = asked(&self.question[..bytes])?;
        self.layout.renew(mr, item, &mut self.record)?;
        let way = (call.number % self.qps as u64) as usize;
        self.answer(call.client as usize * self.qps + way)
    }

    fn answer(&mut self, queue: usize) -> Result<(), PatternError> {
        self.answers
            .make_room((queue, 1), self.members, &mut self.reaper)?;
        let (name, flags) = self.answers.next(queue);
        let answer = SendRequest::new(name, Operation::Send, &[]).with_flags(flags);
        Ok(self.wiring.qps[queue].post_send(&[answer])?)
    }
}
