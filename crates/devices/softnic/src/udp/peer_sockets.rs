//! Connected sockets, one per peer: connected queue pairs send through them. Beyond a limit, and until its own
//! socket is open, a peer's packets are sent through the main socket, which is not connected.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use super::datagrams::Target;
use super::ip_id::Probe;
use super::socket::{Remote, RoceSocket};

/// Destination of packets, and the socket that sends them.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) socket: Arc<RoceSocket>,
    pub(super) target: Target,
}

impl Route {
    /// Makes a route through `socket`. `None` if the peer's address is of the other IP version.
    pub(super) fn new(socket: Arc<RoceSocket>, to: Remote) -> Option<Self> {
        let target = Target::new(socket.at(), to)?;
        Some(Route { socket, target })
    }

    /// Whether both name the same socket and destination.
    #[inline]
    pub(super) fn is(&self, other: &Route) -> bool {
        self.target.to == other.target.to && Arc::ptr_eq(&self.socket, &other.socket)
    }
}

/// Connected sockets at a time, one for each peer and traffic class: each takes a file descriptor of the program.
const MAX_SOCKETS: usize = 64;

#[derive(Debug)]
pub(super) struct PeerSockets {
    main: Arc<RoceSocket>,
    /// Weak: a socket closes with the last route through it.
    open: HashMap<Remote, Weak<RoceSocket>>,
    /// Peers with connections whose socket is still to be opened.
    missing: Vec<Remote>,
}

/// Opens connected sockets in the calling thread's network namespace, with one probe for all of them.
#[derive(Debug, Default)]
pub(super) struct SocketOpener(Option<Arc<Probe>>);

impl SocketOpener {
    pub(super) fn open(&mut self, own: IpAddr, to: Remote) -> io::Result<RoceSocket> {
        let probe = match self.0.take() {
            Some(probe) => probe,
            None => Arc::new(Probe::new(own)?),
        };
        RoceSocket::connected(own, to, self.0.insert(probe))
    }
}

impl PeerSockets {
    pub(super) fn new(main: &Arc<RoceSocket>) -> Self {
        PeerSockets {
            main: main.clone(),
            open: HashMap::new(),
            missing: Vec::new(),
        }
    }

    /// Returns the route of a connection to `peer`. `None` if its address is of the other IP version.
    pub(super) fn route(&mut self, peer: Remote) -> Option<Route> {
        let main = self.main_to(peer)?;
        let open = self.open.get(&peer).and_then(Weak::upgrade);
        if let Some(route) = open.and_then(route_by) {
            return Some(route);
        }
        if !self.missing.contains(&peer) {
            self.missing.push(peer);
        }
        Some(main)
    }

    /// Returns the route to `peer` through the main socket.
    pub(super) fn main_to(&self, peer: Remote) -> Option<Route> {
        Route::new(self.main.clone(), peer)
    }

    /// Returns the route of a datagram.
    pub(super) fn main(&self, target: Target) -> Route {
        let socket = self.main.clone();
        Route { socket, target }
    }

    /// Takes the peers whose sockets are to be opened, as many as the limit allows.
    pub(super) fn take_missing(&mut self) -> Vec<Remote> {
        let mut missing = std::mem::take(&mut self.missing);
        self.open.retain(|_, socket| socket.strong_count() > 0);
        missing.truncate(MAX_SOCKETS - self.open.len());
        missing
    }

    /// Adds a connected socket; returns the route through it.
    pub(super) fn open(&mut self, socket: RoceSocket) -> Option<Route> {
        let route = route_by(Arc::new(socket))?;
        self.open
            .insert(route.target.to, Arc::downgrade(&route.socket));
        Some(route)
    }
}

fn route_by(socket: Arc<RoceSocket>) -> Option<Route> {
    let to = socket.peer()?;
    Route::new(socket, to)
}
