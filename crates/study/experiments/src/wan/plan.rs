//! The cells of the study's figures.

use adverb_patterns::rendezvous::Protocol;
use adverb_patterns::{By, Job, Task, Wan};
use adverb_results::{Completion, Impairment, Opcode, Transport};
use adverb_units::{Bytes, Span};
use adverb_verbs::{PathOptions, Probability};
use adverb_workload::Program as _;
use adverb_workload::pair::{CellSpec, Length, Request};
use serde_json::json;

use super::figures::{
    BEYOND, FETCH, INTERFERENCE, LAN, LATENCY, OVERLAP, OVERLAP_DELAYED, PROGRESS, RENDEZVOUS,
};
use crate::Profile;
use crate::programs::{Abilities, Point, add};

/// Delays of the path in each direction.
const DELAYS_US: [u64; 8] = [0, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000];
const FEW_DELAYS_US: [u64; 4] = [0, 1_000, 4_000, 16_000];
/// Message of the experiments that do not vary it.
const SIZE: Bytes = Bytes::kib(1);
/// Computations of Figure 4a, at no delay, and of Figure 5a.
const COMPUTE_US: [u64; 9] = [0, 10, 20, 40, 60, 80, 120, 160, 400];
const COMPUTE_DELAYED_US: [u64; 7] = [0, 500, 1_000, 2_000, 3_000, 4_000, 8_000];
/// The delay of Figures 5a and 6a, and the computation of Figure 5b.
const DELAYED: Span = Span::from_ms(1);
const COMPUTE: Span = Span::from_ms(2);
/// What a busy server computes before it answers.
const RESPONSE_DELAYS_US: [u64; 6] = [0, 100, 1_000, 2_000, 5_000, 10_000];
/// The computation of a server with clients.
const STOLEN: Span = Span::from_ms(20);
const STOLEN_SIZE: Bytes = Bytes::kib(16);
/// Beyond the publication: memory that it reads in each millisecond.
const READS: [Bytes; 3] = [Bytes::kib(256), Bytes::mib(1), Bytes::mib(4)];
/// The smallest messages that clients stream over sockets of a model, whose TCP does not merge small writes: each
/// would be a frame with an interrupt, which the server's core could not keep up with.
const LEAST_STREAMED: Bytes = Bytes::kib(1);
/// Streams beyond the publication: their messages, how many are in flight, on paths that lose packets, too, and lost
/// packets in a million.
const STREAMED: Bytes = Bytes::kib(64);
const WINDOWS: [u32; 4] = [4, 16, 64, 256];
pub(super) const LOSSY_WINDOWS: [u32; 2] = [16, 64];
const STREAM_DELAYS_MS: [u64; 3] = [1, 10, 100];
/// Longer delays lose no packets: with go-back-N a stream would take minutes.
const LONGEST_LOSSY: Span = Span::from_ms(10);
const LOSSES: [u32; 3] = [0, 1_000, 10_000];
/// Clients of the publication, and on a real machine.
const CLIENTS: u32 = 40;
const FEW_CLIENTS: u32 = 2;

struct Draft {
    abilities: Abilities,
    iters: u32,
    points: Vec<Point>,
}

/// Returns the cells that a device can run.
pub(super) fn plan(profile: Profile, abilities: Abilities) -> Vec<Point> {
    let iters = match (abilities.is_virtual, profile) {
        (true, _) => 3,
        (_, Profile::Quick) => 30,
        (_, Profile::Full | Profile::Paper) => 200,
    };
    let mut draft = Draft {
        abilities,
        iters,
        points: Vec::new(),
    };
    draft.latency(profile);
    draft.overlap();
    draft.fetch();
    draft.interference(profile);
    draft.rendezvous(profile);
    draft.beyond(profile);
    draft.points
}

/// Powers of four, or of two, from 1 B to 64 KiB.
fn sizes(profile: Profile) -> Vec<Bytes> {
    let step = if profile == Profile::Quick { 2 } else { 1 };
    let exponents = (0..=16).step_by(step);
    exponents.map(|n| Bytes::new(1 << n)).collect()
}

impl Draft {
    /// Figures 3 and 8: WRITE and TCP over size and delay.
    fn latency(&mut self, profile: Profile) {
        for size in sizes(profile) {
            let figures = [LATENCY.id, LAN.id];
            for by in [By::Write, By::Tcp] {
                self.add(overlap(by, Span::ZERO), size, Span::ZERO, &figures);
            }
            let task = overlap(By::Tcp, Span::ZERO);
            self.add_sleeping(task, size, Span::ZERO, &figures);
        }
        for delay in DELAYS_US.map(Span::from_us) {
            for by in [By::Write, By::Tcp] {
                self.add(overlap(by, Span::ZERO), SIZE, delay, &[LATENCY.id]);
            }
        }
    }

    /// Figures 4a, 5a and 5b: a computation between a message's start and its end.
    fn overlap(&mut self) {
        let ways = [By::Write, By::Read, By::Send, By::Tcp];
        for compute in COMPUTE_US.map(Span::from_us) {
            for by in ways {
                self.add(overlap(by, compute), SIZE, Span::ZERO, &[OVERLAP.id]);
            }
            let task = overlap(By::Tcp, compute);
            self.add_sleeping(task, SIZE, Span::ZERO, &[OVERLAP.id]);
        }
        for compute in COMPUTE_DELAYED_US.map(Span::from_us) {
            for by in ways {
                self.add(overlap(by, compute), SIZE, DELAYED, &[OVERLAP_DELAYED.id]);
            }
        }
        for delay in DELAYS_US.map(Span::from_us) {
            for by in ways {
                self.add(overlap(by, COMPUTE), SIZE, delay, &[OVERLAP_DELAYED.id]);
            }
        }
    }

    /// Figures 4b, 6a and 6b: data of a busy server.
    fn fetch(&mut self) {
        let ways = [By::Read, By::Send, By::Tcp];
        for response_delay in RESPONSE_DELAYS_US.map(Span::from_us) {
            for by in ways {
                let task = Task::Fetch { by, response_delay };
                self.add(task, SIZE, Span::ZERO, &[FETCH.id, PROGRESS.id]);
                self.add(task, SIZE, DELAYED, &[PROGRESS.id]);
            }
            let by = By::Tcp;
            let task = Task::Fetch { by, response_delay };
            self.add_sleeping(task, SIZE, Span::ZERO, &[FETCH.id, PROGRESS.id]);
        }
        for delay in DELAYS_US.map(Span::from_us) {
            for by in ways {
                let response_delay = COMPUTE;
                let task = Task::Fetch { by, response_delay };
                self.add(task, SIZE, delay, &[PROGRESS.id]);
            }
        }
    }

    /// Figures 7a and 7b: a computation at a server to which clients stream.
    fn interference(&mut self, profile: Profile) {
        let clients = match self.abilities.is_virtual {
            true => CLIENTS,
            false => FEW_CLIENTS,
        };
        let machines = match self.abilities.is_virtual {
            true => clients,
            false => 1,
        };
        let task = |by, reads| Task::Interference {
            by,
            compute: STOLEN,
            clients,
            machines,
            reads,
        };
        let ways = [By::Write, By::Send, By::Tcp];
        let figures = [INTERFERENCE.id];
        let none = Bytes::new(0);
        let over_tcp = task(By::Tcp, none);
        for size in sizes(profile) {
            let floods = self.abilities.is_virtual && size < LEAST_STREAMED;
            for by in ways {
                if by != By::Tcp || !floods {
                    self.add(task(by, none), size, Span::ZERO, &figures);
                }
            }
            if !floods {
                self.add_sleeping(over_tcp, size, Span::ZERO, &figures);
            }
        }
        for delay in FEW_DELAYS_US.map(Span::from_us) {
            for by in ways {
                self.add(task(by, none), STOLEN_SIZE, delay, &figures);
            }
            self.add_sleeping(over_tcp, STOLEN_SIZE, delay, &figures);
        }
        for reads in READS {
            for by in ways {
                self.add(task(by, reads), STOLEN_SIZE, Span::ZERO, &figures);
            }
        }
    }

    /// Figure 9: protocols over size and delay.
    fn rendezvous(&mut self, profile: Profile) {
        let protocols = [
            Protocol::Write,
            Protocol::Read,
            Protocol::Prearranged,
            Protocol::Eager,
            Protocol::Sockets,
        ];
        for delay in FEW_DELAYS_US.map(Span::from_us) {
            for size in sizes(profile) {
                for protocol in protocols {
                    let task = Task::Rendezvous { protocol };
                    self.add(task, size, delay, &[RENDEZVOUS.id]);
                }
            }
        }
    }

    /// Streams of RC and TCP over what is in flight, over delays and over losses.
    fn beyond(&mut self, profile: Profile) {
        let length = match (self.abilities.is_virtual, profile) {
            (true, _) => Span::from_ms(5),
            (_, Profile::Quick) => Span::from_ms(150),
            (_, Profile::Full | Profile::Paper) => Span::from_secs(1),
        };
        for delay in STREAM_DELAYS_MS.map(Span::from_ms) {
            for loss in LOSSES.map(Probability::per_million) {
                let windows: &[u32] = match loss {
                    Probability::ZERO => &WINDOWS,
                    _ if delay > LONGEST_LOSSY => continue,
                    _ => &LOSSY_WINDOWS,
                };
                let request = |op| Request {
                    path: path(delay, loss),
                    length: Length::Duration(length),
                    ..Request::new(op, STREAMED)
                };
                for buffers in windows {
                    self.stream(Request {
                        buffers: *buffers,
                        ..request(Opcode::Write)
                    });
                }
                let mut over_tcp = request(Opcode::Send);
                over_tcp.traffic.transport = Transport::Tcp;
                self.stream(over_tcp);
            }
        }
    }

    fn stream(&mut self, request: Request) {
        let cell = CellSpec::blast(request);
        let Request {
            op, size, buffers, ..
        } = cell.params;
        let transport = cell.is_stream().then_some(Transport::Tcp);
        let params =
            json!({ "op": op, "size_bytes": size, "buffers": buffers, "transport": transport });
        self.push("blast", params, Job::Pair(cell), &[BEYOND.id]);
    }

    /// Adds a cell of a program of the study.
    fn add(&mut self, task: Task, size: Bytes, delay: Span, figures: &[&'static str]) {
        self.add_waiting((task, Completion::Poll), size, delay, figures);
    }

    /// Adds a cell whose readers sleep.
    fn add_sleeping(&mut self, task: Task, size: Bytes, delay: Span, figures: &[&'static str]) {
        self.add_waiting((task, Completion::Event), size, delay, figures);
    }

    fn add_waiting(
        &mut self,
        (task, completion): (Task, Completion),
        size: Bytes,
        delay: Span,
        figures: &[&'static str],
    ) {
        let path = match delay {
            Span::ZERO => PathOptions::default(),
            delay => path(delay, Probability::ZERO),
        };
        let iters = match task {
            Task::Interference { .. } => self.iters.min(5),
            _ => self.iters,
        };
        let job = Wan {
            task,
            size,
            iters,
            completion,
            path,
        };
        let (program, params) = job.parameters();
        self.push(program, params, Job::Wan(job), figures);
    }

    /// Adds a cell, or its figures to an equal cell; leaves out what the device cannot do.
    fn push(
        &mut self,
        program: &'static str,
        params: serde_json::Value,
        job: Job,
        figures: &[&'static str],
    ) {
        let able = self.abilities;
        let can_send = match job.is_stream() {
            true => able.sockets,
            false => able.queue_pairs,
        };
        if !can_send || (job.path().impairment.is_some() && !able.delay) {
            return;
        }
        let new = Point {
            program,
            params,
            job,
            figures: figures.to_vec(),
        };
        add(&mut self.points, new);
    }
}

/// A path with this delay in each direction, which loses this share of the packets.
fn path(delay: Span, loss: Probability) -> PathOptions {
    let how = Impairment {
        delay,
        loss,
        seed: 1,
        ..Impairment::default()
    };
    PathOptions {
        impairment: Some(how),
        ..PathOptions::default()
    }
}

const fn overlap(by: By, compute: Span) -> Task {
    Task::Overlap { by, compute }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::programs::testing::shown;
    use crate::wan::FIGURES;

    const MODEL: Abilities = Abilities::MODEL;

    #[test]
    fn a_model_fills_all_figures_and_measures_each_cell_once() {
        let all: BTreeSet<&str> = FIGURES.iter().map(|figure| figure.id).collect();
        assert_eq!(shown(&plan(Profile::Quick, MODEL)), all);
        let points = plan(Profile::Full, MODEL);
        for (place, point) in points.iter().enumerate() {
            let same = |other: &Point| other.job == point.job;
            assert!(!points[..place].iter().any(same), "{:?}", point.job);
        }
    }

    #[test]
    fn a_device_gets_only_cells_that_it_can_run() {
        let tcp = Abilities {
            queue_pairs: false,
            delay: false,
            is_virtual: false,
            ..MODEL
        };
        let points = plan(Profile::Quick, tcp);
        assert!(
            points
                .iter()
                .all(|point| adverb_workload::Program::is_stream(&point.job))
        );
        let delayed = |point: &Point| point.job.path().impairment.is_some();
        assert!(!points.iter().any(delayed));
        let soft = Abilities {
            queue_pairs: true,
            sockets: false,
            ..tcp
        };
        let points = plan(Profile::Quick, soft);
        assert!(
            points
                .iter()
                .all(|point| !adverb_workload::Program::is_stream(&point.job))
        );
        assert!(shown(&plan(Profile::Quick, soft)).contains("wan7"));
    }
}
