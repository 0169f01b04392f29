//! The dynamically connected transport: an initiator's connection, and a target NIC's pool of contexts.

use crate::ids::QpRef;
use crate::nic::port::Target;

/// The state of an initiator's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// Not connected.
    #[default]
    Disconnected,
    /// Waiting for the answer of this target.
    Connecting(Target),
    Connected(Target),
}

/// A context that a target holds for an initiator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldContext {
    pub(crate) target: QpRef,
    pub(crate) context: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) held: Option<HeldContext>,
}

impl Connection {
    /// The connect packet is lost: another may be sent.
    pub(crate) fn give_up_connecting(&mut self) {
        if matches!(self.state, State::Connecting(_)) {
            self.state = State::Disconnected;
        }
    }
}

/// A NIC's pool of contexts for initiators. The one returned last is reused first, so that few are cached.
#[derive(Debug)]
pub(crate) struct Contexts {
    free: Vec<u32>,
    created: u32,
    limit: u32,
}

impl Contexts {
    pub(crate) fn new(limit: u32) -> Self {
        Contexts {
            free: Vec::new(),
            created: 0,
            limit,
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(context) = self.free.pop() {
            return Some(context);
        }
        (self.created < self.limit).then(|| {
            self.created += 1;
            self.created - 1
        })
    }

    pub(crate) fn give(&mut self, context: u32) {
        self.free.push(context);
    }
}
