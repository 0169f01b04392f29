//! The processing units of a NIC, which take the requests of queue pairs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use adverb_units::{Span, Time};

use crate::ids::QpRef;
use crate::resource::Server;

/// Serves queue pairs in turn, one WQE each. Any unit that is free takes the next one, but a queue pair's requests are
/// processed one after another, so that they keep their order.
///
/// A unit holds a request until the transmit side and the port take it, and takes no other meanwhile. So what a busy transmit
/// side or port cannot take stays in the send queues. If it waited in the port, acknowledgements would wait behind all WRITEs
/// of their own machine, and two machines that WRITE to each other would stop each other in turn (Rybko and Stolyar, 1992: such
/// networks lose throughput although no server is overloaded).
#[derive(Clone, Debug)]
pub(crate) struct Units {
    /// When each unit is free, the next one first.
    free: BinaryHeap<Reverse<Time>>,
    /// The work for each queue pair of the machine, by its place in `Machine::numbers`.
    pub(crate) turns: Vec<Server>,
    /// Of the transmit side, and of each port.
    intakes: Box<[Intake]>,
    /// Queue pairs whose next WQE the NIC has, and since when, in the order in which they are served.
    pub(crate) waiting: VecDeque<(QpRef, Time)>,
    /// Whether an event is scheduled at the time when the next unit is free.
    pub(crate) is_scheduled: bool,
}

impl Units {
    pub(crate) fn new(units: u32, ports: usize) -> Self {
        Units {
            free: vec![Reverse(Time::ZERO); units as usize].into(),
            turns: Vec::new(),
            intakes: vec![Intake::default(); 1 + ports].into_boxed_slice(),
            waiting: VecDeque::new(),
            is_scheduled: false,
        }
    }

    /// Returns when the next unit is free.
    pub(crate) fn next_free(&self) -> Time {
        self.free.peek().map_or(Time::ZERO, |free| free.0)
    }

    /// The next unit has offered a request of queue pair `qp` at `at` to the transmit side and to `port`, which were free `before`,
    /// and are free `after` it. It holds the request until both take it.
    pub(crate) fn hold(
        &mut self,
        (qp, at): (u32, Time),
        port: usize,
        before: [Time; 2],
        after: [Time; 2],
    ) {
        let turn = &mut self.turns[qp as usize];
        for (side, intake) in [0, 1 + port].into_iter().enumerate() {
            let taken = self.intakes[intake].take(at, before[side], after[side]);
            turn.begin(taken, Span::ZERO);
        }
        if let Some(mut free) = self.free.peek_mut() {
            free.0 = turn.free();
        }
    }
}

/// Where the transmit side or a port takes requests from processing units.
///
/// It takes a request when it has served what it took before. Answers do not wait in units, but they do not starve requests
/// either: both are served in turn, so a request waits for no more than its own size of answers.
#[derive(Clone, Copy, Debug, Default)]
struct Intake {
    /// When it took the last request.
    taken: Time,
}

impl Intake {
    /// Takes a request that is offered at `at` to a server that was free `before`, and is free `after` it; returns when.
    fn take(&mut self, at: Time, before: Time, after: Time) -> Time {
        let free = before.max(at);
        let turn = self.taken.max(at) + (after - free) * 2;
        self.taken = free.min(turn);
        self.taken
    }
}
