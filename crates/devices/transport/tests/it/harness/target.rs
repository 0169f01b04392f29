//! What the fuzzer calls, and `corpus.rs` with what it found.

use super::Run;
use super::hostile::Hostile;
use crate::lab::Random;

/// Operations of each direction, at most.
const OPERATIONS: u8 = 12;
/// Packets and posts, at most.
const ACTIONS: u8 = 120;

/// Operations of several hosts, and the delivery of each packet, out of bytes.
pub fn operations(data: &[u8]) {
    let Some((&count, data)) = data.split_first() else {
        return;
    };
    let (plan, deliveries) = data.split_at(data.len() / 2);
    let random = |bytes: &[u8]| Random::of_bytes(bytes.to_vec());
    let mut run = Run::new(
        1 + usize::from(count % OPERATIONS),
        random(plan),
        random(deliveries),
    );
    run.finish();
    // As many losses as bytes can bring about are more than retries can stand.
    if !run.has_failed() {
        run.check();
    }
}

/// Packets that nobody should send, out of bytes.
pub fn hostile(data: &[u8]) {
    let Some((&count, data)) = data.split_first() else {
        return;
    };
    let mut hostile = Hostile::new(Random::of_bytes(data.to_vec()));
    hostile.run(usize::from(count % ACTIONS));
}
