//! One sender and the owner, on one thread. `tests/loom.rs` checks several threads.

use super::*;

const SLOTS: usize = 4;
const ME: fn() -> Holder = || Holder::new(3, 0xdead_beef_1234_5678);

fn memory() -> Vec<Line> {
    let lines = DatagramRing::lines(SLOTS, DatagramRing::lines_per_cell(100));
    (0..lines).map(|_| Line::default()).collect()
}

fn ring(memory: &[Line]) -> DatagramRing<'_> {
    DatagramRing::over(memory, SLOTS, DatagramRing::lines_per_cell(100))
}

/// Returns an addressee that differs in queue pair and generation from its neighbours.
fn addressee(source: u32) -> Addressee {
    Addressee::new(source % 16, u64::from(source) << 10)
}

fn send(ring: &DatagramRing<'_>, from: u64, message: Message) -> Option<u64> {
    let position = ring.posted_from(from, || true)?;
    let cell = ring.claim(position, ME()).expect("a free cell");
    ring.describe(cell, message, addressee(message.source));
    assert!(ring.publish(position, cell));
    Some(position)
}

fn message(n: u32) -> Message {
    Message {
        length: n % 100,
        source: 0xff_ffff - n,
        imm: n.is_multiple_of(2).then_some(!n),
        grh: match n.is_multiple_of(3) {
            true => GrhSource::Received,
            false => GrhSource::Local,
        },
    }
}

#[test]
fn messages_arrive_unchanged_over_many_laps() {
    let memory = memory();
    let ring = ring(&memory);
    let first = ring.begin_generation();
    assert_eq!(ring.first(), first);
    let mut hint = first;
    for n in 0..40 {
        let position = first + u64::from(n);
        assert_eq!(send(&ring, hint, message(n)), None);
        ring.post(position);
        assert_eq!(ring.arrival(position), None);
        assert_eq!(send(&ring, hint, message(n)), Some(position));
        // A sender whose hint is many laps old finds the oldest receive.
        if n.is_multiple_of(9) {
            hint = position + 1;
        }
        let cell = ring.arrival(position).expect("a message");
        assert_eq!(ring.message(cell), message(n));
        assert_eq!(ring.addressee(cell), addressee(message(n).source));
        ring.free(cell);
    }
}

#[test]
fn a_sender_of_an_earlier_generation_finds_no_receive() {
    let memory = memory();
    let ring = ring(&memory);
    let old = ring.begin_generation();
    ring.post(old);
    ring.post(old + 1);
    assert_eq!(send(&ring, old, message(1)), Some(old));
    assert!(ring.close(old).is_some());
    assert!(ring.close(old + 1).is_none());
    let new = ring.begin_generation();
    assert!(new > old + 1);
    (new..new + SLOTS as u64).for_each(|position| ring.post(position));
    for position in old..old + 2 {
        assert_eq!(ring.posted_from(position, || false), None);
        assert!(!ring.publish(position, Cell(0)));
    }
    assert_eq!(ring.posted_from(new, || false), Some(new));
}

#[test]
fn messages_stay_within_their_cells() {
    let memory = memory();
    let ring = ring(&memory);
    assert!(ring.room() >= 100);
    let begin = memory.as_ptr().addr();
    let end = begin + size_of_val(&memory[..]);
    for number in 0..ring.cells() as u32 {
        let payload = ring.payload(Cell(number)).addr();
        assert!(payload.is_multiple_of(8) && payload > begin);
        assert_eq!(ring.grh(Cell(number)).addr(), payload + ring.room());
        assert!(payload + ring.room() + GRH_LEN <= end);
    }
}

#[test]
fn cells_of_dead_senders_are_reclaimed_unless_their_message_waits() {
    let memory = memory();
    let ring = ring(&memory);
    let first = ring.begin_generation();
    ring.post(first);
    assert_eq!(send(&ring, first, message(7)), Some(first));
    let others = Holder::new(4, 1);
    let living = ring.claim(9, others).expect("a cell");
    let held: Vec<_> = std::iter::from_fn(|| ring.claim(0, ME())).collect();
    assert_eq!(held.len(), ring.cells() - 2);
    ring.reclaim(first, |holder| holder.is_of(3));
    let free: Vec<_> = std::iter::from_fn(|| ring.claim(0, ME())).collect();
    assert_eq!(free.len(), ring.cells() - 2);
    let waiting = ring.arrival(first).expect("the dead sender's message");
    assert_eq!(ring.message(waiting), message(7));
    assert!(!free.contains(&living) && !free.contains(&waiting));
    ring.free(waiting);
    ring.reclaim(first + 1, |holder| holder == others);
    assert!(ring.claim(0, ME()).is_some() && ring.claim(0, ME()).is_some());
}
