//! Protection domains, and what the objects of a context share.

use std::sync::Arc;

use adverb_verbs::ProtectionDomain;

use crate::engine::Engine;
use crate::port::Port;

/// A port and its engine, which runs until the last object of the context is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) port: Arc<Port>,
    _engine: Engine,
}

impl Handle {
    pub(crate) const fn new(port: Arc<Port>, engine: Engine) -> Self {
        Handle {
            port,
            _engine: engine,
        }
    }
}

/// A protection domain of the user-space NIC.
#[derive(Clone, Debug)]
pub struct SoftPd {
    pub(crate) handle: Arc<Handle>,
    pub(crate) number: u32,
}

impl ProtectionDomain for SoftPd {}
