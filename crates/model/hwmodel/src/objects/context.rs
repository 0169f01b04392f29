//! The opened NIC, protection domains and address handles.

use std::ops::RangeInclusive;

use adverb_units::{Bytes, Time};
use adverb_verbs::{
    AccessFlags, AddressHandle, AddressVector, AhRef, AsyncEvent, Context, Counters, CreateError,
    DeviceCaps, DeviceName, GidType, LinkLayer, MAX_MESSAGE, PacketMarking, PollError, PortCaps,
    PortNum, ProtectionDomain, QpCaps, QpInit, QpState, QpType, Qpn, RegisterError, SrqCaps,
    Unsupported,
};

use crate::counters;
use crate::host::cores::CoreTimes;
use crate::ids::MachineId;
use crate::machine::{Registers, machine_of};
use crate::nic::completion::{Channel, Cq, Poller};
use crate::nic::dc::Connection;
use crate::nic::queue_pair::{FIRST_NUMBER, Qp};
use crate::nic::receive_queue::{ReceiveQueue, Receives};
use crate::nic::retry::Retry;
use crate::nic::send_queue::SendQueue;
use crate::nic::shared_receive::{Owner, Srq};
use crate::objects::completion::{ModelChannel, ModelCq};
use crate::objects::memory::ModelMr;
use crate::objects::queue_pair::ModelQp;
use crate::objects::shared_receive::ModelSrq;
use crate::resource::Server;
use crate::world::fabric::{EventQueue, Fabric, SharedFabric};

/// The opened NIC of a machine.
#[derive(Clone)]
pub struct ModelContext {
    world: SharedFabric,
    machine: MachineId,
    name: DeviceName,
    caps: DeviceCaps,
    /// Its number among the machine's open contexts.
    number: u32,
    /// The thread that uses it.
    thread: u32,
}

impl std::fmt::Debug for ModelContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of machine {}", self.name, self.machine.0)
    }
}

impl ModelContext {
    pub(crate) fn new(world: &SharedFabric, machine: MachineId) -> Self {
        world.with(|fabric, _| {
            let of = &mut fabric.machines[machine];
            if !of.has_one_context || of.registers.is_empty() {
                of.registers.push(Registers::default());
            }
            let number = of.registers.len() as u32 - 1;
            let threads = &mut of.registers[number as usize].threads;
            *threads += 1;
            ModelContext {
                world: world.clone(),
                machine,
                number,
                thread: *threads,
                name: DeviceName(format!("model:{}", of.preset.name)),
                caps: of.caps.clone(),
            }
        })
    }

    pub(crate) fn machine(&self) -> MachineId {
        self.machine
    }

    fn owner(&self) -> Owner {
        Owner {
            machine: self.machine,
            context: self.number,
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Fabric, &mut EventQueue) -> T) -> T {
        self.world.with(look)
    }

    /// Whether the NIC has the dynamically connected transport.
    fn has_dc(&self) -> bool {
        self.with(|fabric, _| {
            let machine = &fabric.machines[self.machine];
            machine.preset.params.nic.dc_contexts > 0
        })
    }

    /// Whether its link has more than the transport and operations of iWARP.
    fn has_all_transports(&self) -> bool {
        let layer = self.with(|fabric, _| fabric.machines[self.machine].preset.link_layer);
        layer.has_all_transports()
    }

    fn unsupported(&self, feature: &'static str) -> CreateError {
        let device = self.name.0.clone();
        CreateError::Unsupported(Unsupported { feature, device })
    }

    /// Refuses an object of another machine.
    fn check_owner(&self, what: &'static str, machine: MachineId) -> Result<(), CreateError> {
        match machine == self.machine {
            true => Ok(()),
            false => Err(CreateError::Foreign { what }),
        }
    }
}

fn check_range(
    what: &'static str,
    value: u32,
    range: RangeInclusive<u32>,
) -> Result<(), CreateError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (value, min, max) = (value.into(), (*range.start()).into(), (*range.end()).into());
    Err(CreateError::OutOfRange {
        what,
        value,
        min,
        max,
    })
}

/// A protection domain of the model.
#[derive(Clone, Copy, Debug)]
pub struct ModelPd {
    machine: MachineId,
    number: u32,
}

impl ProtectionDomain for ModelPd {}

/// An address handle of the model.
#[derive(Clone, Copy, Debug)]
pub struct ModelAh {
    name: u64,
}

impl AddressHandle for ModelAh {
    #[allow(unsafe_code)]
    fn handle(&self) -> AhRef<'_> {
        // SAFETY: the name is an index into the machine's list of handles, which only grows. The model looks it up
        unsafe { AhRef::from_raw(self.name) }
    }
}

impl Context for ModelContext {
    type Pd = ModelPd;
    type Mr = ModelMr;
    type Channel = ModelChannel;
    type Cq = ModelCq;
    type Qp = ModelQp;
    type Srq = ModelSrq;
    type Ah = ModelAh;

    fn name(&self) -> DeviceName {
        self.name.clone()
    }

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn port_num(&self) -> PortNum {
        PortNum::ONE
    }

    fn ports(&self) -> u32 {
        self.with(|fabric, _| fabric.machines[self.machine].nic.ports.len() as u32)
    }

    fn port(&self, port: PortNum) -> Result<PortCaps, CreateError> {
        self.with(|fabric, _| {
            let machine = &fabric.machines[self.machine];
            let ports = machine.nic.ports.len() as u32;
            check_range("port number", port.0.into(), 1..=ports)?;
            let link_layer = machine.preset.link_layer;
            let (lid, gid_type) = match link_layer {
                LinkLayer::InfiniBand => (machine.lid(), Some(GidType::InfiniBand)),
                LinkLayer::Ethernet => (adverb_verbs::Lid(0), Some(GidType::RoceV2)),
                _ => (adverb_verbs::Lid(0), None),
            };
            Ok(PortCaps {
                link_layer,
                active_mtu: machine.mtu(),
                max_msg_sz: MAX_MESSAGE,
                lid,
                gid: machine.gid(),
                gid_index: 0,
                gid_type,
                marking: PacketMarking::None,
                max_rate_mbps: (link_layer == LinkLayer::InfiniBand).then_some(u32::MAX),
            })
        })
    }

    fn counters(&self) -> Counters {
        self.with(|fabric, _| counters::of(&fabric.machines[self.machine]))
    }

    fn provenance(&self) -> Vec<(String, String)> {
        self.with(|fabric, _| {
            let machine = &fabric.machines[self.machine];
            let preset = &machine.preset;
            vec![
                ("model".into(), preset.name.clone()),
                ("hardware".into(), preset.summary.clone()),
                ("time".into(), "virtual".into()),
                ("seed".into(), machine.seed.0.to_string()),
            ]
        })
    }

    fn alloc_pd(&self) -> Result<ModelPd, CreateError> {
        self.with(|fabric, _| {
            let machine = &mut fabric.machines[self.machine];
            machine.protection_domains += 1;
            Ok(ModelPd {
                machine: self.machine,
                number: machine.protection_domains,
            })
        })
    }

    fn create_channel(&self) -> Result<ModelChannel, CreateError> {
        self.with(|fabric, events| {
            let number = fabric.channels.next_index();
            let name = format!("an event on completion channel {}", number.0);
            fabric.channels.push(Channel {
                condition: events.condition(name),
                events: std::collections::VecDeque::new(),
            });
            Ok(ModelChannel::new(&self.world, number, self.machine))
        })
    }

    fn create_cq(
        &self,
        entries: u32,
        channel: Option<&ModelChannel>,
    ) -> Result<ModelCq, CreateError> {
        check_range("completion queue entries", entries, 1..=self.caps.max_cqe)?;
        if let Some(channel) = channel {
            self.check_owner("the completion channel", channel.machine)?;
        }
        self.with(|fabric, events| {
            let number = fabric.cqs.next_index();
            let condition = events.condition(format!("a completion in queue {}", number.0));
            let channel = channel.map(|channel| channel.number);
            let host = &fabric.machines[self.machine];
            let poller = host.has_pollers.then(|| {
                let fresh_line = CoreTimes::new(&host.preset.params, &host.root).fresh_line;
                Poller::new(&host.preset.params, fresh_line)
            });
            let cq = Cq::new(entries, (channel, poller), condition);
            fabric.cqs.push(cq);
            Ok(ModelCq::new(&self.world, (number, entries), self.machine))
        })
    }

    fn alloc_mr(
        &self,
        pd: &ModelPd,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<ModelMr, RegisterError> {
        if pd.machine != self.machine {
            return Err(RegisterError::Foreign);
        }
        let max = self.caps.max_mr_size;
        if length.get() == 0 || length > max {
            return Err(RegisterError::Length { length, max });
        }
        if !access.is_consistent() {
            return Err(RegisterError::Access { access });
        }
        self.with(|fabric, events| {
            fabric.register(self.machine, length.get(), events);
            let memory = &mut fabric.machines[self.machine].memory;
            let index = memory.register(length.get(), access, pd.number)?;
            let region = memory.region(index);
            Ok(ModelMr::new(&self.world, self.machine, index, region))
        })
    }

    fn create_qp(&self, pd: &ModelPd, init: &QpInit<'_, ModelCq>) -> Result<ModelQp, CreateError> {
        self.create_qp_with_inline_recv(pd, init, 0)
    }

    fn create_qp_with_inline_recv(
        &self,
        pd: &ModelPd,
        init: &QpInit<'_, ModelCq>,
        max_inl_recv: u32,
    ) -> Result<ModelQp, CreateError> {
        self.make_qp(pd, init, Receives::Own { max_inl_recv })
    }

    fn create_srq(&self, pd: &ModelPd, caps: &SrqCaps) -> Result<ModelSrq, CreateError> {
        self.check_owner("the protection domain", pd.machine)?;
        caps.check(&self.caps, &self.name.0)?;
        let owner = self.owner();
        self.with(|fabric, _| {
            let of_machine = fabric.srqs.iter().filter(|srq| {
                let is_kept = srq.users > 0;
                is_kept && srq.owner.machine == self.machine
            });
            let limit = self.caps.max_srq;
            if of_machine.count() >= limit as usize {
                return Err(CreateError::Exhausted {
                    what: "shared receive queues",
                    limit: limit.into(),
                });
            }
            let number = fabric.srqs.push(Srq::new(owner, pd.number, *caps));
            Ok(ModelSrq::new(&self.world, owner, (number, *caps)))
        })
    }

    fn create_qp_with_srq(
        &self,
        pd: &ModelPd,
        init: &QpInit<'_, ModelCq>,
        srq: &ModelSrq,
    ) -> Result<ModelQp, CreateError> {
        if srq.owner != self.owner() {
            return Err(CreateError::Foreign {
                what: "the shared receive queue",
            });
        }
        let caps = QpCaps {
            max_recv_wr: 0,
            max_recv_sge: 0,
            ..init.caps
        };
        let init = QpInit { caps, ..*init };
        self.make_qp(pd, &init, Receives::Shared(srq.number))
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, PollError> {
        Ok(self.with(|fabric, _| fabric.take_event(self.owner())))
    }

    fn create_ah(&self, pd: &ModelPd, address: &AddressVector) -> Result<ModelAh, CreateError> {
        self.check_owner("the protection domain", pd.machine)?;
        self.with(|fabric, _| {
            let layer = fabric.machines[self.machine].preset.link_layer;
            address.check_marking(layer, PacketMarking::None)?;
            if !layer.has_all_transports() {
                return Err(self.unsupported("address handles"));
            }
            let machines = fabric.machines.len();
            if !address.dgid.is_multicast() && machine_of(address.dgid, machines).is_none() {
                return Err(CreateError::System {
                    action: format!("make an address handle for {}", address.dgid),
                    source: std::io::ErrorKind::HostUnreachable.into(),
                    remedy: "; no machine of this cluster has a port of that GID".into(),
                });
            }
            let handles = &mut fabric.machines[self.machine].handles;
            handles.push(address.dgid);
            Ok(ModelAh {
                name: handles.len() as u64 - 1,
            })
        })
    }
}

impl ModelContext {
    fn make_qp(
        &self,
        pd: &ModelPd,
        init: &QpInit<'_, ModelCq>,
        receives: Receives,
    ) -> Result<ModelQp, CreateError> {
        init.caps.check(&self.caps)?;
        self.check_owner("the protection domain", pd.machine)?;
        self.check_owner("the send completion queue", init.send_cq.machine)?;
        self.check_owner("the receive completion queue", init.recv_cq.machine)?;
        let is_dc = matches!(init.qp_type, QpType::Dci | QpType::Dct);
        if is_dc && !self.has_dc() {
            return Err(self.unsupported("dynamically connected transport"));
        }
        if let (true, Receives::Shared(_)) = (is_dc, &receives) {
            return Err(self.unsupported("DC queue pairs with a shared receive queue"));
        }
        if init.qp_type != QpType::Rc && !self.has_all_transports() {
            return Err(self.unsupported("queue pairs other than RC"));
        }
        let (max_inl_recv, srq) = match receives {
            Receives::Own { max_inl_recv } => (max_inl_recv, None),
            Receives::Shared(srq) => (0, Some(srq)),
        };
        self.with(|fabric, _| {
            let index = fabric.qps.next_index();
            let limit = self.caps.max_qp;
            let machine = &mut fabric.machines[self.machine];
            let max = machine.preset.params.nic.max_inline_recv_bytes;
            check_range("max_inl_recv", max_inl_recv, 0..=max)?;
            let local = machine.numbers.len() as u32;
            let number = Qpn::new(local + FIRST_NUMBER).filter(|_| local < limit);
            let number = number.ok_or(CreateError::Exhausted {
                what: "queue pairs",
                limit: limit.into(),
            })?;
            machine.numbers.push(index);
            machine.nic.units.turns.push(Server::default());
            let own = machine.preset.params.nic.blueflame_registers;
            let registers = &mut machine.registers[self.number as usize];
            registers.used += 1;
            let shared = registers.used > own;
            let qp = Qp {
                crossed: [Time::ZERO; 2],
                machine: self.machine,
                index,
                number,
                life: 0,
                qp_type: init.qp_type,
                state: QpState::Reset,
                pd: pd.number,
                caps: init.caps,
                send_cq: init.send_cq.number,
                recv_cq: init.recv_cq.number,
                turns: local,
                shared_register: shared.then_some((self.number, self.thread)),
                port: local % machine.nic.ports.len() as u32,
                access: AccessFlags::empty(),
                remote: None,
                mtu: machine.mtu().bytes().get(),
                qkey: 0,
                dc: Connection::default(),
                sq: SendQueue::new(&machine.preset.params.nic),
                rq: ReceiveQueue::new(receives),
                retry: Retry::default(),
            };
            fabric.qps.push(qp);
            if let Some(srq) = srq {
                fabric.srqs[srq].users += 1;
            }
            Ok(ModelQp::new(&self.world, index, number, init.caps))
        })
    }
}
