//! The states of a queue pair: Modify QP, failure, reset.

use adverb_verbs::{
    ModifyQpError, PacketMarking, QpAttr, QpState, rules::AttrLimits, transition::check_transition,
};

use crate::ids::{MachineId, QpIndex};
use crate::machine::machine_of;
use crate::nic::port::Remote;
use crate::nic::queue_pair::Qp;
use crate::world::fabric::{EventQueue, Fabric};

impl Fabric {
    /// Modify QP (IBTA vol. 1, 10.3.1, 11.2.5.2).
    pub(crate) fn modify(
        &mut self,
        index: QpIndex,
        attr: &QpAttr,
        events: &mut EventQueue,
    ) -> Result<(), ModifyQpError> {
        let qp = &self.qps[index];
        let to = check_transition(qp.qp_type, qp.state, attr)?;
        self.check_ranges(qp, attr)?;
        match to {
            QpState::Reset => self.reset(index),
            QpState::Err => self.fail(index, QpState::Err, events),
            _ => {
                let remote = self.remote_of(attr)?;
                if let Some(remote) = remote {
                    self.agree_on_port(index, remote);
                }
                let qp = &mut self.qps[index];
                qp.remote = remote.or(qp.remote);
                qp.apply(attr, to);
                if to == QpState::Rts {
                    // From SQD: sends what was posted while the queue drained.
                    let qp = qp.reference();
                    self.pump(qp, events);
                }
            }
        }
        Ok(())
    }

    /// Selects the port of a connection. Both ends use the same port number, because the switches of different
    /// ports are not connected. The first end selects the port with fewer connections on both machines, and counts the
    /// connection there for both: before the other end connects, further ones may select.
    fn agree_on_port(&mut self, index: QpIndex, remote: Remote) {
        let (here, number) = {
            let qp = &self.qps[index];
            (qp.machine, qp.number)
        };
        let there = remote.machine;
        let peer = self.find(there, remote.number);
        let peer = peer.map(|peer| &self.qps[peer]);
        let agreed = peer.filter(|peer| peer.is_connected_to(here, number));
        self.qps[index].port = match agreed {
            Some(peer) => peer.port,
            None => self.select_port([here, there]),
        };
    }

    fn select_port(&mut self, ends: [MachineId; 2]) -> u32 {
        let load = |port: &u32| {
            let connected = |end: MachineId| self.machines[end].nic.connected.get(*port as usize);
            ends.into_iter().filter_map(connected).sum::<u32>()
        };
        let ports = self.machines[ends[0]].nic.ports.len() as u32;
        let port = (0..ports).min_by_key(load).unwrap_or(0);
        for end in ends {
            if let Some(connected) = self.machines[end].nic.connected.get_mut(port as usize) {
                *connected += 1;
            }
        }
        port
    }

    fn check_ranges(&self, qp: &Qp, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let machine = &self.machines[qp.machine];
        let most = machine.caps.max_qp_rd_atom;
        let limits = AttrLimits {
            ports: machine.nic.ports.len() as u8,
            max_rd_atomic: most,
            max_dest_rd_atomic: most,
        };
        limits.check(attr)?;
        if let Some(address) = &attr.address {
            address.check_marking(machine.preset.link_layer, PacketMarking::None)?;
        }
        Ok(())
    }

    fn remote_of(&self, attr: &QpAttr) -> Result<Option<Remote>, ModifyQpError> {
        let (Some(number), Some(address)) = (attr.dest_qpn, attr.address) else {
            return Ok(None);
        };
        let machine = machine_of(address.dgid, self.machines.len()).ok_or_else(|| {
            ModifyQpError::Unreachable {
                peer: format!("{} QP {number}", address.dgid),
                reason: "no machine of this cluster has a port of that GID".into(),
            }
        })?;
        Ok(Some(Remote { machine, number }))
    }

    pub(crate) fn reset(&mut self, index: QpIndex) {
        self.release(self.qps[index].reference());
        let qp = &mut self.qps[index];
        let (number, cqs) = (qp.number, [qp.send_cq, qp.recv_cq]);
        let mut received = qp.begin_life();
        for cq in cqs {
            received += self.cqs[cq].purge(number);
        }
        self.give_back_shared(index, received);
    }

    /// Enters an error state and flushes the queues. `Sqe` does not affect the receive queue.
    pub(crate) fn fail(&mut self, index: QpIndex, state: QpState, events: &mut EventQueue) {
        let qp = &mut self.qps[index];
        if qp.state == QpState::Err {
            return;
        }
        qp.state = state;
        qp.sq.flush(events.now());
        self.retire(index, events);
        if state == QpState::Err {
            let qp = &mut self.qps[index];
            qp.rq.flush();
            let qp = qp.reference();
            self.fail_receives(qp, events);
        }
    }
}
