//! Multicast groups: the attached queue pairs, and the copies of datagrams.
//!
//! A datagram to a group leaves its port once. The last switch makes a copy for each port with a member behind it,
//! and the NIC there delivers it to each attached queue pair (IBTA vol. 1, 10.5.2). There is no subnet manager: a
//! group exists while a queue pair is attached to it.

use adverb_units::Span;
use adverb_verbs::{Gid, McastError};

use crate::ids::{MachineId, QpIndex, QpRef};
use crate::nic::port::Leaves;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::{Delivery, Message};
use crate::world::wire::{credit, switched, travel};

impl Fabric {
    /// Attaches a queue pair to a group.
    pub(crate) fn attach(
        &mut self,
        index: QpIndex,
        group: Gid,
        events: &mut EventQueue,
    ) -> Result<(), McastError> {
        let members = self.change_group(index, group, events)?;
        if !members.contains(&index) {
            members.push(index);
        }
        Ok(())
    }

    /// Detaches a queue pair from a group.
    pub(crate) fn detach(
        &mut self,
        index: QpIndex,
        group: Gid,
        events: &mut EventQueue,
    ) -> Result<(), McastError> {
        let members = self.change_group(index, group, events)?;
        let before = members.len();
        members.retain(|member| *member != index);
        match members.len() < before {
            true => Ok(()),
            false => Err(McastError::NotAttached { gid: group }),
        }
    }

    /// Detaches a queue pair from all groups.
    pub(crate) fn leave_groups(&mut self, index: QpIndex) {
        for members in self.groups.values_mut() {
            members.retain(|member| *member != index);
        }
    }

    /// The running role gives the NIC the command to attach or detach a queue pair, and waits for it. Returns the
    /// members of the group.
    fn change_group(
        &mut self,
        index: QpIndex,
        group: Gid,
        events: &mut EventQueue,
    ) -> Result<&mut Vec<QpIndex>, McastError> {
        let qp = &self.qps[index];
        McastError::check(qp.qp_type, group)?;
        let host = &mut self.machines[qp.machine];
        events.clock.busy(host.cpu.syscall_ns);
        let done = host.command(events.clock.now());
        events.clock.busy_until(done);
        Ok(self.groups.entry(group).or_default())
    }

    /// Sends a datagram to the members of a group.
    pub(super) fn depart_to_group(
        &mut self,
        (message, group): (u32, Gid),
        leaves: Leaves,
        events: &mut EventQueue,
    ) {
        let now = events.now();
        let m = self.messages.get(message);
        let (from, seq) = (m.from, m.seq);
        let here = self.qps[from.index].machine;
        let members = self.groups.get(&group).into_iter().flatten();
        let members: Vec<(MachineId, QpRef)> = members
            .map(|member| &self.qps[*member])
            .map(|qp| (qp.machine, qp.reference()))
            .collect();
        let mut machines: Vec<MachineId> = members.iter().map(|(machine, _)| *machine).collect();
        machines.sort_unstable();
        machines.dedup();
        let port = self.qps[from.index].port;
        let credits = machines.iter().map(|there| {
            let there = (&mut self.machines[*there], port);
            credit(m, None, there, now)
        });
        let credit = credits.max().unwrap_or(now);
        let (qp, to_port) = (&mut self.qps[from.index], [here; 2]);
        let times = (now, credit, leaves);
        let (passage, _) = travel(m, qp, (&mut self.machines, to_port), times);
        let (port, whole) = (port as usize, passage.left - passage.begin);
        for there in machines {
            let way = match there == here {
                true => Span::ZERO,
                false => switched(&mut self.machines[there], port, passage.begin, whole),
            };
            for (_, member) in members.iter().filter(|(machine, _)| *machine == there) {
                let mut payload = self.messages.buffer();
                let m = self.messages.get(message);
                payload.extend_from_slice(&m.payload);
                let copy = Message {
                    to: *member,
                    first: passage.first + way,
                    payload,
                    lent: None,
                    delivery: Delivery::default(),
                    ..*m
                };
                let message = self.messages.put(copy);
                events.schedule(passage.last + way, Event::Arrive { message });
            }
        }
        self.messages.end(message);
        self.count_unreliable(from);
        self.departed(from, seq, passage.left, events);
    }
}
