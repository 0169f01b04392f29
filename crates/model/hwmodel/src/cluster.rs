//! A cluster: the machines of a preset, and the roles that run on them.

use adverb_sim::{Budget, Outcome, Returned, Role, RoleKind, Seed, Simulation};
use adverb_units::Time;
use adverb_verbs::{Counters, CpuLoad, DeviceCaps, Impairment, RoleId};

use crate::counters;
use crate::host::cores::CoreTimes;
use crate::host::placement::Placement;
use crate::ids::MachineId;
use crate::machine::Machine;
use crate::nic::long_path::LongPath;
use crate::objects::ModelContext;
use crate::preset::{Kind, Preset};
use crate::station::{InterruptCore, ModelStation};
use crate::trace::{Step, Tracer};
use crate::utilization::Usage;
use crate::world::fabric::{Fabric, Mailbox};

/// Connected machines with one NIC each, and the roles of one program that run on them.
///
/// ```
/// use adverb_hwmodel::{Cluster, Placement, Preset};
/// use adverb_sim::Budget;
/// use adverb_verbs::Station;
///
/// let mut cluster = Cluster::new(&Preset::built_in("cx3")?, &[Placement::Cached; 2]);
/// let (client, server) = (cluster.machine(0), cluster.machine(1));
/// let sent = cluster.spawn(client, "client", |station| {
///     station.send(adverb_verbs::RoleId(1), b"hello")
/// });
/// let received = cluster.spawn(server, "server", |station| {
///     station.receive(adverb_verbs::RoleId(0), adverb_units::Span::MAX)
/// });
/// assert!(cluster.run(&Budget::NONE).is_finished());
/// assert!(sent.take().is_some_and(|sent| sent.is_ok()));
/// assert_eq!(received.take().unwrap().unwrap(), b"hello");
/// # Ok::<(), adverb_hwmodel::PresetError>(())
/// ```
pub struct Cluster {
    simulation: Simulation<Fabric>,
    machines: u32,
}

impl Cluster {
    /// Creates a machine of `preset` for each placement, which is that machine's placement of buffers.
    ///
    /// Random choices (such as which context a full NIC evicts) use seed 0.
    ///
    /// # Panics
    /// If the preset's kind is not [`Kind::Nic`].
    pub fn new(preset: &Preset, placements: &[Placement]) -> Self {
        Self::seeded(preset, placements, Seed(0))
    }

    /// As [`Cluster::new`], with another seed. The same seed, preset and roles give the same run, bit for
    /// bit. The contexts' provenance contains the seed.
    ///
    /// # Panics
    /// If the preset's kind is not [`Kind::Nic`].
    pub fn seeded(preset: &Preset, placements: &[Placement], seed: Seed) -> Self {
        assert!(preset.kind == Kind::Nic, "{} is not a NIC", preset.name);
        let machines = placements.iter().zip(0..);
        let machines = machines
            .map(|(placement, index)| {
                Machine::new(MachineId(index), preset.clone(), *placement, seed)
            })
            .collect();
        Cluster {
            simulation: Simulation::new(Fabric::new(machines)),
            machines: placements.len() as u32,
        }
    }

    /// Returns machine `index`.
    ///
    /// # Panics
    /// If the cluster has fewer machines.
    pub fn machine(&self, index: u32) -> MachineId {
        assert!(
            index < self.machines,
            "machine {index} of {}",
            self.machines
        );
        MachineId(index)
    }

    /// The limits of the NICs, which are all the same.
    pub fn caps(&self) -> DeviceCaps {
        let machine = |fabric: &mut Fabric, _: &mut _| fabric.machines[MachineId(0)].caps.clone();
        self.simulation.shared().with(machine)
    }

    /// Puts a long or bad path behind the port of each machine: what happens to the packets that it sends.
    ///
    /// Corrupt packets are lost. Packets are neither duplicated nor reordered.
    pub fn impair(&mut self, how: Impairment) {
        self.simulation.shared().with(|fabric, _| {
            for machine in fabric.machines.iter_mut() {
                machine.path = Some(LongPath::new(how, machine));
            }
        });
    }

    /// Lets the roles of each machine open the NIC only once, as threads of one process: they share its BlueFlame
    /// registers.
    pub fn share_contexts(&mut self) {
        self.simulation.shared().with(|fabric, _| {
            let machines = fabric.machines.iter_mut();
            machines.for_each(|machine| machine.has_one_context = true);
        });
    }

    /// Lets a thread of its own poll each completion queue. It runs on a core that nobody else uses. The role that posts
    /// sees a completion when that thread has taken it, and waits only for the lines that both write: the lock and the tail
    /// of the queue.
    pub fn poll_apart(&mut self) {
        self.simulation.shared().with(|fabric, _| {
            let machines = fabric.machines.iter_mut();
            machines.for_each(|machine| machine.has_pollers = true);
        });
    }

    pub(crate) fn shared(&self) -> &adverb_sim::Shared<Fabric> {
        self.simulation.shared()
    }

    /// Adds threads to a machine that work from the beginning to the end. Threads on the roles' node compete
    /// with the roles for cores.
    pub fn load(&mut self, machine: MachineId, load: &CpuLoad) {
        self.simulation.shared().with(|fabric, events| {
            fabric.machines[machine].load(load, events.now());
        });
    }

    /// Records steps from now on ([`Cluster::steps`]).
    pub fn trace(&mut self) {
        self.simulation.shared().with(|fabric, _| {
            for machine in fabric.machines.iter_mut() {
                machine.trace = Tracer::on();
                machine.pcie.trace = Tracer::on();
            }
        });
    }

    /// The recorded steps, in the order in which they began.
    pub fn steps(&self) -> Vec<Step> {
        self.simulation.shared().with(|fabric, _| {
            let machines = fabric.machines.iter();
            let mut steps: Vec<Step> = machines
                .flat_map(|machine| {
                    let id = machine.index;
                    machine.trace.steps(id).chain(machine.pcie.trace.steps(id))
                })
                .collect();
            steps.sort_by_key(|step| (step.begin, step.end));
            steps
        })
    }

    /// Adds a role to a machine. Roles are placed on the cores of a socket in turn; roles on one core share
    /// it. They are numbered in the order in which they are added: [`RoleId`] 0, 1 …
    pub fn spawn<T: 'static>(
        &mut self,
        machine: MachineId,
        name: &str,
        body: impl for<'y> FnOnce(&ModelStation<'y>) -> T + 'static,
    ) -> Returned<T> {
        let seat = |fabric: &mut Fabric, _: &mut _| fabric.machines[machine].take_seat();
        let place = self.shared().with(seat);
        let place = (Some(place), InterruptCore::Unused);
        self.put(machine, name, place, body)
    }

    /// Adds a role that sleeps nearly all the time, and so takes no core from the others.
    pub fn spawn_sleeper<T: 'static>(
        &mut self,
        machine: MachineId,
        name: &str,
        body: impl for<'y> FnOnce(&ModelStation<'y>) -> T + 'static,
    ) -> Returned<T> {
        self.put(machine, name, (None, InterruptCore::Unused), body)
    }

    /// Adds a role that sleeps most of the time. It runs on the core that handles network interrupts, and takes precedence
    /// over a computation there.
    pub fn spawn_preempting<T: 'static>(
        &mut self,
        machine: MachineId,
        name: &str,
        body: impl for<'y> FnOnce(&ModelStation<'y>) -> T + 'static,
    ) -> Returned<T> {
        self.put(machine, name, (None, InterruptCore::Preempts), body)
    }

    fn put<T: 'static>(
        &mut self,
        machine: MachineId,
        name: &str,
        (place, interrupt_core): (Option<u32>, InterruptCore),
        body: impl for<'y> FnOnce(&ModelStation<'y>) -> T + 'static,
    ) -> Returned<T> {
        let shared = self.simulation.shared().clone();
        let (id, core) = shared.with(|fabric, events| {
            let preempts = interrupt_core == InterruptCore::Preempts;
            fabric.machines[machine].preempting += u32::from(preempts);
            let id = fabric.mail.len() as u32;
            fabric.mail.push(Mailbox {
                messages: Vec::new(),
                condition: events.condition(format!("a message out of band for {name}")),
                awaits: None,
                ended: false,
            });
            let machine = &fabric.machines[machine];
            (
                RoleId(id),
                CoreTimes::new(&machine.preset.params, &machine.root),
            )
        });
        self.simulation
            .spawn(name, RoleKind::Work, move |role: &Role<'_, Fabric>| {
                role.set_pace(role.with(|fabric, _| fabric.machines[machine].pace(place)));
                let context = ModelContext::new(role.shared(), machine);
                let result = body(&ModelStation::new(
                    role,
                    (id, place, interrupt_core),
                    context,
                    core,
                ));
                role.sync();
                role.with(|fabric, events| {
                    fabric.mail[id.0 as usize].ended = true;
                    let waiting = fabric
                        .mail
                        .iter()
                        .filter(|mailbox| mailbox.awaits == Some(id.0));
                    waiting.for_each(|mailbox| events.signal(mailbox.condition));
                });
                result
            })
    }

    /// Runs the roles until all have ended, none can continue, or `budget` is used up.
    pub fn run(&mut self, budget: &Budget) -> Outcome {
        self.simulation.run(budget)
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.simulation.now()
    }

    /// Returns what was used of a machine in the measured time; `None` if no role measured.
    pub fn usage(&self, machine: MachineId) -> Option<Usage> {
        let shared = self.simulation.shared();
        shared.with(|fabric, _| fabric.measured.of(machine))
    }

    /// The counters of a machine.
    pub fn counters(&self, machine: MachineId) -> Counters {
        self.simulation
            .shared()
            .with(|fabric, _| counters::of(&fabric.machines[machine]))
    }
}
