//! The states of a queue pair: Modify QP, failure, reset.

use adverb_sim::Agenda;
use adverb_verbs::{
    ModifyQpError, PacketMarking, QpAttr, QpState,
    qp::{AttrLimits, check_transition},
};

use crate::machine::machine_of;
use crate::nic::port::Remote;
use crate::nic::queue_pair::Qp;
use crate::world::fabric::{Event, Fabric};

impl Fabric {
    /// Modify QP (IBTA vol. 1, 10.3.1, 11.2.5.2).
    pub(crate) fn modify(
        &mut self,
        index: u32,
        attr: &QpAttr,
        agenda: &mut Agenda<Event>,
    ) -> Result<(), ModifyQpError> {
        let qp = &self.qps[index as usize];
        let to = check_transition(qp.qp_type, qp.state, attr)?;
        self.check_ranges(qp, attr)?;
        match to {
            QpState::Reset => self.reset(index),
            QpState::Err => self.fail(index, QpState::Err, agenda),
            _ => {
                let remote = self.remote_of(attr)?;
                if let Some(remote) = remote {
                    self.agree_on_port(index, remote);
                }
                let qp = &mut self.qps[index as usize];
                qp.remote = remote.or(qp.remote);
                qp.apply(attr, to);
                if to == QpState::Rts {
                    // From SQD: what was posted while it drained is sent.
                    let qp = qp.reference();
                    self.pump(qp, agenda);
                }
            }
        }
        Ok(())
    }

    /// Both ends of a connection use the same port: switches of different ports are not connected. The
    /// first that is connected chooses the one that has fewer connections at both machines.
    fn agree_on_port(&mut self, index: u32, remote: Remote) {
        let (here, number) = {
            let qp = &self.qps[index as usize];
            (qp.machine, qp.number)
        };
        let there = remote.machine;
        let peer = self.find(there, remote.number);
        let peer = peer.map(|peer| &self.qps[peer as usize]);
        let agreed = peer.filter(|peer| peer.is_connected_to(here, number));
        let port = agreed.map(|peer| peer.port).unwrap_or_else(|| {
            let connected = |machine: u32, port: usize| {
                self.machines[machine as usize]
                    .nic
                    .connected
                    .get(port)
                    .copied()
            };
            let load = |port: &u32| {
                let port = *port as usize;
                connected(here, port).unwrap_or(0) + connected(there, port).unwrap_or(0)
            };
            let ports = self.machines[here as usize].nic.ports.len() as u32;
            (0..ports).min_by_key(load).unwrap_or(0)
        });
        self.qps[index as usize].port = port;
        let connected = &mut self.machines[here as usize].nic.connected;
        if let Some(connected) = connected.get_mut(port as usize) {
            *connected += 1;
        }
    }

    /// Checks the values of the attributes.
    fn check_ranges(&self, qp: &Qp, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let machine = &self.machines[qp.machine as usize];
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
        let machine = machine_of(address.dgid, self.machines.len() as u32).ok_or_else(|| {
            ModifyQpError::Unreachable {
                peer: format!("{} QP {number}", address.dgid),
                reason: "no machine of this cluster has a port of that GID".into(),
            }
        })?;
        Ok(Some(Remote { machine, number }))
    }

    pub(crate) fn reset(&mut self, index: u32) {
        self.release(self.qps[index as usize].reference());
        let qp = &mut self.qps[index as usize];
        let (number, cqs) = (qp.number, [qp.send_cq, qp.recv_cq]);
        let mut received = qp.begin_life();
        for cq in cqs {
            received += self.cqs[cq as usize].purge(number);
        }
        self.give_back_shared(index, received);
    }

    /// To an error state: what is queued is flushed. `Sqe` leaves the receive queue alone.
    pub(crate) fn fail(&mut self, index: u32, state: QpState, agenda: &mut Agenda<Event>) {
        let qp = &mut self.qps[index as usize];
        if qp.state == QpState::Err {
            return;
        }
        qp.state = state;
        qp.sq.flush(agenda.now());
        self.retire(index, agenda);
        if state == QpState::Err {
            let qp = &mut self.qps[index as usize];
            qp.rq.flush();
            let qp = qp.reference();
            self.fail_receives(qp, agenda);
        }
    }
}
