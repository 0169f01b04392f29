//! The protocols between two processes, model-checked: every interleaving that loom finds within
//! its bound of preemptions, and every value that the memory model lets a load return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p adverb-softnic --release --test loom`
#![cfg(loom)]
#![allow(unsafe_code)]

use adverb_softnic::shm::datagram_ring::{
    Addressee, Cell, DatagramRing, GrhSource, Holder, Message,
};
use adverb_softnic::shm::notify::{Armed, Urgency};
use adverb_softnic::shm::quiesce::{self, Busy};
use adverb_softnic::shm::ready::Ready;
use adverb_softnic::shm::ring::{Arrival, Extra, Line, Piece, RecvRing};
use adverb_softnic::shm::send_ring::{SendRing, Sent};
use adverb_softnic::shm::shared_ring::{SharedRing, Ticket};
use adverb_verbs::{NotifyOn, Qpn, WcOpcode, WcStatus};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Forced switches in one execution. More find nothing new in two or three threads this short
/// (4 was tried) and take minutes.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// A ring of one-line slots in "shared" memory, with a payload word a slot. Loom reports any access
/// to a payload that is not ordered by the ring.
struct Shared {
    lines: Vec<Line>,
    payload: Vec<UnsafeCell<u64>>,
}

impl Shared {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Shared {
            lines: (0..slots).map(|_| Line::default()).collect(),
            payload: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    fn ring(&self) -> RecvRing<'_> {
        RecvRing::over(&self.lines, self.lines.len())
    }

    fn slot(&self, position: u64) -> &UnsafeCell<u64> {
        &self.payload[position as usize % self.payload.len()]
    }

    fn post(&self, position: u64) {
        let piece = Piece {
            addr: position * 10,
            length: 8,
            lkey: position as u32,
        };
        self.ring().post(position, std::iter::once(piece));
    }

    /// Requester: what `Connection::send` does, if a receive is posted.
    fn try_send(&self, position: u64) -> bool {
        let ring = self.ring();
        if !ring.is_posted(position) {
            return false;
        }
        let pieces: Vec<_> = ring.pieces(position).collect();
        assert_eq!(ring.capacity(position), 8);
        assert_eq!(
            pieces,
            [Piece {
                addr: position * 10,
                length: 8,
                lkey: position as u32
            }]
        );
        self.slot(position).with_mut(|word| {
            // SAFETY: loom fails the test if another thread may use the word at the same time.
            unsafe { *word = position + 100 };
        });
        ring.complete(position, arrival(position));
        true
    }

    /// Owner: takes what arrived at `position`.
    fn try_take(&self, position: u64) -> bool {
        let Some(arrived) = self.ring().arrival(position) else {
            return false;
        };
        assert_eq!(arrived, arrival(position));
        // SAFETY: the position was stored after the word, and the sender does not write it again before it is taken.
        let word = self.slot(position).with(|word| unsafe { *word });
        assert_eq!(
            word,
            position + 100,
            "the payload comes before the completion"
        );
        true
    }
}

fn arrival(position: u64) -> Arrival {
    Arrival {
        byte_len: 8 + position as u32,
        status: 0,
        extra: match position % 2 {
            0 => Extra::Imm(position as u32),
            _ => Extra::None,
        },
        is_write: position % 2 == 1,
    }
}

#[test]
fn every_arrival_is_taken_once_in_order_with_its_payload() {
    const RECEIVES: u64 = 3;
    check(|| {
        let shared = Shared::new(2);
        let requester = shared.clone();
        let requester = thread::spawn(move || {
            for position in 0..RECEIVES {
                while !requester.try_send(position) {
                    thread::yield_now();
                }
            }
        });
        let mut posted = 0;
        for taken in 0..RECEIVES {
            while posted < RECEIVES && posted < taken + 2 {
                shared.post(posted);
                posted += 1;
            }
            assert!(!shared.ring().is_posted(taken + 2), "beyond what is posted");
            while !shared.try_take(taken) {
                thread::yield_now();
            }
        }
        requester.join().unwrap();
        assert_eq!(shared.ring().arrival(RECEIVES), None);
    });
}

#[test]
fn a_requester_that_comes_too_early_finds_nothing_and_leaves_nothing() {
    check(|| {
        let shared = Shared::new(1);
        let requester = shared.clone();
        let requester = thread::spawn(move || requester.try_send(0));
        shared.post(0);
        let early = shared.try_take(0);
        let sent = requester.join().unwrap();
        assert!(sent || !early);
        assert_eq!(shared.ring().arrival(0).is_some(), sent);
        assert_eq!(shared.ring().is_posted(0), !sent);
    });
}

/// The channel's FIFO: counts events; reading sleeps. Loom reports a sleep that nothing can end.
#[derive(Default)]
struct Fifo {
    events: Mutex<u32>,
    written: Condvar,
}

impl Fifo {
    fn write(&self) {
        *self.events.lock().unwrap() += 1;
        self.written.notify_one();
    }

    fn read(&self) {
        let mut events = self.events.lock().unwrap();
        while *events == 0 {
            events = self.written.wait(events).unwrap();
        }
        *events -= 1;
    }

    fn unread(&self) -> u32 {
        *self.events.lock().unwrap()
    }
}

#[derive(Default)]
struct Queue {
    armed: Armed,
    /// Completions published, as the ring's state words publish them, one a producer.
    published: [AtomicU32; 2],
    fifo: Fifo,
}

impl Queue {
    fn produce(&self, producer: usize, urgency: Urgency) -> bool {
        self.published[producer].store(1, Ordering::Release);
        let raised = self.armed.must_raise(urgency);
        if raised {
            self.fifo.write();
        }
        raised
    }

    fn poll(&self) -> u32 {
        self.published
            .iter()
            .map(|p| p.load(Ordering::Acquire))
            .sum()
    }

    /// Owner: the loop that every program on a channel has.
    fn consume(&self, wanted: u32) {
        loop {
            self.armed.arm(NotifyOn::Any);
            if self.poll() >= wanted {
                return;
            }
            self.fifo.read();
        }
    }
}

#[test]
fn arming_and_polling_again_never_misses_a_completion() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let producer = queue.clone();
        let producer = thread::spawn(move || producer.produce(0, Urgency::Usual));
        queue.consume(1);
        producer.join().unwrap();
    });
}

#[test]
fn a_sleeper_with_two_producers_is_woken_by_the_second() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let producers = [0, 1].map(|i| {
            let queue = queue.clone();
            thread::spawn(move || queue.produce(i, Urgency::Usual))
        });
        queue.consume(2);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

#[test]
fn of_two_producers_exactly_one_raises_the_event_of_one_arming() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let producers = [0, 1].map(|i| {
            let queue = queue.clone();
            thread::spawn(move || queue.produce(i, Urgency::Usual))
        });
        queue.armed.arm(NotifyOn::Any);
        let found = queue.poll();
        let raised = producers.map(|p| p.join().unwrap()).map(u32::from);
        let raised: u32 = raised.iter().sum();
        assert_eq!(raised, queue.fifo.unread());
        assert!(raised <= 1, "one arming raised {raised} events");
        assert!(
            raised == 1 || found == 2,
            "found {found} of 2 completions and no event comes for the rest"
        );
    });
}

#[test]
fn an_arming_for_solicited_ones_sleeps_through_the_usual_only() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let producers = [(0, Urgency::Usual), (1, Urgency::Solicited)].map(|(i, urgency)| {
            let queue = queue.clone();
            thread::spawn(move || queue.produce(i, urgency))
        });
        queue.armed.arm(NotifyOn::Solicited);
        let found = queue.published[1].load(Ordering::Acquire) == 1;
        let [usual, solicited] = producers.map(|p| p.join().unwrap());
        assert!(!usual, "a usual completion raised an event");
        assert!(found || solicited);
    });
}

#[test]
fn a_producer_that_dies_with_the_event_in_its_hands_leaves_no_sleeper() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let died = Arc::new(AtomicBool::new(false));
        let (victim, death) = (queue.clone(), died.clone());
        let victim = thread::spawn(move || {
            victim.published[0].store(1, Ordering::Release);
            // Takes the arming, if there is one, and is killed before it writes the event.
            victim.armed.must_raise(Urgency::Usual);
            death.store(true, Ordering::Release);
        });
        let engine = queue.clone();
        let engine = thread::spawn(move || {
            while !died.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // `CqInner::raise_anyway`
            engine.armed.disarm();
            engine.fifo.write();
        });
        queue.consume(1);
        victim.join().unwrap();
        engine.join().unwrap();
    });
}

#[test]
fn a_producer_that_cannot_raise_the_event_leaves_it_to_the_engine() {
    check(|| {
        let queue = Arc::new(Queue::default());
        let woken = Arc::new(AtomicBool::new(false));
        let (producer, wake) = (queue.clone(), woken.clone());
        let producer = thread::spawn(move || {
            producer.published[0].store(1, Ordering::Release);
            if producer.armed.must_raise(Urgency::Usual) {
                producer.armed.owe();
            }
            wake.store(true, Ordering::Release);
        });
        let engine = queue.clone();
        let engine = thread::spawn(move || {
            while !woken.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // `CqInner::raise_owed`
            if engine.armed.take_owed() {
                engine.fifo.write();
            }
        });
        queue.consume(1);
        producer.join().unwrap();
        engine.join().unwrap();
    });
}

const RECEIVING: u64 = 3;
const TAKEN_BACK: u64 = 0;

/// A responder's memory, which a requester may access in a receiving phase.
struct RevocableMemory {
    phase: AtomicU64,
    busy: Busy,
    word: UnsafeCell<u64>,
}

impl RevocableMemory {
    fn operate(&self) {
        self.busy.enter();
        if self.phase.load(Ordering::Acquire) == RECEIVING {
            // SAFETY: loom fails the test if another thread may use the word at the same time.
            self.word.with_mut(|word| unsafe { *word += 1 });
        }
        self.busy.leave();
    }

    fn take_back(&self) {
        self.phase.store(TAKEN_BACK, Ordering::Release);
        quiesce::barrier();
        let timeout = std::time::Duration::from_secs(3600);
        assert!(self.busy.wait_idle(timeout, || false));
    }
}

#[test]
fn no_peer_accesses_memory_after_quiescing() {
    check(|| {
        let memory = Arc::new(RevocableMemory {
            phase: AtomicU64::new(RECEIVING),
            busy: Busy::default(),
            word: UnsafeCell::new(0),
        });
        let requester = memory.clone();
        let requester = thread::spawn(move || {
            requester.operate();
            requester.operate();
        });
        memory.take_back();
        // SAFETY: loom fails the test if the requester may still use the word: this is what the test checks.
        memory.word.with_mut(|word| unsafe { *word = 100 });
        requester.join().unwrap();
        // SAFETY: the requester has ended.
        assert_eq!(memory.word.with(|word| unsafe { *word }), 100);
    });
}

#[test]
fn a_receive_flushed_after_quiescing_is_a_completion_or_a_flush_and_stays_so() {
    check(|| {
        let shared = Shared::new(1);
        let memory = Arc::new((AtomicU64::new(RECEIVING), Busy::default()));
        shared.post(0);
        let (requester, mark) = (shared.clone(), memory.clone());
        let requester = thread::spawn(move || {
            mark.1.enter();
            let sent = mark.0.load(Ordering::Acquire) == RECEIVING && requester.try_send(0);
            mark.1.leave();
            sent
        });
        memory.0.store(TAKEN_BACK, Ordering::Release);
        quiesce::barrier();
        assert!(
            memory
                .1
                .wait_idle(std::time::Duration::from_secs(3600), || false)
        );
        let arrived = shared.try_take(0);
        assert_eq!(requester.join().unwrap(), arrived, "flushed and completed");
    });
}

/// Completions of sends: what the consumer takes is whole and in order, and the producer reuses no
/// slot before it was taken.
#[test]
fn completions_of_sends_are_taken_whole_while_their_slots_are_reused() {
    const DEPTH: u64 = 2;
    const REQUESTS: u64 = 3;
    check(|| {
        let ring = Arc::new(SendRing::new(Qpn::default(), DEPTH as u32));
        let producing = ring.clone();
        let producer = thread::spawn(move || {
            for count in 1..=REQUESTS {
                // As posting does: a request is accepted only while the send queue has room.
                while count - producing.retired() > DEPTH {
                    thread::yield_now();
                }
                producing.push(Sent {
                    wr_id: count * 10,
                    status: WcStatus::Success,
                    opcode: WcOpcode::RdmaWrite,
                    byte_len: count as u32,
                    count,
                });
            }
        });
        for count in 1..=REQUESTS {
            while ring.waiting() == 0 {
                thread::yield_now();
            }
            let taken = ring.take();
            assert_eq!((taken.wr_id.0, taken.byte_len), (count * 10, count as u32));
            assert_eq!(taken.opcode, WcOpcode::RdmaWrite);
        }
        producer.join().unwrap();
    });
}

// ---------------------------------------------------------------------------------------------
// Datagrams: several senders, one receive queue

/// A datagram ring in "shared" memory. The payload of each cell is a word next to it, and loom
/// reports any access to it that is not ordered by the ring.
struct Inbox {
    lines: Vec<Line>,
    payload: Vec<UnsafeCell<u64>>,
    /// Stands for the queue pair's phase.
    life: AtomicU64,
}

/// Receives of the ring. Its spare cells make no difference to what is checked.
const INBOX_SLOTS: usize = 1;
/// Number of lines of a cell: header, message of sender 2, and GRH.
const CELL_LINES: usize = DatagramRing::lines_per_cell(16);

impl Inbox {
    fn new() -> Arc<Self> {
        let lines = DatagramRing::lines(INBOX_SLOTS, CELL_LINES);
        let inbox = Inbox {
            lines: (0..lines).map(|_| Line::default()).collect(),
            payload: Vec::new(),
            life: AtomicU64::new(0),
        };
        let cells = inbox.ring().cells();
        Arc::new(Inbox {
            payload: (0..cells).map(|_| UnsafeCell::new(0)).collect(),
            ..inbox
        })
    }

    fn ring(&self) -> DatagramRing<'_> {
        DatagramRing::over(&self.lines, INBOX_SLOTS, CELL_LINES)
    }

    /// Owner: begins a life and posts its receives.
    fn begin(&self) -> u64 {
        let first = self.ring().begin_generation();
        self.life.fetch_add(1, Ordering::Release);
        self.ring().post(first);
        first
    }

    /// Sender `number`: claims a cell, and fills it.
    fn prepare(&self, position: u64, number: u32) -> Cell {
        let holder = Holder::new(number, 7);
        let cell = self.ring().claim(position, holder).expect("spare cells");
        self.ring()
            .describe(cell, message(number), Addressee::default());
        self.payload[cell.number()].with_mut(|word| {
            // SAFETY: loom fails the test if another thread may use the word at the same time.
            unsafe { *word = u64::from(number) };
        });
        cell
    }

    /// Sender `number`: what `Way::put` does.
    fn send(&self, number: u32) -> Option<u64> {
        let life = self.life.load(Ordering::Acquire);
        let ring = self.ring();
        let is_same_generation = || self.life.load(Ordering::Acquire) == life;
        let mut position = ring.posted_from(ring.first(), is_same_generation)?;
        let cell = self.prepare(position, number);
        while !ring.publish(position, cell) {
            match ring.posted_from(position, is_same_generation) {
                Some(next) => position = next,
                None => {
                    ring.free(cell);
                    return None;
                }
            }
        }
        Some(position)
    }

    /// Owner: reads the message in a cell and frees the cell; returns the sender.
    fn empty(&self, cell: Cell) -> u32 {
        let arrived = self.ring().message(cell);
        // SAFETY: the requester has ended.
        let word = self.payload[cell.number()].with(|word| unsafe { *word });
        self.ring().free(cell);
        assert_eq!(u64::from(arrived.source), word);
        assert_eq!(arrived, message(arrived.source));
        arrived.source
    }

    fn take(&self, position: u64) -> Option<u32> {
        let cell = self.ring().arrival(position)?;
        Some(self.empty(cell))
    }
}

fn message(number: u32) -> Message {
    Message {
        length: 8 * number,
        source: number,
        imm: (number == 2).then_some(number),
        grh: GrhSource::Local,
    }
}

#[test]
fn each_receive_gets_one_message_of_two_senders_whole() {
    check(|| {
        let inbox = Inbox::new();
        let first = inbox.begin();
        let senders = [1, 2].map(|number| {
            let inbox = inbox.clone();
            thread::spawn(move || inbox.send(number))
        });
        let mut taken = inbox.take(first);
        if taken.is_some() {
            inbox.ring().post(first + 1);
        }
        let sent = senders.map(|s| s.join().unwrap());
        taken = taken.or_else(|| inbox.take(first));
        let by = taken.expect("one of the two finds the first receive") as usize - 1;
        assert_eq!(sent[by], Some(first));
        // The other sender was too early or too late for the second receive, or used it.
        let other = inbox.take(first + 1);
        assert_eq!(other.map(|n| n as usize - 1), sent[1 - by].map(|_| 1 - by));
    });
}

#[test]
fn a_sender_that_dies_with_a_cell_in_hand_holds_nobody_up() {
    check(|| {
        let inbox = Inbox::new();
        let first = inbox.begin();
        let died = Arc::new(AtomicBool::new(false));
        let (victim, death) = (inbox.clone(), died.clone());
        let victim = thread::spawn(move || {
            let position = victim.ring().posted_from(first, || true);
            victim.prepare(position.unwrap_or(first), 1);
            death.store(true, Ordering::Release);
        });
        let living = inbox.clone();
        let living = thread::spawn(move || living.send(2));
        if died.load(Ordering::Acquire) {
            // `CqInner::reclaim`
            inbox.ring().reclaim(first, |holder| holder.is_of(1));
        }
        assert_eq!(living.join().unwrap(), Some(first));
        victim.join().unwrap();
        assert_eq!(inbox.take(first), Some(2));
        inbox.ring().reclaim(first + 1, |holder| holder.is_of(1));
        let cells = inbox.ring().cells();
        let free = (0..).map_while(|_| inbox.ring().claim(0, Holder::new(3, 7)));
        assert_eq!(free.take(cells + 1).count(), cells, "a cell is lost");
    });
}

#[test]
fn a_receive_is_closed_or_gets_its_message_and_the_next_life_gets_none_of_the_former() {
    check(|| {
        let inbox = Inbox::new();
        let first = inbox.begin();
        let sender = inbox.clone();
        let sender = thread::spawn(move || {
            let life = sender.life.load(Ordering::Acquire);
            (life, sender.send(1))
        });
        let closed = inbox.ring().close(first).map(|cell| inbox.empty(cell));
        let next = inbox.begin();
        let (life, sent) = sender.join().unwrap();
        let arrived = inbox.take(next);
        match sent {
            Some(position) if position == first => {
                assert_eq!((closed, arrived), (Some(1), None));
            }
            // It began so late that it is a sender of the next life.
            Some(position) => assert_eq!((position, arrived, closed), (next, Some(1), None)),
            None => assert_eq!((closed, arrived), (None, None)),
        }
        assert!(life <= 2);
    });
}

/// A shared receive queue: its words, and the slots of its requests with a payload word each.
struct SharedQueue {
    lines: Vec<Line>,
    requests: Arc<Shared>,
}

const WORDS: usize = 2;
const SLOTS: usize = 2;

impl SharedQueue {
    fn new() -> Arc<Self> {
        let lines = (0..SharedRing::lines(WORDS)).map(|_| Line::default());
        let queue = SharedQueue {
            lines: lines.collect(),
            requests: Shared::new(SLOTS),
        };
        queue.ring().clear();
        Arc::new(queue)
    }

    fn ring(&self) -> SharedRing<'_> {
        SharedRing::over(&self.lines, WORDS)
    }

    fn post(&self, position: u64, slot: u16) {
        let ticket = Ticket { position, slot };
        self.requests.post(ticket.request(SLOTS));
        self.ring().post(ticket);
    }

    /// Requester: takes a request for `holder`, places a message and completes it.
    fn send(&self, holder: u16) -> Option<Ticket> {
        let ticket = self.ring().take(holder)?;
        assert!(self.requests.try_send(ticket.request(SLOTS)), "not posted");
        Some(ticket)
    }
}

#[test]
fn each_shared_receive_is_taken_once_in_order_and_the_owner_knows_by_whom() {
    check(|| {
        let queue = SharedQueue::new();
        queue.post(1, 0);
        let requesters = [5, 6].map(|holder| {
            let queue = queue.clone();
            thread::spawn(move || queue.send(holder))
        });
        queue.post(2, 1);
        let taken = requesters.map(|requester| requester.join().unwrap());
        let mut positions: Vec<_> = taken.iter().flatten().map(|t| t.position).collect();
        positions.sort_unstable();
        // A sender may find no receive before the second is posted, but not both senders.
        assert!(positions == [1, 2] || positions == [1], "{positions:?}");
        for (ticket, holder) in taken.iter().zip([5, 6]) {
            if let Some(ticket) = ticket {
                assert_eq!(queue.ring().taken_by(ticket.position), Some(holder));
                assert!(queue.requests.try_take(ticket.request(SLOTS)));
            }
        }
        if positions == [1] {
            assert_eq!(queue.ring().taken_by(2), None);
            assert_eq!(
                queue.send(7),
                Some(Ticket {
                    position: 2,
                    slot: 1
                })
            );
        }
        assert_eq!(queue.send(7), None);
    });
}

#[test]
fn a_shared_slot_is_posted_again_while_another_requester_looks_for_one() {
    check(|| {
        let queue = SharedQueue::new();
        queue.post(1, 0);
        let requesters = [5, 6].map(|holder| {
            let queue = queue.clone();
            thread::spawn(move || queue.send(holder).map(|ticket| ticket.position))
        });
        // The owner follows: it posts completed requests again, in the same slot.
        let first = Ticket {
            position: 1,
            slot: 0,
        }
        .request(SLOTS);
        while queue.ring().taken_by(1).is_none() || !queue.requests.try_take(first) {
            thread::yield_now();
        }
        queue.post(2, 0);
        let mut taken: Vec<_> = requesters
            .into_iter()
            .filter_map(|requester| requester.join().unwrap())
            .collect();
        taken.sort_unstable();
        assert!(taken == [1, 2] || taken == [1], "{taken:?}");
    });
}

#[test]
fn the_limit_of_a_shared_queue_is_told_once() {
    check(|| {
        let queue = SharedQueue::new();
        queue.post(1, 0);
        queue.post(2, 1);
        queue.ring().arm(2);
        let requesters = [5, 6].map(|holder| {
            let queue = queue.clone();
            thread::spawn(move || assert!(queue.ring().take(holder).is_some()))
        });
        let mut told = u32::from(queue.ring().take_reached());
        for requester in requesters {
            requester.join().unwrap();
        }
        told += u32::from(queue.ring().take_reached());
        assert_eq!(told, 1);
        assert_eq!(queue.ring().limit(), 0);
    });
}

/// A completion queue whose producers mark their queue pairs. Each of two producers has a ring, which counts
/// what it published.
#[derive(Default)]
struct Marked {
    ready: Ready<2>,
    published: [AtomicU32; 2],
    armed: Armed,
    fifo: Fifo,
    /// Whether producers mark.
    marks: AtomicBool,
}

/// What the owner of a [`Marked`] has taken of each producer.
type Taken = [u32; 2];

impl Marked {
    /// The queue pairs of the two producers; with one for both, producers of datagrams.
    fn publish(&self, producer: usize, queue_pairs: [u32; 2]) {
        let published = self.published[producer].load(Ordering::Relaxed);
        self.published[producer].store(published + 1, Ordering::Release);
        self.ready.mark(queue_pairs[producer]);
    }

    fn poll(&self, queue_pairs: [u32; 2], taken: &mut Taken) {
        self.ready.take(|index| {
            for (producer, queue_pair) in queue_pairs.into_iter().enumerate() {
                if queue_pair == index {
                    self.look_at(producer, taken);
                }
            }
        });
    }

    fn look_at(&self, producer: usize, taken: &mut Taken) {
        taken[producer] = self.published[producer].load(Ordering::Acquire);
    }
}

/// What a producer published is found once it has returned, wherever the other one is.
fn find_all(queue_pairs: [u32; 2], published: [u32; 2]) {
    check(move || {
        let queue = Arc::new(Marked::default());
        let producers = [0, 1].map(|producer| {
            let queue = queue.clone();
            thread::spawn(move || {
                (0..published[producer]).for_each(|_| queue.publish(producer, queue_pairs));
            })
        });
        let mut taken = [0; 2];
        queue.poll(queue_pairs, &mut taken);
        for (producer, thread) in producers.into_iter().enumerate() {
            thread.join().unwrap();
            queue.poll(queue_pairs, &mut taken);
            assert_eq!(taken[producer], published[producer], "{producer}");
        }
    });
}

#[test]
fn marked_queue_pairs_of_one_group_lose_no_completion() {
    find_all([0, 1], [2, 1]);
}

#[test]
fn marked_queue_pairs_of_two_groups_lose_no_completion() {
    find_all([3, 64], [2, 1]);
}

#[test]
fn a_sender_stopped_while_it_marks_a_queue_pair_hides_no_datagram_of_another() {
    find_all([5, 5], [1, 2]);
}

#[test]
fn arming_and_polling_marked_queue_pairs_never_misses_a_completion() {
    check(|| {
        let queue = Arc::new(Marked::default());
        let producer = queue.clone();
        let producer = thread::spawn(move || {
            producer.publish(0, [7, 7]);
            if producer.armed.must_raise(Urgency::Usual) {
                producer.fifo.write();
            }
        });
        let mut taken = [0; 2];
        loop {
            queue.armed.arm(NotifyOn::Any);
            queue.poll([7, 7], &mut taken);
            if taken[0] == 1 {
                break;
            }
            queue.fifo.read();
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_completion_published_while_marks_begin_is_found() {
    check(|| {
        let queue = Arc::new(Marked::default());
        let producer = queue.clone();
        let producer = thread::spawn(move || {
            producer.published[0].store(1, Ordering::Release);
            // `Duties::of`
            fence(Ordering::SeqCst);
            if producer.marks.load(Ordering::Relaxed) {
                producer.ready.mark(9);
            }
        });
        let mut taken = [0; 2];
        // `CqInner::attach`
        queue.marks.store(true, Ordering::Relaxed);
        quiesce::barrier();
        queue.look_at(0, &mut taken);
        producer.join().unwrap();
        queue.poll([9, 9], &mut taken);
        assert_eq!(taken[0], 1);
    });
}
