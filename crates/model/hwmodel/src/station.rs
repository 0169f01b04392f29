//! The station of a role on the model. Its clock is virtual, and its waits let the world advance.

mod interrupt_core;

use std::cell::Cell;

use adverb_sim::{Condition, Role, Wake};
use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    CompletionQueue, CpuLoad, CqId, Level, LoadTally, LoadWork, MemoryAccessError, MemoryRegion,
    NodeChoice, NumaPlacement, OutOfBandError, PlacementError, RoleId, Station, WaitError, Work,
    WorkCompletion,
};

use crate::host::cores::CoreTimes;
use crate::host::interconnect::Crossing;
use crate::host::root::Taken;
use crate::ids::MachineId;
use crate::objects::{ModelChannel, ModelContext, ModelCq, ModelMr};
use crate::params::CpuParams;
use crate::trace::StepKind;
use crate::world::fabric::{Fabric, OutOfBandMessage};

pub(crate) use interrupt_core::InterruptCore;

/// Refuses nodes by number.
fn named(node: NodeChoice) -> Result<(), PlacementError> {
    match node {
        NodeChoice::Number(number) => Err(PlacementError(format!(
            "NUMA node {number}: the nodes of a model are nic and other"
        ))),
        NodeChoice::Any | NodeChoice::Nic | NodeChoice::Other => Ok(()),
    }
}

/// Largest out-of-band message.
const MAX_OUT_OF_BAND: u64 = 1 << 20;

/// The station of a role of the model.
pub struct ModelStation<'y> {
    role: &'y Role<'y, Fabric>,
    id: RoleId,
    context: ModelContext,
    /// Its place among the roles that share the cores of its machine.
    place: Option<u32>,
    cpu: CpuParams,
    core: CoreTimes,
    began: Time,
    /// Time for which the role did not occupy its CPU.
    idle: Cell<Span>,
    /// CPU time in the kernel.
    system: Cell<Span>,
    /// The memory bandwidth that had been used when the role last moved lines from or to memory.
    taken: Cell<Taken>,
    interrupt_core: Cell<InterruptCore>,
    /// The direction in which its loads cross, if its thread is not on the node of its memory.
    crossing: Cell<Option<Crossing>>,
}

impl<'y> ModelStation<'y> {
    pub(crate) fn new(
        role: &'y Role<'y, Fabric>,
        (id, place, interrupt_core): (RoleId, Option<u32>, InterruptCore),
        context: ModelContext,
        core: CoreTimes,
    ) -> Self {
        ModelStation {
            role,
            id,
            context,
            place,
            cpu: core.cpu,
            core,
            began: role.now(),
            idle: Cell::default(),
            system: Cell::default(),
            taken: Cell::default(),
            interrupt_core: Cell::new(interrupt_core),
            crossing: Cell::default(),
        }
    }

    /// Returns the role's number.
    pub fn id(&self) -> RoleId {
        self.id
    }

    /// Opens the NIC of a machine again, for roles that use several machines.
    pub fn open(&self, machine: MachineId) -> ModelContext {
        ModelContext::new(self.role.shared(), machine)
    }

    pub(crate) fn role(&self) -> &Role<'y, Fabric> {
        self.role
    }

    pub(crate) fn times(&self) -> &CpuParams {
        &self.cpu
    }

    /// Accounts for waking up: interrupt and scheduling, then cache misses of the program.
    pub(crate) fn wake_up(&self) {
        let (whole, busy) = (self.cpu.wake_ns, self.cpu.wake_cpu_ns);
        let waking = whole.saturating_sub(busy);
        self.step(StepKind::Wake, waking);
        self.idle.set(self.idle.get() + waking);
        self.in_kernel(busy.saturating_sub(self.cpu.wake_user_ns));
        self.busy(StepKind::Refill, self.cpu.wake_user_ns.min(busy));
    }

    /// Accounts for `span` of kernel time on the role's CPU while it slept.
    pub(crate) fn not_idle(&self, span: Span) {
        let span = span.min(self.idle.get());
        self.idle.set(self.idle.get().saturating_sub(span));
        self.system.set(self.system.get() + span);
    }

    pub(crate) fn machine(&self) -> MachineId {
        self.context.machine()
    }

    pub(crate) fn deadline(&self, timeout: Span) -> Option<Time> {
        (timeout < Span::MAX).then(|| self.role.now() + timeout)
    }

    /// Waits for `condition` while the CPU does what `kind` says.
    fn wait(&self, kind: StepKind, condition: Condition, deadline: Option<Time>) -> Wake {
        let start = self.role.now();
        let why = self.role.wait(condition, deadline);
        let machine = self.context.machine();
        self.role.with(|fabric, events| {
            let trace = &mut fabric.machines[machine].trace;
            trace.note(kind, start, events.clock.now());
        });
        why
    }

    /// Sleeps until `condition` is signaled; returns false at the deadline.
    pub(crate) fn idle_for(&self, condition: Condition, deadline: Option<Time>) -> bool {
        let start = self.role.now();
        let why = self.wait(StepKind::Sleep, condition, deadline);
        self.idle.set(self.idle.get() + (self.role.now() - start));
        why != Wake::Deadline
    }

    /// Waits for `condition` in system calls that do not block.
    pub(crate) fn poll_in_kernel(&self, condition: Condition, deadline: Option<Time>) -> Wake {
        let start = self.role.now();
        let why = self.wait(StepKind::Poll, condition, deadline);
        self.system
            .set(self.system.get() + (self.role.now() - start));
        why
    }

    /// Lets the CPU's work of a program pass.
    fn pass(&self, kind: StepKind, span: Span) {
        let machine = self.context.machine();
        self.role.with(|fabric, events| {
            let began = events.clock.now();
            events.clock.busy(span);
            let trace = &mut fabric.machines[machine].trace;
            trace.note(kind, began, events.clock.now());
        });
    }

    /// Accounts for noticing what was polled for: on average half a poll after it arrived, plus the load of
    /// the new line.
    fn see(&self) {
        self.busy(
            StepKind::See,
            self.cpu.poll_empty_ns / 2 + self.fresh_line(),
        );
    }

    /// As [`ModelStation::see`], for a completion: if another thread polls, this one gets the lines back that both write.
    fn see_in(&self, cq: &ModelCq) {
        let machine = self.context.machine();
        let hand_over = self.role.with(|fabric, _| {
            let is_apart = fabric.cqs[cq.number].poller.is_some();
            is_apart.then(|| fabric.machines[machine].preset.params.memory.hand_over())
        });
        match hand_over {
            Some(span) => self.busy(StepKind::See, span),
            None => self.see(),
        }
    }

    /// Loading a line that the NIC has just written.
    fn fresh_line(&self) -> Span {
        self.core.fresh_line + self.hop()
    }

    /// Additional time of loading a line if the thread is not on the node of its memory.
    fn hop(&self) -> Span {
        let Some(crossing) = self.crossing.get() else {
            return Span::ZERO;
        };
        let machine = self.context.machine();
        let root = |fabric: &mut Fabric| fabric.machines[machine].root.queueing_to_cross(crossing);
        self.core.hop() + self.role.with(|fabric, _| root(fabric))
    }

    /// How much longer loads take because their memory is on the other node, and because of other accesses: of the load,
    /// and of concurrent DMA.
    fn stalls(&self, work: Work) -> Span {
        let Work::Load { lines, from } = work else {
            return Span::ZERO;
        };
        let at_a_time = u64::from(lines.div_ceil(self.cpu.line_fills));
        let crossing = self.hop() * at_a_time;
        if from == Level::Cache {
            return crossing;
        }
        let machine = self.context.machine();
        let queueing = self
            .role
            .with(|fabric, _| fabric.machines[machine].root.queueing());
        queueing * at_a_time + crossing + self.move_lines(lines.into())
    }

    /// Moves lines from or to memory. Returns how long they wait for DMA and for other cores; with DDIO, neither DMA nor the
    /// copies of the kernel need memory.
    pub(crate) fn move_lines(&self, lines: u64) -> Span {
        let machine = self.context.machine();
        let is_apart = |fabric: &mut Fabric| fabric.machines[machine].root.allocates();
        if self.role.with(|fabric, _| is_apart(fabric)) {
            return Span::ZERO;
        }
        // What others have moved up to now must be accounted for first.
        self.role.sync();
        let mut last = self.taken.get();
        let wait = self.role.with(|fabric, events| {
            let root = &mut fabric.machines[machine].root;
            root.move_lines(lines, &mut last, events.now())
        });
        self.taken.set(last);
        wait
    }

    pub(crate) fn in_kernel(&self, span: Span) {
        self.busy(StepKind::Kernel, span);
        self.system.set(self.system.get() + span);
    }
}

impl Station for ModelStation<'_> {
    type Context = ModelContext;
    type Streams = Self;

    fn context(&self) -> &ModelContext {
        &self.context
    }

    fn streams(&self) -> &Self {
        self
    }

    fn now(&self) -> Time {
        self.busy(StepKind::Clock, self.cpu.clock_ns);
        self.role.now()
    }

    fn clock_cost(&self) -> Span {
        self.cpu.clock_ns
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn secret(&self) -> u64 {
        0
    }

    /// Programs call this when their measured time begins and when it ends.
    fn cpu(&self) -> CpuTime {
        let at = (self.id, self.role.now());
        self.role
            .with(|fabric, _| fabric.measured.look(at, &fabric.machines));
        let all = self.role.now() - self.began;
        let system = self.system.get();
        CpuTime {
            user: all.saturating_sub(self.idle.get() + system),
            system,
        }
    }

    fn spin(
        &self,
        cq: &ModelCq,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, WaitError> {
        let deadline = self.deadline(timeout);
        cq.waited();
        loop {
            self.role.sync();
            let now = self.role.now();
            let (next, condition) = self.role.with(|fabric, _| {
                let queue = &fabric.cqs[cq.number];
                (queue.next(), queue.condition)
            });
            match next {
                Some(at) if at <= now => return Ok(cq.poll(into)?),
                Some(at) if deadline.is_none_or(|deadline| at <= deadline) => {
                    self.role.wait_until(at);
                    self.see_in(cq);
                }
                _ => {
                    if self.role.with(|f, _| f.cqs[cq.number].is_overrun()) {
                        return Ok(cq.poll(into)?);
                    }
                    if self.wait(StepKind::Poll, condition, deadline) == Wake::Deadline {
                        let what = "completion";
                        return Err(WaitError::TimedOut { what, timeout });
                    }
                    self.see_in(cq);
                }
            }
        }
    }

    fn spin_memory(
        &self,
        mr: &ModelMr,
        offset: u64,
        value: u8,
        timeout: Span,
    ) -> Result<(), WaitError> {
        let deadline = self.deadline(timeout);
        let changed = mr.changed();
        self.role.sync();
        if mr.load(offset)? == value {
            // The NIC's write invalidated the line in the core's caches.
            self.busy(StepKind::See, self.fresh_line());
        }
        while mr.load(offset)? != value {
            if self.wait(StepKind::Poll, changed, deadline) == Wake::Deadline {
                let what = "change of polled memory";
                return Err(WaitError::TimedOut { what, timeout });
            }
            if mr.load(offset)? == value {
                self.see();
                break;
            }
        }
        self.busy(StepKind::ReadFlag, self.cpu.poll_empty_ns);
        Ok(())
    }

    fn spin_on<R>(
        &self,
        mr: &ModelMr,
        timeout: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        let deadline = self.deadline(timeout);
        let changed = mr.changed();
        self.role.sync();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.role.wait(changed, deadline) == Wake::Deadline {
                let what = "change of polled memory";
                return Err(WaitError::TimedOut { what, timeout });
            }
            // The program loads what is found, and accounts for that.
            self.pass(StepKind::See, self.cpu.poll_empty_ns / 2);
            self.role.sync();
        }
    }

    fn wait_event(&self, channel: &ModelChannel, timeout: Span) -> Result<CqId, WaitError> {
        let deadline = self.deadline(timeout);
        self.in_kernel(self.cpu.syscall_ns);
        self.role.sync();
        if let Some(event) = channel.take() {
            return Ok(event);
        }
        loop {
            if !self.idle_for(channel.condition(), deadline) {
                // A timer wakes the thread by an interrupt, too.
                self.wake_up();
                let what = "completion event";
                return Err(WaitError::TimedOut { what, timeout });
            }
            // Another role may have taken the event.
            if let Some(event) = channel.take() {
                self.wake_up();
                return Ok(event);
            }
        }
    }

    fn sleep(&self, span: Span) {
        self.role.sync();
        self.role.wait_until(self.role.now() + span);
        self.idle.set(self.idle.get() + span);
    }

    fn compute(&self, span: Span) {
        self.step(StepKind::Compute, span);
    }

    /// The computation runs on the core that handles network interrupts, which take precedence over it, and from now on
    /// over what else the role does.
    fn execute(&self, idle: Span) {
        if self.interrupt_core.get() == InterruptCore::Unused && idle > Span::ZERO {
            self.interrupt_core.set(InterruptCore::Preempted);
        }
        self.busy(StepKind::Compute, idle);
    }

    fn account(&self, work: Work) {
        let machine = self.context.machine();
        let span = self.core.time(work) + self.stalls(work);
        let is_atomic = matches!(work, Work::Atomic { .. });
        if !is_atomic && self.interrupt_core.get() != InterruptCore::Unused {
            return self.busy(StepKind::Compute, span);
        }
        self.role
            .with(|fabric, _| fabric.machines[machine].worked += span);
        let Work::Atomic { word } = work else {
            return self.pass(StepKind::Program, span);
        };
        // Cores must request the line in the order of their clocks.
        self.role.sync();
        let now = self.role.now();
        let core = self.id.0;
        let end = self
            .role
            .with(|fabric, _| fabric.machines[machine].words.atomic(word, core, now));
        self.role.wait_until(end);
    }

    /// The cluster was made with the placement of each machine's buffers.
    fn bind(&self, numa: NumaPlacement) -> Result<(), PlacementError> {
        [numa.threads, numa.memory]
            .into_iter()
            .try_for_each(named)?;
        let other = NodeChoice::Other;
        let is_apart =
            numa.threads != NodeChoice::Any && (numa.threads == other) != (numa.memory == other);
        self.crossing
            .set(is_apart.then_some(match numa.threads == other {
                true => Crossing::FromNic,
                false => Crossing::ToNic,
            }));
        Ok(())
    }

    fn under_load<R>(
        &self,
        loads: &[CpuLoad],
        _mr: &ModelMr,
        body: impl FnOnce() -> R,
    ) -> Result<(R, LoadTally), PlacementError> {
        let cpus = self.cpu.cores * self.cpu.threads_per_core;
        for load in loads {
            named(load.node)?;
            if let LoadWork::Independent { memory, .. } = load.work {
                named(memory)?;
            }
            let nodes = if load.node == NodeChoice::Any { 2 } else { 1 };
            let (threads, most) = (load.threads, nodes * cpus);
            if threads > most && matches!(load.work, LoadWork::Buffer { .. }) {
                return Err(PlacementError(format!(
                    "{threads} workers exceed the {most} CPUs of {} on the model; use fewer",
                    if nodes == 1 { "a node" } else { "both nodes" }
                )));
            }
        }
        self.role.sync();
        let machine = self.context.machine();
        let pace = self.role.with(|fabric, events| {
            let now = events.now();
            let machine = &mut fabric.machines[machine];
            // Workers last: how far their lines are depends on what crosses between the sockets.
            let is_worker = |load: &&CpuLoad| matches!(load.work, LoadWork::Buffer { .. });
            let (workers, others): (Vec<_>, Vec<_>) = loads.iter().partition(is_worker);
            let all = others.into_iter().chain(workers);
            all.for_each(|load| machine.load(load, now));
            machine.pace(self.place)
        });
        // The threads take turns with this role.
        self.role.set_pace(pace);
        Ok((body(), LoadTally::default()))
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        let given = message.len() as u64;
        if given > MAX_OUT_OF_BAND {
            let max = MAX_OUT_OF_BAND;
            return Err(OutOfBandError::TooLong { given, max });
        }
        self.in_kernel(self.cpu.syscall_ns);
        self.role.sync();
        self.role.with(|fabric, events| {
            let mailbox = fabric.mail.get_mut(to.0 as usize);
            let mailbox = mailbox.ok_or(OutOfBandError::NoSuchRole(to))?;
            if mailbox.ended {
                return Err(OutOfBandError::PeerGone(to));
            }
            let at = events.now() + self.cpu.out_of_band_ns;
            mailbox.messages.push(OutOfBandMessage {
                from: self.id.0,
                at,
                text: message.to_vec(),
            });
            events.signal_at(mailbox.condition, at);
            Ok(())
        })
    }

    fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.in_kernel(self.cpu.syscall_ns);
        self.role.sync();
        let deadline = self.deadline(timeout);
        loop {
            let now = self.role.now();
            let mine = self.id.0 as usize;
            let (message, ended, condition) = self.role.with(|fabric, _| {
                let ended = fabric.mail.get(from.0 as usize).map(|other| other.ended);
                let mailbox = &mut fabric.mail[mine];
                mailbox.awaits = Some(from.0);
                let condition = mailbox.condition;
                let messages = &mut mailbox.messages;
                let place = messages.iter().position(|l| l.from == from.0);
                let message = place.map(|place| match messages[place].at {
                    at if at <= now => Ok(messages.remove(place).text),
                    at => Err(at),
                });
                (message, ended, condition)
            });
            let late = OutOfBandError::TimedOut {
                role: from,
                timeout,
            };
            match (message, ended) {
                (Some(Ok(text)), _) => return Ok(text),
                (_, None) => return Err(OutOfBandError::NoSuchRole(from)),
                (Some(Err(at)), _) => {
                    let until = deadline.map_or(at, |deadline| deadline.min(at));
                    self.sleep(until - now);
                    if until < at {
                        return Err(late);
                    }
                }
                (None, Some(true)) => return Err(OutOfBandError::PeerGone(from)),
                (None, _) => {
                    let is_over = deadline.is_some_and(|deadline| deadline <= now);
                    if is_over || !self.idle_for(condition, deadline) {
                        return Err(late);
                    }
                }
            }
        }
    }
}
