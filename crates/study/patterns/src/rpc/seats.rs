//! The members of a program of one server and its clients: what each is, and on which machine.

use adverb_verbs::RoleId;

use super::RpcPart;

/// Server cores on machine 0, then clients, which are assigned in turn to the other machines. One core serves a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seats {
    /// Server cores.
    pub(crate) cores: u32,
    /// Clients.
    pub(crate) clients: u32,
    /// Most machines of clients.
    pub(crate) machines: u32,
}

impl Seats {
    /// Returns the number of members.
    pub(crate) fn members(self) -> u32 {
        self.cores + self.clients
    }

    /// Returns the number of machines.
    pub(crate) fn machines(self) -> u32 {
        1 + self.machines.min(self.clients).max(1)
    }

    /// Returns the part of a member.
    pub(crate) fn part(self, role: RoleId) -> RpcPart {
        match role.0.checked_sub(self.cores) {
            None => RpcPart::Core(role.0),
            Some(client) => RpcPart::Client(client),
        }
    }

    /// Returns the machine of a member.
    pub(crate) fn machine(self, role: RoleId) -> u32 {
        match self.part(role) {
            RpcPart::Core(_) => 0,
            RpcPart::Client(client) => 1 + client % (self.machines() - 1),
        }
    }

    /// Returns the members that a member communicates with, except at start and end.
    pub(crate) fn peers(self, role: RoleId) -> Vec<RoleId> {
        match self.part(role) {
            RpcPart::Core(core) => self.clients_of(core).collect(),
            RpcPart::Client(client) => vec![self.core_of(client)],
        }
    }

    /// Returns the core that serves a client.
    pub(crate) fn core_of(self, client: u32) -> RoleId {
        RoleId(client % self.cores)
    }

    /// Returns the clients of a core, in order.
    pub(crate) fn clients_of(self, core: u32) -> impl Iterator<Item = RoleId> {
        let clients = (core..self.clients).step_by(self.cores as usize);
        clients.map(move |client| RoleId(self.cores + client))
    }

    /// Returns the index of a client among the clients of its core.
    pub(crate) fn place(self, client: u32) -> u32 {
        client / self.cores
    }
}
