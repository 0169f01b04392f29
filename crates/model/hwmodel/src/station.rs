//! The station of a role on the model: its clock is virtual, its waits let the world go on.

use std::cell::Cell;

use adverb_sim::{Condition, Role, Wake};
use adverb_units::{CpuTime, Span, Time};
use adverb_verbs::{
    CompletionQueue, Context, CqId, Level, MemoryAccessError, MemoryRegion, NoStreams,
    OutOfBandError, RoleId, Station, Unsupported, WaitError, Work, WorkCompletion,
};

use crate::host::cores::Core;
use crate::host::cpu::CpuTimes;
use crate::host::root::Taken;
use crate::ids::MachineId;
use crate::objects::{ModelChannel, ModelContext, ModelCq, ModelMr};
use crate::trace::Act;
use crate::world::fabric::{Fabric, OutOfBandMessage};

/// Longest message out of band.
const MAX_LETTER: u64 = 1 << 20;

/// Where a role of the model runs.
pub struct ModelStation<'y> {
    role: &'y Role<'y, Fabric>,
    id: RoleId,
    context: ModelContext,
    cpu: CpuTimes,
    core: Core,
    began: Time,
    /// Time that the CPU was not this role's.
    idle: Cell<Span>,
    /// CPU time in the kernel.
    system: Cell<Span>,
    /// What DMA had taken of memory's bandwidth at the last load from it.
    taken: Cell<Taken>,
}

impl<'y> ModelStation<'y> {
    pub(crate) fn new(
        role: &'y Role<'y, Fabric>,
        id: RoleId,
        context: ModelContext,
        (cpu, core): (CpuTimes, Core),
    ) -> Self {
        ModelStation {
            role,
            id,
            context,
            cpu,
            core,
            began: role.now(),
            idle: Cell::default(),
            system: Cell::default(),
            taken: Cell::default(),
        }
    }

    /// This role's number.
    pub fn id(&self) -> RoleId {
        self.id
    }

    /// Opens the NIC of a machine once more, for programs whose role works on several machines.
    pub fn open(&self, machine: MachineId) -> ModelContext {
        ModelContext::new(self.role.shared(), machine)
    }

    pub(crate) fn role(&self) -> &Role<'y, Fabric> {
        self.role
    }

    pub(crate) fn times(&self) -> &CpuTimes {
        &self.cpu
    }

    /// The sleeping role comes back to its CPU.
    pub(crate) fn wake_up(&self) {
        let waking = self.cpu.wake.saturating_sub(self.cpu.wake_cpu);
        self.busy(Act::Wake, waking);
        self.idle.set(self.idle.get() + waking);
        self.in_kernel(self.cpu.wake_cpu);
    }

    /// So much of the time in which the role slept was the kernel's.
    pub(crate) fn not_idle(&self, span: Span) {
        let span = span.min(self.idle.get());
        self.idle.set(self.idle.get().saturating_sub(span));
        self.system.set(self.system.get() + span);
    }

    fn deadline(&self, patience: Span) -> Option<Time> {
        (patience < Span::MAX).then(|| self.role.now() + patience)
    }

    /// Its CPU does something for `span`.
    fn busy(&self, act: Act, span: Span) {
        let machine = self.context.machine();
        self.role.with(|fabric, events| {
            let began = events.clock.now();
            events.clock.busy(span);
            let trace = &mut fabric.machines[machine].trace;
            trace.note(act, began, events.clock.now());
        });
    }

    /// Waits for `condition` while the CPU does `act`.
    fn wait(&self, act: Act, condition: Condition, deadline: Option<Time>) -> Wake {
        let start = self.role.now();
        let why = self.role.wait(condition, deadline);
        let machine = self.context.machine();
        self.role.with(|fabric, events| {
            let trace = &mut fabric.machines[machine].trace;
            trace.note(act, start, events.clock.now());
        });
        why
    }

    /// Waits for `condition`, its CPU doing nothing. False where the patience ended.
    pub(crate) fn idle_for(&self, condition: Condition, deadline: Option<Time>) -> bool {
        let start = self.role.now();
        let why = self.wait(Act::Sleep, condition, deadline);
        self.idle.set(self.idle.get() + (self.role.now() - start));
        why != Wake::Deadline
    }

    /// Is busy until `time`, looking again and again.
    ///
    /// What is looked for comes at any moment of a look: on average half a look later it is seen.
    fn see(&self) {
        self.busy(Act::See, self.cpu.poll_empty / 2 + self.cpu.fresh_line);
    }

    /// How much longer loads from memory take because the NIC uses it too.
    fn stalls(&self, work: Work) -> Span {
        let Work::Load {
            lines,
            from: Level::Memory,
        } = work
        else {
            return Span::ZERO;
        };
        let machine = self.context.machine();
        let is_apart = |fabric: &mut Fabric| fabric.machines[machine].root.allocates();
        if self.role.with(|fabric, _| is_apart(fabric)) {
            return Span::ZERO;
        }
        // The NIC has to have written what it writes until now.
        self.role.sync();
        let mut last = self.taken.get();
        let wait = self.role.with(|fabric, events| {
            let root = &fabric.machines[machine].root;
            root.load_wait(&mut last, events.now())
        });
        self.taken.set(last);
        wait * u64::from(lines)
    }

    pub(crate) fn in_kernel(&self, span: Span) {
        self.busy(Act::Kernel, span);
        self.system.set(self.system.get() + span);
    }
}

impl Station for ModelStation<'_> {
    type Context = ModelContext;
    type Streams = NoStreams;

    fn context(&self) -> &ModelContext {
        &self.context
    }

    fn streams(&self) -> Result<&NoStreams, Unsupported> {
        Err(NoStreams::of(&self.context.name()))
    }

    fn now(&self) -> Time {
        self.busy(Act::Clock, self.cpu.clock);
        self.role.now()
    }

    fn clock_cost(&self) -> Span {
        self.cpu.clock
    }

    fn cpu(&self) -> CpuTime {
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
        patience: Span,
    ) -> Result<usize, WaitError> {
        let deadline = self.deadline(patience);
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
                    self.see();
                }
                _ => {
                    if self.role.with(|f, _| f.cqs[cq.number].is_overrun()) {
                        return Ok(cq.poll(into)?);
                    }
                    if self.wait(Act::Poll, condition, deadline) == Wake::Deadline {
                        let what = "completion";
                        return Err(WaitError::TimedOut { what, patience });
                    }
                    self.see();
                }
            }
        }
    }

    fn spin_memory(
        &self,
        mr: &ModelMr,
        offset: u64,
        value: u8,
        patience: Span,
    ) -> Result<(), WaitError> {
        let deadline = self.deadline(patience);
        let changed = mr.changed();
        self.role.sync();
        if mr.load(offset)? == value {
            // The NIC's write took the line from the core's own caches.
            self.busy(Act::See, self.cpu.fresh_line);
        }
        while mr.load(offset)? != value {
            if self.wait(Act::Poll, changed, deadline) == Wake::Deadline {
                let what = "change of polled memory";
                return Err(WaitError::TimedOut { what, patience });
            }
            if mr.load(offset)? == value {
                self.see();
                break;
            }
        }
        self.busy(Act::ReadFlag, self.cpu.poll_empty);
        Ok(())
    }

    fn spin_on<R>(
        &self,
        mr: &ModelMr,
        patience: Span,
        mut look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError> {
        let deadline = self.deadline(patience);
        let changed = mr.changed();
        self.role.sync();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.role.wait(changed, deadline) == Wake::Deadline {
                let what = "change of polled memory";
                return Err(WaitError::TimedOut { what, patience });
            }
            // What is found is loaded by the program, which accounts for it.
            self.role.busy(self.cpu.poll_empty / 2);
            self.role.sync();
        }
    }

    fn wait_event(&self, channel: &ModelChannel, patience: Span) -> Result<CqId, WaitError> {
        let deadline = self.deadline(patience);
        self.in_kernel(self.cpu.syscall);
        self.role.sync();
        if let Some(event) = channel.take() {
            return Ok(event);
        }
        loop {
            if !self.idle_for(channel.condition(), deadline) {
                let what = "completion event";
                return Err(WaitError::TimedOut { what, patience });
            }
            // Another role may have taken it.
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
        self.busy(Act::Compute, span);
    }

    fn account(&self, work: Work) {
        let Work::Atomic { word } = work else {
            self.role.busy(self.core.time(work) + self.stalls(work));
            return;
        };
        // Cores are asked in the order of their times.
        self.role.sync();
        let now = self.role.now();
        let (machine, core) = (self.context.machine(), self.id.0);
        let end = self
            .role
            .with(|fabric, _| fabric.machines[machine].words.atomic(word, core, now));
        self.role.wait_until(end);
    }

    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError> {
        let given = message.len() as u64;
        if given > MAX_LETTER {
            let max = MAX_LETTER;
            return Err(OutOfBandError::TooLong { given, max });
        }
        self.in_kernel(self.cpu.syscall);
        self.role.sync();
        self.role.with(|fabric, events| {
            let mailbox = fabric.mail.get_mut(to.0 as usize);
            let mailbox = mailbox.ok_or(OutOfBandError::NoSuchRole(to))?;
            if mailbox.ended {
                return Err(OutOfBandError::PeerGone(to));
            }
            let at = events.now() + self.cpu.out_of_band;
            mailbox.messages.push(OutOfBandMessage {
                from: self.id.0,
                at,
                text: message.to_vec(),
            });
            events.signal_at(mailbox.condition, at);
            Ok(())
        })
    }

    fn receive(&self, from: RoleId, patience: Span) -> Result<Vec<u8>, OutOfBandError> {
        self.in_kernel(self.cpu.syscall);
        self.role.sync();
        let deadline = self.deadline(patience);
        loop {
            let now = self.role.now();
            let mine = self.id.0 as usize;
            let (letter, ended, condition) = self.role.with(|fabric, _| {
                let condition = fabric.mail[mine].condition;
                let ended = fabric.mail.get(from.0 as usize).map(|other| other.ended);
                let messages = &mut fabric.mail[mine].messages;
                let place = messages.iter().position(|l| l.from == from.0);
                let letter = place.map(|place| match messages[place].at {
                    at if at <= now => Ok(messages.remove(place).text),
                    at => Err(at),
                });
                (letter, ended, condition)
            });
            let late = OutOfBandError::TimedOut {
                role: from,
                patience,
            };
            match (letter, ended) {
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
                    if deadline.is_some_and(|deadline| deadline <= now) {
                        return Err(late);
                    }
                    if !self.idle_for(condition, deadline) {
                        return Err(late);
                    }
                }
            }
        }
    }
}
