//! The dynamically connected transport: an initiator's connection, and a NIC's pool of contexts for initiators.

use crate::ids::QpRef;
use crate::nic::port::Target;

/// Whether an initiator is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Connected with none.
    #[default]
    Apart,
    /// It waits for the answer of this one.
    Connecting(Target),
    /// Requests go to this one.
    Connected(Target),
}

/// A context that a target holds for an initiator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) target: QpRef,
    pub(crate) context: u32,
}

/// The connection of an initiator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) held: Option<Held>,
}

impl Connection {
    /// Its connect packet is lost: the next one may go.
    pub(crate) fn give_up_connecting(&mut self) {
        if matches!(self.state, State::Connecting(_)) {
            self.state = State::Apart;
        }
    }
}

/// A NIC's contexts for initiators. What was given back last is given out first, so that few are in use.
#[derive(Debug)]
pub(crate) struct Contexts {
    free: Vec<u32>,
    made: u32,
    most: u32,
}

impl Contexts {
    pub(crate) fn new(most: u32) -> Self {
        Contexts {
            free: Vec::new(),
            made: 0,
            most,
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(context) = self.free.pop() {
            return Some(context);
        }
        (self.made < self.most).then(|| {
            self.made += 1;
            self.made - 1
        })
    }

    pub(crate) fn give(&mut self, context: u32) {
        self.free.push(context);
    }
}
