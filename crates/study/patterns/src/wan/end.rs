//! One end of RC connections: posts requests, collects completions, counts messages.

use std::collections::VecDeque;

use adverb_results::Completion;
use adverb_units::Span;
use adverb_verbs::{
    CompletionQueue, MemoryRegion, NumaPlacement, Operation, PathOptions, QueuePair, RecvRequest,
    RemoteAddress, RoleId, SendFlags, SendRequest, Station, WaitError, WorkCompletion, WrId,
};
use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::error::{Fault, succeeded};
use adverb_workload::pattern::wiring::{Depths, Wiring};
use adverb_workload::reap::BATCH;
use serde::{Deserialize, Serialize};

use crate::{Link, Member, Part, Pattern, Transport};

/// The name of each send request. Receives have the numbers of their link and slot.
const REQUEST: WrId = WrId(u64::MAX);

/// Requests that a role has posted. Each is a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// RDMA WRITEs.
    pub writes: u64,
    /// RDMA READs.
    pub reads: u64,
    /// SENDs.
    pub sends: u64,
}

impl Traffic {
    /// Returns the number of requests.
    pub fn all(self) -> u64 {
        self.writes + self.reads + self.sends
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The link that it arrived over.
    pub(crate) link: usize,
    /// The slot of its receive.
    pub(crate) slot: u32,
    /// Its length.
    pub(crate) bytes: u32,
}

/// The memory, completion queue and queue pairs of a role.
pub(crate) struct End<'m, S: Station> {
    members: &'m Members<'m, S>,
    wiring: Wiring<S::Context>,
    /// Send requests that have not completed.
    outstanding: u32,
    arrived: VecDeque<Arrival>,
    traffic: Traffic,
}

impl<'m, S: Station> End<'m, S> {
    /// Creates the objects, with memory of `bytes` and queues of these sizes, and connects a queue pair with each
    /// peer. Completions are awaited like this.
    pub(crate) fn new(
        members: &'m Members<'m, S>,
        peers: &[RoleId],
        (bytes, send, recv): (u64, u32, u32),
        (path, completion): (PathOptions, Completion),
    ) -> Result<Self, Fault> {
        let depths = Depths {
            send,
            recv,
            rd_atomic: 1,
            ..Depths::PASSIVE
        };
        let mut pattern = Pattern::new(Transport::Rc);
        (pattern.path, pattern.wait) = (path, completion);
        let member = Member {
            machine: 0,
            transport: Transport::Rc,
            links: peers.iter().map(|peer| Link { peer: *peer }).collect(),
            part: Part::Serve,
            memory: bytes,
            numa: NumaPlacement::default(),
        };
        Ok(End {
            members,
            wiring: Wiring::with_depths(members, &pattern, &member, depths)?,
            outstanding: 0,
            arrived: VecDeque::new(),
            traffic: Traffic::default(),
        })
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Returns the address of a place in the own memory, for the peer.
    pub(crate) fn address(&self, offset: u64) -> RemoteAddress {
        self.wiring.mr.remote(offset)
    }

    /// Returns the address of a place in the memory of a link's peer.
    pub(crate) fn remote(&self, link: usize, offset: u64) -> RemoteAddress {
        self.wiring.wires[link].remote.at(offset)
    }

    /// WRITEs bytes of the own memory.
    pub(crate) fn write(
        &mut self,
        link: usize,
        from: (u64, u32),
        to: RemoteAddress,
    ) -> Result<(), Fault> {
        self.traffic.writes += 1;
        self.post(link, Operation::RdmaWrite(to), from)
    }

    /// READs into the own memory.
    pub(crate) fn read(
        &mut self,
        link: usize,
        into: (u64, u32),
        from: RemoteAddress,
    ) -> Result<(), Fault> {
        self.traffic.reads += 1;
        self.post(link, Operation::RdmaRead(from), into)
    }

    /// SENDs bytes of the own memory.
    pub(crate) fn send(&mut self, link: usize, from: (u64, u32)) -> Result<(), Fault> {
        self.traffic.sends += 1;
        self.post(link, Operation::Send, from)
    }

    fn post(
        &mut self,
        link: usize,
        operation: Operation,
        (offset, length): (u64, u32),
    ) -> Result<(), Fault> {
        let sges = [self.wiring.mr.sge(offset, length)?];
        let request = SendRequest::new(REQUEST, operation, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.wiring.qps[link].post_send(&[request])?;
        self.outstanding += 1;
        Ok(())
    }

    /// Posts a receive.
    pub(crate) fn post_receive(
        &mut self,
        (link, slot): (usize, u32),
        (offset, length): (u64, u32),
    ) -> Result<(), Fault> {
        let sges = [self.wiring.mr.sge(offset, length)?];
        let name = WrId((link as u64) << 32 | u64::from(slot));
        Ok(self.wiring.qps[link].post_recv(&[RecvRequest::new(name, &sges)])?)
    }

    /// Waits until at most `most` send requests are outstanding.
    pub(crate) fn drain_to(&mut self, most: u32) -> Result<(), Fault> {
        while self.outstanding > most {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for the next message.
    pub(crate) fn take(&mut self) -> Result<Arrival, Fault> {
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                return Ok(arrival);
            }
            self.wait()?;
        }
    }

    /// Waits for the next message, or for `timeout`.
    pub(crate) fn take_within(&mut self, timeout: Span) -> Result<Option<Arrival>, Fault> {
        if self.arrived.is_empty() {
            let mut completions = [WorkCompletion::default(); BATCH];
            let (station, queue) = (self.members.station(), &self.wiring.queue);
            let mut reaper = queue.reaper();
            let n = reaper.reap_within(station, self.members, &mut completions, timeout)?;
            drop(reaper);
            self.note(&completions[..n])?;
        }
        Ok(self.arrived.pop_front())
    }

    /// Returns the next message if one has arrived.
    pub(crate) fn take_arrived(&mut self) -> Result<Option<Arrival>, Fault> {
        if self.arrived.is_empty() {
            self.poll()?;
        }
        Ok(self.arrived.pop_front())
    }

    fn poll(&mut self) -> Result<(), Fault> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let n = self.wiring.queue.cq.poll(&mut completions)?;
        self.note(&completions[..n])
    }

    fn wait(&mut self) -> Result<(), Fault> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let (station, queue) = (self.members.station(), &self.wiring.queue);
        let n = (queue.reaper()).reap(station, self.members, &mut completions)?;
        self.note(&completions[..n])
    }

    fn note(&mut self, completions: &[WorkCompletion]) -> Result<(), Fault> {
        for wc in completions {
            succeeded(wc)?;
            match wc.wr_id {
                REQUEST => self.outstanding -= 1,
                WrId(name) => self.arrived.push_back(Arrival {
                    link: (name >> 32) as usize,
                    slot: name as u32,
                    bytes: wc.byte_len,
                }),
            }
        }
        Ok(())
    }

    /// Polls a byte of the own memory until it is `value`. If that takes long, an own request may have failed, and the
    /// peer does not answer it.
    pub(crate) fn spin_memory(&mut self, offset: u64, value: u8) -> Result<(), Fault> {
        let members = self.members;
        attentively(members, Awaited::Message, |timeout| {
            let station = members.station();
            let waited = station.spin_memory(&self.wiring.mr, offset, value, timeout);
            if let Err(WaitError::TimedOut { .. }) = waited {
                self.poll()?;
            }
            Ok::<(), Fault>(waited?)
        })
    }

    /// Stores bytes in the own memory.
    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.wiring.mr.write(offset, bytes)?)
    }

    /// Loads bytes of the own memory.
    pub(crate) fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        Ok(self.wiring.mr.read(offset, into)?)
    }
}
