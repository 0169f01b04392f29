//! Two placements of a program's memory: what a model predicts for peers and for the program's threads, and which one to
//! choose.

use std::time::Duration;

use adverb_launch::{DeviceInfo, Hardware, Interrupt};
use adverb_measure::{Backend, JobCell, JobRecorder};
use adverb_patterns::{
    Job, Limits, Load, LoopKind, LoopNodes, OneSidedLoop, Opcode, RD_ATOMIC, Schedule, SlotLayout,
    independent,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{CpuLoad, NodeChoice, NumaPlacement, Probability};
use anyhow::Context;

use super::Sample;
use crate::args::PlacementArgs;

/// Virtual time that the model measures.
const MEASURED: Span = Span::from_ms(1);
/// Time limit of a run of the model.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Equal results in a row after which a watched program's memory moves.
const STEADY: u32 = 3;

/// Predicts what the node of the memory means for peers and for the program's own threads.
pub(super) struct Model {
    recorder: JobRecorder,
    program: OneSidedLoop,
    hardware: Hardware,
}

/// What a model predicts with the memory on one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Predicted {
    /// Requests of peers a second.
    pub(super) per_s: f64,
    /// Mean time in which one of the program's threads loads a line of the memory, in ns; 0 without threads.
    pub(super) load_ns: f64,
}

/// How many of the program's threads ran on the NIC's node, and on others.
pub(super) type Threads = [(NodeChoice, u32); 2];

impl Model {
    pub(super) fn new(args: &PlacementArgs) -> anyhow::Result<Self> {
        let hardware = Hardware::load(&args.preset)?;
        let info = DeviceInfo::of_model(&hardware)?;
        let mut load = Load::new(Opcode::Read, args.size.get() as u32);
        load.limits = Limits::of_each_qp(args.outstanding, RD_ATOMIC);
        let mut program = OneSidedLoop {
            clients: args.clients,
            slots: match args.size.get() {
                ..64 => SlotLayout::Packed,
                _ => SlotLayout::Lines,
            },
            ..OneSidedLoop::new(LoopKind::Open, load)
        };
        program.server_load.workers = args.workers;
        program.server_load.worker_writes = args.worker_mix.writes();
        let backend = Backend::Model(Box::new(hardware.clone()));
        Ok(Model {
            recorder: JobRecorder::new(backend, info, TIMEOUT),
            program,
            hardware,
        })
    }

    /// Predicts a mixture of READs and WRITEs with the memory on `node`, while the program's threads stay where they ran.
    pub(super) fn predict(
        &mut self,
        node: NodeChoice,
        (reads, sample): (f64, &Sample),
        nic: u32,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Predicted> {
        let threads = sample.threads_by_nic(nic);
        Ok(Predicted {
            per_s: self.rate(reads, node, threads, interrupt)?,
            load_ns: self.load_ns(node, threads, sample.bytes())?,
        })
    }

    fn rate(
        &mut self,
        reads: f64,
        memory: NodeChoice,
        threads: Threads,
        interrupt: &Interrupt,
    ) -> anyhow::Result<f64> {
        let mut time = 0.0;
        for (op, share) in [(Opcode::Read, reads), (Opcode::Write, 1.0 - reads)] {
            if share == 0.0 {
                continue;
            }
            self.program.load.op = op;
            self.program.nodes = LoopNodes {
                memory,
                server: memory,
                workers: match threads {
                    [(_, 0), (_, 0)] => memory,
                    [_, (_, 0)] => NodeChoice::Nic,
                    [(_, 0), _] => NodeChoice::Other,
                    _ => NodeChoice::Any,
                },
                ..LoopNodes::default()
            };
            let (name, params) = self.program.parameters();
            let schedule = Schedule {
                warm_up: MEASURED / 4,
                measured: MEASURED,
            };
            let job = Job::Pattern(self.program.pattern(), schedule);
            let cell = JobCell::new(name, &params, String::new(), job);
            let measured =
                (self.recorder).in_order(&[(&cell, 1..=1)], interrupt, |measured| measured())?;
            let rate = measured
                .first()
                .and_then(|record| record.metric("requests_per_s"));
            time += share / rate.context("the model predicted no request")?;
        }
        Ok(1.0 / time)
    }

    /// Returns the mean over the threads, each of which loads lines at the same time as the others.
    fn load_ns(
        &self,
        memory: NodeChoice,
        threads: Threads,
        working_set: Bytes,
    ) -> anyhow::Result<f64> {
        let all: u32 = threads.iter().map(|(_, n)| n).sum();
        let array = Bytes::new(working_set.get() / u64::from(all.max(1)));
        let mut sum = 0.0;
        for (node, n) in threads.into_iter().filter(|(_, n)| *n > 0) {
            let others = threads.into_iter().filter_map(|(other, count)| {
                let count = count - u32::from(other == node);
                independent(count, (array, Probability::ZERO), (other, memory))
            });
            let others: Vec<CpuLoad> = others.collect();
            let numa = NumaPlacement {
                threads: node,
                memory,
            };
            let time = self.hardware.line_time(numa, working_set, &others)?;
            sum += time.as_ns_f64() * f64::from(n);
        }
        Ok(sum / f64::from(all.max(1)))
    }
}

/// The two predictions, and what follows from them.
pub(super) struct Advice {
    pub(super) nic: u32,
    pub(super) other: Option<u32>,
    /// With the memory on the NIC's node, and on another one.
    pub(super) near: Predicted,
    pub(super) far: Predicted,
    /// Outstanding requests of all peers.
    pub(super) outstanding: u32,
    /// Accesses of the program's threads for each request.
    pub(super) accesses: f64,
    /// Least gain that is worth a move.
    pub(super) least_gain: f64,
}

impl Advice {
    /// Returns how long a request and the program's accesses for it take together, in ns.
    pub(super) fn time_ns(&self, on: Predicted) -> f64 {
        self.request_ns(on) + self.accesses * on.load_ns
    }

    /// Returns the time of a request (Little's law).
    fn request_ns(&self, on: Predicted) -> f64 {
        1e9 * f64::from(self.outstanding) / on.per_s
    }

    /// Returns by how much requests take longer with the memory on the other node, and an access of the program, in ns.
    fn extra_ns(&self) -> (f64, f64) {
        let requests = self.request_ns(self.far) - self.request_ns(self.near);
        (requests, self.far.load_ns - self.near.load_ns)
    }

    /// Returns the accesses for each request with which both nodes are equal; `None` if one is better for peers and threads.
    pub(super) fn break_even(&self) -> Option<f64> {
        let (requests, accesses) = self.extra_ns();
        (requests * accesses < 0.0).then(|| -requests / accesses)
    }

    fn is_far_better(&self) -> bool {
        self.time_ns(self.far) < self.time_ns(self.near)
    }

    /// Returns the node with the shorter time, and how much longer it is on the other one.
    pub(super) fn better(&self) -> (u32, f64) {
        let (near, far) = (self.time_ns(self.near), self.time_ns(self.far));
        match self.other.filter(|_| self.is_far_better()) {
            Some(other) => (other, near / far - 1.0),
            None => (self.nic, far / near - 1.0),
        }
    }

    /// Returns the node to which memory should move; `None` if it is there, or the gain is too small.
    pub(super) fn wanted(&self, sample: &Sample) -> Option<u32> {
        let (node, gain) = self.better();
        let is_there = match self.is_far_better() {
            // Any node without the NIC will do.
            true => sample.memory.get(&self.nic) == Some(&0),
            false => sample.home() == (self.nic, 1.0),
        };
        (gain >= self.least_gain && !is_there).then_some(node)
    }
}

/// Decides when memory moves: with `--watch` after several equal results in a row, so that it does not move back and
/// forth.
#[derive(Debug, Default)]
pub(super) struct Steady {
    last: Option<u32>,
    seen: u32,
}

impl Steady {
    /// Returns the node to which memory moves now.
    pub(super) fn after(&mut self, wanted: Option<u32>, is_watching: bool) -> Option<u32> {
        self.seen = match wanted == self.last {
            true => self.seen + 1,
            false => 1,
        };
        self.last = wanted;
        if is_watching && self.seen < STEADY {
            return None;
        }
        self.seen = 0;
        wanted
    }

    /// Returns how many equal results are missing until memory moves.
    pub(super) fn missing(&self) -> u32 {
        STEADY - self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sample(on: [u64; 2]) -> Sample {
        Sample {
            mappings: Vec::new(),
            memory: BTreeMap::from([(0, on[0]), (1, on[1])]),
            threads: BTreeMap::new(),
        }
    }

    fn advice(near: f64, far: f64) -> Advice {
        let predicted = |per_s, load_ns| Predicted { per_s, load_ns };
        Advice {
            nic: 0,
            other: Some(1),
            near: predicted(near, 100.0),
            far: predicted(far, 60.0),
            outstanding: 1,
            accesses: 0.0,
            least_gain: 0.03,
        }
    }

    #[test]
    fn memory_moves_to_the_faster_node_unless_it_is_there() {
        assert_eq!(advice(1.1, 1.0).wanted(&sample([0, 9])), Some(0));
        assert_eq!(advice(1.1, 1.0).wanted(&sample([9, 0])), None);
        assert_eq!(advice(1.0, 1.7).wanted(&sample([5, 4])), Some(1));
        assert_eq!(advice(1.0, 1.7).wanted(&sample([0, 9])), None);
    }

    #[test]
    fn a_small_gain_moves_nothing() {
        assert_eq!(advice(1.02, 1.0).wanted(&sample([0, 9])), None);
        assert_eq!(advice(1.02, 1.0).better().0, 0);
    }

    #[test]
    fn accesses_of_the_program_outweigh_requests_from_a_number_on() {
        // A request takes 400 ns on the NIC's node and 500 ns on the other one; an access 40 ns less there.
        let mut advice = advice(2.5e6, 2e6);
        assert_eq!(advice.break_even().map(f64::round), Some(3.0));
        advice.accesses = 2.0;
        assert_eq!(advice.better().0, 0);
        advice.accesses = 3.0;
        let (node, gain) = advice.better();
        assert_eq!(
            (node, (gain * 1e3).round()),
            (1, 29.0),
            "700 ns against 680"
        );
        advice.far.load_ns = 110.0;
        assert_eq!(advice.break_even(), None, "peers and threads agree");
    }

    #[test]
    fn a_watched_program_moves_after_equal_results_in_a_row() {
        let mut steady = Steady::default();
        let wanted = [Some(1), None, Some(1), Some(1), Some(1), Some(1)];
        let moves: Vec<Option<u32>> = wanted.map(|wanted| steady.after(wanted, true)).into();
        assert_eq!(moves, [None, None, None, None, Some(1), None]);
        assert_eq!(Steady::default().after(Some(1), false), Some(1));
    }
}
