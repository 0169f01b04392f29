//! The steps of a run, recorded by the mechanisms where they happen, and the chain of steps that a span of
//! time consists of.
//!
//! Nothing is calculated here: a step is the interval in which a mechanism had a request, a packet or the
//! CPU. While recording is off, which is the default, it costs a check of one word.

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

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The CPU makes a work request.
    BuildWqe,
    /// The CPU makes a receive request.
    BuildReceive,
    /// The CPU writes this many bytes of a request to the NIC.
    WriteMmio(u64),
    /// The CPU rings a doorbell.
    RingDoorbell,
    /// The CPU looks again and again; nothing has come yet.
    Poll,
    /// The CPU sees what has come: half a look, and a load.
    See,
    /// The CPU looks and finds nothing.
    Look,
    /// The CPU reads what it polled for.
    ReadFlag,
    /// The CPU takes completions.
    TakeCompletion,
    /// The CPU arms a completion queue.
    Arm,
    /// The role sleeps.
    Sleep,
    /// Interrupt and scheduling, until the sleeping role runs.
    Wake,
    /// In the kernel.
    Kernel,
    /// The role computes.
    Compute,
    /// The role reads the clock.
    Clock,
    /// What the CPU wrote is on its way to the NIC.
    MmioWay,
    /// The bytes that the CPU wrote come in.
    MmioData(u64),
    /// Waiting for earlier packets on PCIe, and for a free tag.
    PcieWait,
    /// A read request goes up.
    ReadRequest(Subject),
    /// Memory answers.
    MemoryRead(Subject),
    /// The first bytes of a read come down.
    ReadData(Subject, u64),
    /// The rest of them streams in behind.
    ReadRest(Subject),
    /// So many bytes go to memory.
    Write(Subject, u64),
    /// A line that others fight for is not the NIC's yet.
    LineWait,
    /// The request waits for its processing unit.
    UnitWait,
    /// A request occupies its processing unit.
    Unit,
    /// A context is loaded, which stops a side of the NIC.
    ContextMiss,
    /// A request or an answer passes the sending side.
    Transmit,
    /// A message passes the receiving side.
    Receive,
    /// Its payload does, beginning with the first packet.
    ReceivePayload,
    /// A locked read-modify-write, with waiting for its bucket.
    Atomic,
    /// The message waits for its port.
    PortWait,
    /// The message leaves by the port: bytes on the wire, with headers.
    Port(u64),
    /// Cables and switches.
    Way,
}

impl Act {
    /// Where it happens.
    pub fn component(self) -> Component {
        use Act as A;
        match self {
            A::MmioWay
            | A::MmioData(_)
            | A::PcieWait
            | A::ReadRequest(_)
            | A::ReadData(..)
            | A::ReadRest(_)
            | A::Write(..) => Component::Pcie,
            A::MemoryRead(_) | A::LineWait => Component::Memory,
            A::UnitWait
            | A::Unit
            | A::ContextMiss
            | A::Transmit
            | A::Receive
            | A::ReceivePayload
            | A::Atomic => Component::Nic,
            A::PortWait | A::Port(_) | A::Way => Component::Wire,
            _ => Component::Cpu,
        }
    }

    /// Whether nothing comes of its end: it goes on beside what it waits for, or occupies what
    /// others may need.
    pub fn is_beside(self) -> bool {
        matches!(self, Act::Poll | Act::Sleep | Act::Unit | Act::ContextMiss)
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Act::BuildWqe => "build WQE",
            Act::BuildReceive => "build receive request",
            Act::WriteMmio(n) => return write!(f, "MMIO, {}", Bytes::new(*n)),
            Act::RingDoorbell => "doorbell",
            Act::Poll => "poll: nothing yet",
            Act::See => "poll: sees it",
            Act::Look => "poll: finds nothing",
            Act::ReadFlag => "read the polled byte",
            Act::TakeCompletion => "take completion",
            Act::Arm => "arm completion queue",
            Act::Sleep => "sleep",
            Act::Wake => "interrupt and wake-up",
            Act::Kernel => "in the kernel",
            Act::Compute => "compute",
            Act::Clock => "read clock",
            Act::MmioWay => "MMIO to the NIC",
            Act::MmioData(n) => return write!(f, "MMIO data, {}", Bytes::new(*n)),
            Act::PcieWait => "wait for the link",
            Act::ReadRequest(s) => return write!(f, "DMA read of {s}: request"),
            Act::MemoryRead(s) => return write!(f, "DMA read of {s}: memory"),
            Act::ReadData(s, n) => return write!(f, "DMA read of {s}: {}", Bytes::new(*n)),
            Act::ReadRest(s) => return write!(f, "DMA read of {s}: the rest"),
            Act::Write(s, n) => return write!(f, "DMA write of {s}, {}", Bytes::new(*n)),
            Act::LineWait => "wait for the cache line",
            Act::UnitWait => "wait for the processing unit",
            Act::Unit => "processing unit",
            Act::ContextMiss => "load context",
            Act::Transmit => "tx",
            Act::Receive => "rx",
            Act::ReceivePayload => "rx of payload",
            Act::Atomic => "locked read-modify-write",
            Act::PortWait => "wait for the port",
            Act::Port(n) => return write!(f, "port, {}", Bytes::new(*n)),
            Act::Way => "cables and switches",
        };
        f.pad(text)
    }
}

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where; on the wire, whose port the message left by.
    pub machine: MachineId,
    /// What.
    pub act: Act,
    /// From when on.
    pub begin: Time,
    /// Until when.
    pub end: Time,
}

impl Step {
    /// How long.
    pub fn span(&self) -> Span {
        self.end - self.begin
    }

    /// Whether this one can be what `next` began with.
    fn leads_to(&self, next: &Step) -> bool {
        self.end == next.begin
            && !self.act.is_beside()
            && (self.machine == next.machine || self.act == Act::Way)
    }
}

/// Most steps that a machine's parts keep each; the run goes on without being noted.
const MOST: usize = 1 << 20;

/// Takes notes of one part of a machine, if it is on.
#[derive(Debug, Default)]
pub(crate) struct Tracer(Option<Box<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    steps: Vec<(Act, Time, Time)>,
    subject: Subject,
}

impl Tracer {
    pub(crate) fn on() -> Self {
        Tracer(Some(Box::default()))
    }

    /// `act` lasts from `begin` to `end`; what takes no time is no step.
    #[inline]
    pub(crate) fn note(&mut self, act: Act, begin: Time, end: Time) {
        if let Some(notes) = &mut self.0 {
            notes.add(act, begin, end);
        }
    }

    /// What the next access to memory is for.
    #[inline]
    pub(crate) fn about(&mut self, subject: Subject) {
        if let Some(notes) = &mut self.0 {
            notes.subject = subject;
        }
    }

    /// What this access to memory is for.
    #[inline]
    pub(crate) fn subject(&mut self) -> Subject {
        let notes = self.0.as_mut();
        notes.map_or(Subject::Payload, |notes| std::mem::take(&mut notes.subject))
    }

    /// The steps so far.
    pub(crate) fn steps(&self, machine: MachineId) -> impl Iterator<Item = Step> {
        let steps = self.0.iter().flat_map(|notes| &notes.steps);
        steps.map(move |(act, begin, end)| Step {
            machine,
            act: *act,
            begin: *begin,
            end: *end,
        })
    }
}

impl Notes {
    #[cold]
    #[inline(never)]
    fn add(&mut self, act: Act, begin: Time, end: Time) {
        if begin < end && self.steps.len() < MOST {
            self.steps.push((act, begin, end));
        }
    }
}

/// A piece of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The step with this index.
    Step(usize),
    /// No mechanism has noted what happened between.
    Gap(Time, Time),
}

/// What the time from `from` to `to` consists of, where `to` is on machine `at`: the steps, each
/// beginning when the one before it ended.
///
/// `steps` are in the order in which they begin ([`crate::Cluster::steps`]). A link of the chain stays on
/// its machine, or comes from the wire.
pub fn chain(steps: &[Step], from: Time, (at, to): (MachineId, Time)) -> Vec<Link> {
    let mut links = Vec::new();
    let mut search = Search {
        steps,
        from,
        dead: vec![false; steps.len()],
    };
    // An end of nothing, so that the last step can be looked for as any other.
    let mut next = Step {
        machine: at,
        act: Act::Look,
        begin: to,
        end: to,
    };
    while next.begin > from {
        let mut found = Vec::new();
        if search.back(&next, &mut found) {
            links.extend(found.into_iter().map(Link::Step));
            break;
        }
        // As far as it can be followed; nothing is known about what came before.
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

/// Looks for a chain, backwards.
struct Search<'s> {
    steps: &'s [Step],
    from: Time,
    /// Steps that no chain leads to.
    dead: Vec<bool>,
}

impl Search<'_> {
    /// Steps that may end at the latest when `next` begins, last ones first.
    fn before(&self, next: &Step) -> impl Iterator<Item = usize> + use<'_> {
        let end = self.steps.partition_point(|step| step.begin < next.begin);
        let from = self.from;
        let steps = self.steps;
        (0..end)
            .rev()
            .take_while(move |index| steps[*index].begin >= from)
    }

    /// Appends a chain from `next` back to the beginning, if there is one.
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

    /// The step that ends last before `next`, on its machine or from the wire, and the gap between them.
    fn nearest(&self, next: &Step) -> Option<(usize, (Time, Time))> {
        let fits = |step: &Step| {
            step.end <= next.begin
                && !step.act.is_beside()
                && (step.machine == next.machine || step.act == Act::Way)
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

    fn step(machine: u32, act: Act, begin: u64, end: u64) -> Step {
        Step {
            machine: MachineId(machine),
            act,
            begin: at(begin),
            end: at(end),
        }
    }

    #[test]
    fn a_chain_leaves_out_what_goes_on_beside_it() {
        let steps = [
            step(0, Act::BuildWqe, 0, 10),
            step(0, Act::Transmit, 10, 20),
            step(0, Act::Look, 15, 20),
            step(0, Act::Way, 20, 50),
            step(1, Act::Poll, 0, 50),
            step(1, Act::See, 50, 60),
        ];
        let mut steps = steps.to_vec();
        steps.sort_by_key(|step| step.begin);
        let links = chain(&steps, at(0), (MachineId(1), at(60)));
        let acts: Vec<Act> = links
            .iter()
            .map(|link| match link {
                Link::Step(index) => steps[*index].act,
                Link::Gap(..) => panic!("{links:?}"),
            })
            .collect();
        assert_eq!(acts, [Act::BuildWqe, Act::Transmit, Act::Way, Act::See]);
    }

    #[test]
    fn what_nobody_noted_is_a_gap() {
        let steps = [
            step(0, Act::BuildWqe, 0, 10),
            step(0, Act::Way, 25, 40),
            step(1, Act::See, 40, 50),
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
    fn off_nothing_is_kept() {
        let mut tracer = Tracer::default();
        tracer.note(Act::See, at(0), at(1));
        assert_eq!(tracer.steps(MachineId(0)).count(), 0);
        let mut tracer = Tracer::on();
        tracer.note(Act::See, at(0), at(1));
        tracer.note(Act::See, at(1), at(1));
        assert_eq!(tracer.steps(MachineId(0)).count(), 1);
    }
}
