//! The sockets by which packets leave: a lane for each of some peers, the one that all peers know for the
//! others.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use super::datagrams::Target;
use super::numbering::Probe;
use super::socket::{Remote, RoceSocket};

/// Where packets go, and by which socket.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) by: Arc<RoceSocket>,
    pub(super) target: Target,
}

impl Way {
    /// The way to a peer's socket by this one; none where they are of two IP versions.
    pub(super) fn new(by: Arc<RoceSocket>, to: Remote) -> Option<Self> {
        let target = Target::new(by.at(), to)?;
        Some(Way { by, target })
    }

    /// Whether it is the same, too.
    #[inline]
    pub(super) fn is(&self, other: &Way) -> bool {
        self.target.to == other.target.to && Arc::ptr_eq(&self.by, &other.by)
    }
}

/// Lanes at a time, one for each peer and traffic class: each is a descriptor of the program's.
const MOST: usize = 64;

#[derive(Debug)]
pub(super) struct Lanes {
    main: Arc<RoceSocket>,
    /// One whose connections are all gone is closed.
    open: HashMap<Remote, Weak<RoceSocket>>,
    /// Of connections that have none.
    missing: Vec<Remote>,
}

/// Opens lanes, in the network namespace of the device.
#[derive(Debug, Default)]
pub(super) struct Opener(Option<Arc<Probe>>);

impl Opener {
    pub(super) fn open(&mut self, own: IpAddr, to: Remote) -> io::Result<RoceSocket> {
        let probe = match self.0.take() {
            Some(probe) => probe,
            None => Arc::new(Probe::new(own)?),
        };
        RoceSocket::lane(own, to, self.0.insert(probe))
    }
}

impl Lanes {
    pub(super) fn new(main: &Arc<RoceSocket>) -> Self {
        Lanes {
            main: main.clone(),
            open: HashMap::new(),
            missing: Vec::new(),
        }
    }

    /// The way of a connection to `peer`; none where that is of another IP version.
    pub(super) fn way(&mut self, peer: Remote) -> Option<Way> {
        let main = self.main_to(peer)?;
        let open = self.open.get(&peer).and_then(Weak::upgrade);
        if let Some(way) = open.and_then(way_by) {
            return Some(way);
        }
        if !self.missing.contains(&peer) {
            self.missing.push(peer);
        }
        Some(main)
    }

    /// The way of a connection to `peer` that has no lane.
    pub(super) fn main_to(&self, peer: Remote) -> Option<Way> {
        Way::new(self.main.clone(), peer)
    }

    /// The way of a datagram.
    pub(super) fn main(&self, target: Target) -> Way {
        let by = self.main.clone();
        Way { by, target }
    }

    /// Takes the peers to open lanes to, at most as many as there may be.
    pub(super) fn take_missing(&mut self) -> Vec<Remote> {
        let mut missing = std::mem::take(&mut self.missing);
        self.open.retain(|_, lane| lane.strong_count() > 0);
        missing.truncate(MOST - self.open.len());
        missing
    }

    /// Adds a lane, and gives the way by it.
    pub(super) fn open(&mut self, lane: RoceSocket) -> Option<Way> {
        let way = way_by(Arc::new(lane))?;
        self.open.insert(way.target.to, Arc::downgrade(&way.by));
        Some(way)
    }
}

fn way_by(lane: Arc<RoceSocket>) -> Option<Way> {
    let to = lane.leads_to()?;
    Way::new(lane, to)
}
