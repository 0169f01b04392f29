//! Two placements of a program's memory: their predicted rates, and which one to choose.

use std::time::Duration;

use adverb_launch::{DeviceInfo, Hardware, Interrupt};
use adverb_measure::{Backend, JobCell, JobRecorder};
use adverb_patterns::{
    Job, Limits, Load, LoopKind, LoopNodes, OneSidedLoop, Opcode, RD_ATOMIC, Schedule, SlotLayout,
};
use adverb_units::Span;
use adverb_verbs::NodeChoice;
use anyhow::Context;

use super::Sample;
use crate::args::PlacementArgs;

/// Virtual time that the model measures.
const MEASURED: Span = Span::from_ms(1);
/// Time limit of a run of the model.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Equal results in a row after which a watched program's memory moves.
const STEADY: u32 = 3;

/// Predicts the rates of remote requests by the node of the memory.
pub(super) struct Model {
    recorder: JobRecorder,
    program: OneSidedLoop,
}

impl Model {
    pub(super) fn new(args: &PlacementArgs) -> anyhow::Result<Self> {
        let hardware = Hardware::load(&args.preset)?;
        let info = DeviceInfo::of_model(&hardware)?;
        let mut load = Load::new(Opcode::Read, args.size.get() as u32);
        load.limits = Limits {
            per_qp: args.outstanding,
            per_member: u32::MAX,
            rd_atomic: RD_ATOMIC,
        };
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
        let backend = Backend::Model(Box::new(hardware));
        Ok(Model {
            recorder: JobRecorder::new(backend, info, TIMEOUT),
            program,
        })
    }

    /// Returns the rates of a mixture of READs and WRITEs with the memory on the NIC's node and on another one.
    pub(super) fn rates(
        &mut self,
        reads: f64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(f64, f64)> {
        let near = self.rate(reads, NodeChoice::Nic, interrupt)?;
        Ok((near, self.rate(reads, NodeChoice::Other, interrupt)?))
    }

    fn rate(
        &mut self,
        reads: f64,
        memory: NodeChoice,
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
                workers: memory,
                ..LoopNodes::default()
            };
            let (name, params) = self.program.parameters();
            let schedule = Schedule {
                warm_up: MEASURED / 4,
                measured: MEASURED,
            };
            let job = Job::Pattern(self.program.pattern(), schedule);
            let cell = JobCell::new(name, &params, String::new(), job);
            let record = self.recorder.run(&cell, 1, interrupt)?;
            let rate = record.metric("requests_per_s");
            time += share / rate.context("the model predicted no request")?;
        }
        Ok(1.0 / time)
    }
}

/// The predicted rates, and what follows from them.
pub(super) struct Advice {
    pub(super) nic: u32,
    pub(super) other: Option<u32>,
    /// Rate with the memory on the NIC's node, and on another one.
    pub(super) near: f64,
    pub(super) far: f64,
    /// Least gain that is worth a move.
    pub(super) least_gain: f64,
}

impl Advice {
    /// Returns the node with the higher rate, and its gain over the other choice.
    pub(super) fn better(&self) -> (u32, f64) {
        match self.other.filter(|_| self.far > self.near) {
            Some(other) => (other, self.far / self.near - 1.0),
            None => (self.nic, self.near / self.far - 1.0),
        }
    }

    /// Returns the node to which memory should move; `None` if it is there, or the gain is too small.
    pub(super) fn wanted(&self, sample: &Sample) -> Option<u32> {
        let (node, gain) = self.better();
        let is_there = match self.far > self.near {
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
        Advice {
            nic: 0,
            other: Some(1),
            near,
            far,
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
    fn a_watched_program_moves_after_equal_results_in_a_row() {
        let mut steady = Steady::default();
        let wanted = [Some(1), None, Some(1), Some(1), Some(1), Some(1)];
        let moves: Vec<Option<u32>> = wanted.map(|wanted| steady.after(wanted, true)).into();
        assert_eq!(moves, [None, None, None, None, Some(1), None]);
        assert_eq!(Steady::default().after(Some(1), false), Some(1));
    }
}
