//! Records the steps of a run, and finds the chain of steps that makes up a span of time.
//!
//! Nothing is calculated here: a step is the interval in which a mechanism held a request, a packet or the
//! CPU. Recording is off by default; then it costs a check of one word.

use std::fmt;

use adverb_units::{Bytes, Span, Time};

use crate::ids::MachineId;

/// Part of a machine where a step happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The core of a role.
    Cpu,
    /// Between root port and NIC.
    Pcie,
    /// Caches and memory, answering the NIC.
    Memory,
    /// The NIC.
    Nic,
    /// Port, cables and switches.
    Wire,
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Component::Cpu => "CPU",
            Component::Pcie => "PCIe",
            Component::Memory => "memory",
            Component::Nic => "NIC",
            Component::Wire => "wire",
        })
    }
}

/// What crosses PCIe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Payload.
    #[default]
    Payload,
    /// Work requests.
    Wqe,
    /// A completion.
    Cqe,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Subject::Payload => "payload",
            Subject::Wqe => "WQE",
            Subject::Cqe => "CQE",
        })
    }
}

/// Declares the kinds of steps: where each happens, its payload, and its text.
macro_rules! step_kinds {
    ($($component:ident {
        $($kind:ident $(($($field:ident: $type:ty),+))? = $text:literal $(, $arg:expr)*;)+
    })+) => {
        /// What happens in a step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StepKind {
            $($(#[doc = $text] $kind $(($($type),+))?,)+)+
        }

        impl StepKind {
            /// Returns where it happens.
            pub fn component(self) -> Component {
                match self {
                    $($(StepKind::$kind { .. } => Component::$component,)+)+
                }
            }
        }

        impl fmt::Display for StepKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($(StepKind::$kind $(($($field),+))? => write!(f, $text $(, $arg)*),)+)+
                }
            }
        }
    };
}

step_kinds! {
    Cpu {
        BuildWqe = "build WQE";
        BuildReceive = "build receive request";
        WriteMmio(bytes: u64) = "MMIO, {}", Bytes::new(*bytes);
        RingDoorbell = "doorbell";
        // Polls that find nothing, until the one that does.
        Poll = "poll: nothing yet";
        // Half a poll on average, and the load of the new line.
        See = "poll: sees it";
        Look = "poll: finds nothing";
        ReadFlag = "read the polled byte";
        TakeCompletion = "take completion";
        Arm = "arm completion queue";
        Sleep = "sleep";
        Wake = "interrupt and wake-up";
        Refill = "cache misses after waking up";
        Kernel = "in the kernel";
        Compute = "compute";
        // What a program does with messages: copies, checks, lookups.
        Program = "program";
        Clock = "read clock";
    }
    Pcie {
        MmioWay = "MMIO to the NIC";
        MmioData(bytes: u64) = "MMIO data, {}", Bytes::new(*bytes);
        // For earlier packets, or for a free tag.
        PcieWait = "wait for the link";
        ReadRequest(subject: Subject) = "DMA read of {subject}: request";
        ReadData(subject: Subject, bytes: u64) = "DMA read of {subject}: {}", Bytes::new(*bytes);
        ReadRest(subject: Subject) = "DMA read of {subject}: the rest";
        Write(subject: Subject, bytes: u64) = "DMA write of {subject}, {}", Bytes::new(*bytes);
    }
    Memory {
        MemoryRead(subject: Subject) = "DMA read of {subject}: memory";
        // Cores contend for it.
        LineWait = "wait for the cache line";
    }
    Nic {
        UnitWait = "wait for the processing unit";
        Unit = "processing unit";
        Segment = "processing unit: further packets";
        // Stalls a side of the NIC.
        ContextMiss = "load context";
        // Before a READ or an atomic operation, whether it is cached or not.
        LoadContext = "load context to read";
        Transmit = "tx";
        Receive = "rx";
        // Begins with the first packet of a message.
        ReceivePayload = "rx of payload";
        // Includes the wait for its lock.
        Atomic = "locked read-modify-write";
    }
    Wire {
        PortWait = "wait for the port";
        Port(bytes: u64) = "port, {}", Bytes::new(*bytes);
        Way = "cables and switches";
    }
}

impl StepKind {
    /// Whether no other step of its message begins because this one ends: it overlaps what it waits for, or occupies a
    /// resource after the message has passed it.
    fn is_dead_end(self) -> bool {
        matches!(
            self,
            StepKind::Poll | StepKind::Sleep | StepKind::Unit | StepKind::ContextMiss
        )
    }

    /// Whether `next` can begin because this step ends. The next request of a queue pair begins when its unit is free.
    fn can_lead_to(self, next: StepKind) -> bool {
        let begins_request = || matches!(next.component(), Component::Nic | Component::Pcie);
        !self.is_dead_end() || self == StepKind::Unit && begins_request()
    }
}

/// An interval in which one thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The machine; on the wire, the machine whose port the message left by.
    pub machine: MachineId,
    /// What happened.
    pub kind: StepKind,
    /// When it began.
    pub begin: Time,
    /// When it ended.
    pub end: Time,
}

impl Step {
    /// How long it took.
    pub fn span(&self) -> Span {
        self.end - self.begin
    }

    /// Whether `next` can have begun because this step ended.
    fn leads_to(&self, next: &Step) -> bool {
        self.end == next.begin
            && self.kind.can_lead_to(next.kind)
            && (self.machine == next.machine || self.kind == StepKind::Way)
    }
}

/// Largest number of steps that each part of a machine records; later ones are dropped.
const MAX_STEPS: usize = 1 << 20;

/// Records the steps of one part of a machine while it is on.
#[derive(Debug, Default)]
pub(crate) struct Tracer(Option<Box<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    steps: Vec<(StepKind, Time, Time)>,
    subject: Subject,
}

impl Tracer {
    pub(crate) fn on() -> Self {
        Tracer(Some(Box::default()))
    }

    /// Records that a step lasted from `begin` to `end`, unless it took no time.
    #[inline]
    pub(crate) fn note(&mut self, kind: StepKind, begin: Time, end: Time) {
        if let Some(notes) = &mut self.0 {
            notes.add(kind, begin, end);
        }
    }

    /// Sets what the next access to memory is for.
    #[inline]
    pub(crate) fn about(&mut self, subject: Subject) {
        if let Some(notes) = &mut self.0 {
            notes.subject = subject;
        }
    }

    /// Returns what this access to memory is for.
    #[inline]
    pub(crate) fn subject(&mut self) -> Subject {
        let notes = self.0.as_mut();
        notes.map_or(Subject::Payload, |notes| std::mem::take(&mut notes.subject))
    }

    pub(crate) fn steps(&self, machine: MachineId) -> impl Iterator<Item = Step> {
        let steps = self.0.iter().flat_map(|notes| &notes.steps);
        steps.map(move |(kind, begin, end)| Step {
            machine,
            kind: *kind,
            begin: *begin,
            end: *end,
        })
    }
}

impl Notes {
    #[cold]
    #[inline(never)]
    fn add(&mut self, kind: StepKind, begin: Time, end: Time) {
        if begin < end && self.steps.len() < MAX_STEPS {
            self.steps.push((kind, begin, end));
        }
    }
}

/// A link of a chain of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The step with this index.
    Step(usize),
    /// No mechanism recorded anything between these times.
    Gap(Time, Time),
}

/// Returns the chain of steps that fills the time from `from` to `to`, where `to` is on machine `at`. Each
/// step begins when the one before it ends.
///
/// `steps` are in the order in which they begin ([`crate::Cluster::steps`]). Successive links are on one
/// machine, unless the first of them is on the wire.
pub fn chain(steps: &[Step], from: Time, (at, to): (MachineId, Time)) -> Vec<Link> {
    let mut links = Vec::new();
    let mut search = Search {
        steps,
        from,
        dead: vec![false; steps.len()],
    };
    // A sentinel of no length, so that the last step is found like any other.
    let mut next = Step {
        machine: at,
        kind: StepKind::Look,
        begin: to,
        end: to,
    };
    while next.begin > from {
        let mut found = Vec::new();
        if search.back(&next, &mut found) {
            links.extend(found.into_iter().map(Link::Step));
            break;
        }
        // No chain reaches back to `from`: skips the time before `next` that nothing recorded.
        let Some((index, gap)) = search.nearest(&next) else {
            links.push(Link::Gap(from, next.begin));
            break;
        };
        if gap.1 > gap.0 {
            links.push(Link::Gap(gap.0, gap.1));
        }
        links.push(Link::Step(index));
        next = steps[index];
    }
    links.reverse();
    links
}

/// Searches for a chain backwards.
struct Search<'s> {
    steps: &'s [Step],
    from: Time,
    /// Steps that no chain from `from` reaches.
    dead: Vec<bool>,
}

impl Search<'_> {
    /// Steps that begin before `next` does, the latest first.
    fn before(&self, next: &Step) -> impl Iterator<Item = usize> + use<'_> {
        let end = self.steps.partition_point(|step| step.begin < next.begin);
        let from = self.from;
        let steps = self.steps;
        (0..end)
            .rev()
            .take_while(move |index| steps[*index].begin >= from)
    }

    /// Appends the chain from `next` back to the beginning; returns whether there is one.
    fn back(&mut self, next: &Step, found: &mut Vec<usize>) -> bool {
        if next.begin == self.from {
            return true;
        }
        let candidates: Vec<usize> = self
            .before(next)
            .filter(|index| !self.dead[*index] && self.steps[*index].leads_to(next))
            .collect();
        for index in candidates {
            found.push(index);
            let step = self.steps[index];
            if self.back(&step, found) {
                return true;
            }
            found.pop();
            self.dead[index] = true;
        }
        false
    }

    /// Returns the last step to end before `next`, on its machine or the wire, and the gap between them.
    fn nearest(&self, next: &Step) -> Option<(usize, (Time, Time))> {
        let fits = |step: &Step| {
            step.end <= next.begin
                && !step.kind.is_dead_end()
                && (step.machine == next.machine || step.kind == StepKind::Way)
        };
        let last = self
            .before(next)
            .filter(|index| fits(&self.steps[*index]))
            .max_by_key(|index| self.steps[*index].end)?;
        Some((last, (self.steps[last].end, next.begin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    fn step(machine: u32, kind: StepKind, begin: u64, end: u64) -> Step {
        Step {
            machine: MachineId(machine),
            kind,
            begin: at(begin),
            end: at(end),
        }
    }

    #[test]
    fn a_chain_leaves_out_concurrent_steps() {
        let steps = [
            step(0, StepKind::BuildWqe, 0, 10),
            step(0, StepKind::Transmit, 10, 20),
            step(0, StepKind::Look, 15, 20),
            step(0, StepKind::Way, 20, 50),
            step(1, StepKind::Poll, 0, 50),
            step(1, StepKind::See, 50, 60),
        ];
        let mut steps = steps.to_vec();
        steps.sort_by_key(|step| step.begin);
        let links = chain(&steps, at(0), (MachineId(1), at(60)));
        let kinds: Vec<StepKind> = links
            .iter()
            .map(|link| match link {
                Link::Step(index) => steps[*index].kind,
                Link::Gap(..) => panic!("{links:?}"),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                StepKind::BuildWqe,
                StepKind::Transmit,
                StepKind::Way,
                StepKind::See
            ]
        );
    }

    #[test]
    fn the_next_request_waits_for_the_unit() {
        let steps = [
            step(0, StepKind::BuildWqe, 0, 10),
            step(0, StepKind::Unit, 10, 40),
            step(0, StepKind::Transmit, 10, 30),
            step(0, StepKind::Unit, 40, 70),
            step(0, StepKind::Transmit, 40, 60),
            step(0, StepKind::Way, 60, 80),
            step(1, StepKind::See, 80, 90),
        ];
        let links = chain(&steps, at(0), (MachineId(1), at(90)));
        assert_eq!(links, [0, 1, 4, 5, 6].map(Link::Step));
    }

    #[test]
    fn unrecorded_time_is_a_gap() {
        let steps = [
            step(0, StepKind::BuildWqe, 0, 10),
            step(0, StepKind::Way, 25, 40),
            step(1, StepKind::See, 40, 50),
        ];
        let links = chain(&steps, at(0), (MachineId(1), at(50)));
        let expected = [
            Link::Step(0),
            Link::Gap(at(10), at(25)),
            Link::Step(1),
            Link::Step(2),
        ];
        assert_eq!(links, expected);
    }

    #[test]
    fn a_tracer_that_is_off_records_nothing() {
        let mut tracer = Tracer::default();
        tracer.note(StepKind::See, at(0), at(1));
        assert_eq!(tracer.steps(MachineId(0)).count(), 0);
        let mut tracer = Tracer::on();
        tracer.note(StepKind::See, at(0), at(1));
        tracer.note(StepKind::See, at(1), at(1));
        assert_eq!(tracer.steps(MachineId(0)).count(), 1);
    }
}
