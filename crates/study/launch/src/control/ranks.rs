//! Connections from rank 0 to the other ranks of its job, until peers take them.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use anyhow::bail;

use super::{PeerAddress, ToAgentLink};

/// The other ranks of the job, connected to this process, which is rank 0. Empty outside a job.
#[derive(Clone, Debug, Default)]
pub struct Ranks(Rc<RefCell<Vec<Option<ConnectedRank>>>>);

/// A rank that has greeted.
#[derive(Debug)]
pub(crate) struct ConnectedRank {
    pub(crate) host: String,
    pub(crate) connection: ToAgentLink,
}

impl Ranks {
    /// Keeps the connections to the ranks; rank `n` is at `n - 1`.
    pub(crate) fn new(seats: Vec<Option<ConnectedRank>>) -> Self {
        Ranks(Rc::new(RefCell::new(seats)))
    }

    /// Returns the addresses of the first `most` ranks; the others end.
    pub fn addresses(&self, most: usize) -> Vec<PeerAddress> {
        self.0.borrow_mut().truncate(most);
        let numbers = (1..).take(self.0.borrow().len());
        numbers.map(PeerAddress::Rank).collect()
    }

    /// Returns this host's address on the network that leads to rank 1.
    pub fn reached_from(&self) -> Option<IpAddr> {
        let seats = self.0.borrow();
        seats.first()?.as_ref()?.connection.local_ip()
    }

    /// Takes the connection to a rank, with the name of the rank in messages.
    pub(crate) fn take(&self, rank: u32) -> anyhow::Result<(String, ToAgentLink)> {
        let mut seats = self.0.borrow_mut();
        let seat = rank
            .checked_sub(1)
            .and_then(|at| seats.get_mut(at as usize));
        match seat.and_then(Option::take) {
            Some(ConnectedRank { host, connection }) => {
                Ok((format!("rank {rank} ({host})"), connection))
            }
            None => bail!(
                "rank {rank} does not exist: start adverb by mpirun or srun as before, or name a server with --peer"
            ),
        }
    }
}
