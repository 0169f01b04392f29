//! The cells of the study's figures.

mod requests;

use adverb_patterns::{
    Clients, Items, Job, OneSided, OneSidedClients, Posting, Puts, Remote, RequestBy, Rpc,
    Schedule, Service, Serving, StoreLoad, Timing,
};
use adverb_units::Span;
use adverb_verbs::{Level, PathOptions};
use serde_json::Value;

use super::figures::{CORES, GENERATIONS, HERD, KV, LADDER, OFFERED, PCIE, QUEUES};
use crate::Profile;
use crate::programs::{Abilities, Point, add};

/// Most answers of a batch, and the queue pairs of a core at each port: several for lists, or one as HERD has it.
const LIST: u32 = 32;
const QPS: u32 = 3;
const FEW_QPS: u32 = 1;
/// Cores of the ladder's fifth design, and of the last one.
const SOME_CORES: u32 = 6;
const MANY_CORES: u32 = 10;
/// One answer in this many is signaled.
const SIGNALED_EVERY: u32 = 64;
/// Server cores of the figures over cores.
const CORES_OF: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
const FEW_CORES_OF: [u32; 8] = [1, 2, 3, 4, 6, 8, 10, 14];
const QPS_OF: [u32; 6] = [1, 2, 3, 4, 6, 8];
/// Requests per second that are offered to a model, and to a real device.
const OFFERED_OF: [f64; 9] = [1e6, 5e6, 10e6, 20e6, 40e6, 60e6, 80e6, 97e6, 110e6];
const FEW_OFFERED_OF: [f64; 4] = [10e3, 50e3, 100e3, 200e3];
/// Shares of PUTs.
const PUTS_OF: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];
const FEW_PUTS_OF: [f64; 3] = [0.0, 0.5, 1.0];
/// HERD's PUTs in the figure over workers, its values, and the items of each table or of the whole store: few
/// suffice, because a model is told where their lines are, and low-order bits of lock words repeat.
const HERD_PUTS: f64 = 0.05;
const VALUE: u32 = 32;
const ITEMS: u64 = 4096;
/// Record of a GET's READ.
const RECORD: u32 = 64;
/// Shortest warm-up.
const WARM_UP: Span = Span::from_us(400);
/// Outstanding READs and atomics of a queue pair.
const RD_ATOMIC: u8 = 16;

/// How the sequencer's cores answer.
#[derive(Clone, Copy)]
struct Serve {
    by: RequestBy,
    list: u32,
    qps: u32,
    cores: u32,
}

struct Draft {
    abilities: Abilities,
    profile: Profile,
    points: Vec<Point>,
}

/// Returns the cells that a device can run.
pub(super) fn plan(profile: Profile, abilities: Abilities) -> Vec<Point> {
    let mut draft = Draft {
        abilities,
        profile,
        points: Vec::new(),
    };
    if abilities.queue_pairs && abilities.all_transports {
        draft.ladder();
        draft.over_cores();
        draft.over_load();
        draft.over_queues();
        draft.sends();
        draft.inbound();
        draft.store();
        draft.herd();
    }
    if abilities.queue_pairs {
        draft.windows();
        if abilities.is_virtual {
            draft.verbs();
        }
    }
    if abilities.queue_pairs && abilities.atomics {
        draft.atomics();
    }
    draft.answers();
    // Beside the ladder, or alone.
    if abilities.sockets && abilities.queue_pairs == abilities.all_transports {
        draft.sequencer_over_tcp();
    }
    draft.points
}

impl Draft {
    /// Adds the figure of PCIe transactions, which only a model counts.
    fn with_pcie(&self, mut figures: Vec<&'static str>) -> Vec<&'static str> {
        if self.abilities.is_virtual {
            figures.push(PCIE.id);
        }
        figures
    }

    fn is_quick(&self) -> bool {
        self.profile == Profile::Quick
    }

    /// Returns threads, machines and outstanding requests of the clients: `of_publication` on a model, two threads on a
    /// real device.
    fn clients(&self, of_publication: [u32; 3]) -> [u32; 3] {
        match self.abilities.is_virtual {
            true => of_publication,
            false => [2, 1, 16],
        }
    }

    /// Limits a number of server cores to the CPUs and clients that there are.
    fn cores(&self, of_publication: u32) -> u32 {
        let clients = self.clients([u32::MAX; 3])[0];
        of_publication.min(self.abilities.cpus).min(clients).max(1)
    }

    /// Returns the numbers of server cores of a figure.
    fn cores_of(&self) -> Vec<u32> {
        let all = match self.is_quick() {
            true => &FEW_CORES_OF[..],
            false => &CORES_OF[..],
        };
        let fits = |cores: &&u32| self.cores(**cores) == **cores;
        all.iter().filter(fits).copied().collect()
    }

    /// The designs from FETCH_ADD to RPCs without payload under full load, and three of them with one request at a time.
    fn ladder(&mut self) {
        let of = |by, list, qps, cores| Serve {
            by,
            list,
            qps,
            cores,
        };
        let (some, many) = (self.cores(SOME_CORES), self.cores(MANY_CORES));
        let designs = [
            of(RequestBy::Write, 1, FEW_QPS, 1),
            of(RequestBy::Write, LIST, FEW_QPS, 1),
            of(RequestBy::Write, LIST, QPS, 1),
            of(RequestBy::Write, LIST, QPS, some),
            of(RequestBy::HeaderOnly, LIST, QPS, many),
        ];
        let clients = self.clients([70, 5, 32]);
        let figures = self.with_pcie(vec![LADDER.id, GENERATIONS.id]);
        // 2,240 requests in flight in all designs: a client of FETCH_ADD has two queue pairs, with 35 each.
        self.fetch_add(self.clients([32, 5, 35]), 2, figures.clone());
        for design in designs {
            self.sequencer(design, clients, None, figures.clone());
        }
        let alone = [1, 1, 1];
        self.fetch_add(alone, 1, vec![LADDER.id]);
        for by in [RequestBy::Write, RequestBy::HeaderOnly] {
            self.sequencer(of(by, 1, QPS, 1), alone, None, vec![LADDER.id]);
        }
    }

    /// FETCH_ADD on one word.
    fn fetch_add(&mut self, clients: [u32; 3], qps: u32, figures: Vec<&'static str>) {
        let program = OneSided {
            remote: Remote::Counter,
            clients: onesided_clients(clients, qps),
            path: PathOptions::default(),
        };
        let parameters = program.parameters();
        // Up to 2,240 requests are in flight, and 2 million a second end.
        let schedule = self.schedule(Span::from_ms(3));
        self.add(parameters, Job::OneSided(program, schedule), figures);
    }

    fn sequencer(
        &mut self,
        Serve {
            by,
            list,
            qps,
            cores,
        }: Serve,
        clients: [u32; 3],
        offered: Option<f64>,
        figures: Vec<&'static str>,
    ) {
        let service = Service::Sequencer(by);
        self.served(service, (list, qps, cores), clients, offered, figures);
    }

    fn served(
        &mut self,
        service: Service,
        (list, qps, cores): (u32, u32, u32),
        clients: [u32; 3],
        offered: Option<f64>,
        figures: Vec<&'static str>,
    ) {
        let rpc = Rpc {
            service,
            serving: Serving {
                cores,
                qps_per_port: qps,
                posting: Posting::of(list),
                signaled_every: SIGNALED_EVERY,
            },
            clients: Clients::new(clients, offered),
            path: PathOptions::default(),
        };
        let schedule = self.schedule(match offered {
            // Enough requests for a mean: arrivals are random.
            Some(rate) => Span::from_secs_f64(2048.0 / rate).max(Span::from_us(100)),
            // A core needs 0.3 ms for the requests that are in flight.
            None => (Span::from_us(1000) / u64::from(cores)).max(Span::from_us(200)),
        });
        self.add(rpc.parameters(offered), Job::Rpc(rpc, schedule), figures);
    }

    /// RPCs over server cores.
    fn over_cores(&mut self) {
        let clients = self.clients([70, 5, 32]);
        for cores in self.cores_of() {
            for by in [RequestBy::Write, RequestBy::HeaderOnly] {
                for (list, qps) in [(1, FEW_QPS), (LIST, QPS)] {
                    let design = Serve {
                        by,
                        list,
                        qps,
                        cores,
                    };
                    self.sequencer(design, clients, None, vec![CORES.id]);
                }
            }
        }
    }

    /// Latency over the offered load.
    fn over_load(&mut self) {
        let rates = match self.abilities.is_virtual {
            true => &OFFERED_OF[..],
            false => &FEW_OFFERED_OF[..],
        };
        let (clients, cores) = (self.clients([70, 5, 32]), self.cores(MANY_CORES));
        for rate in rates {
            for list in [1, LIST] {
                let design = Serve {
                    by: RequestBy::HeaderOnly,
                    list,
                    qps: QPS,
                    cores,
                };
                self.sequencer(design, clients, Some(*rate), vec![OFFERED.id]);
            }
        }
    }

    /// Lists over queue pairs of one core, and of several up to as many as the ladder has.
    fn over_queues(&mut self) {
        let (clients, several) = (self.clients([70, 5, 32]), self.cores(SOME_CORES));
        let one = QPS_OF.into_iter().map(|qps| (1, qps));
        let of_several = (FEW_QPS..=QPS).map(|qps| (several, qps));
        for (cores, qps) in one.chain(of_several) {
            let design = Serve {
                by: RequestBy::Write,
                list: LIST,
                qps,
                cores,
            };
            self.sequencer(design, clients, None, vec![QUEUES.id]);
        }
    }

    /// A key-value store over the share of PUTs: READs with locks or questions, and HERD.
    fn store(&mut self) {
        let ratios = match self.is_quick() {
            true => &FEW_PUTS_OF[..],
            false => &PUTS_OF[..],
        };
        let cores = self.cores(14);
        for put_ratio in ratios.iter().copied() {
            let ask = Puts::Ask {
                cores,
                value: VALUE,
            };
            let designs = [(1, Puts::Lock), (2, Puts::Lock), (3, Puts::Lock), (2, ask)];
            for (reads, puts) in designs {
                let program = OneSided {
                    remote: Remote::Items(Items {
                        items: ITEMS,
                        records: vec![RECORD; reads],
                        mean_reads: reads as f64,
                        put_ratio,
                        puts,
                    }),
                    clients: onesided_clients(self.clients([64, 8, 16]), 2),
                    path: PathOptions::default(),
                };
                let parameters = program.parameters();
                let schedule = self.schedule(Span::from_us(500));
                let job = Job::OneSided(program, schedule);
                self.add(parameters, job, self.with_pcie(vec![KV.id]));
            }
            self.herd_cell((LIST, FEW_QPS, cores), put_ratio, KV.id);
        }
    }

    /// HERD over workers and queue pairs of each.
    fn herd(&mut self) {
        let queues = match self.is_quick() {
            true => &[1, 6][..],
            false => &[1, 2, 3, 4, 5, 6][..],
        };
        for cores in self.cores_of() {
            for qps in queues {
                for list in [1, LIST] {
                    self.herd_cell((list, *qps, cores), HERD_PUTS, HERD.id);
                }
            }
        }
    }

    fn herd_cell(&mut self, serving: (u32, u32, u32), put_ratio: f64, figure: &'static str) {
        let service = Service::Store(StoreLoad {
            items: ITEMS,
            level: Level::Memory,
            value: VALUE,
            put_ratio,
        });
        let clients = self.clients([128, 8, 8]);
        // The table of PCIe has HERD once for each share of PUTs.
        let figures = match figure == KV.id {
            true => self.with_pcie(vec![figure]),
            false => vec![figure],
        };
        self.served(service, serving, clients, None, figures);
    }

    /// Returns when a cell warms up and measures; `of_model` is the time on a model.
    fn schedule(&self, of_model: Span) -> Schedule {
        let measured = match (self.abilities.is_virtual, self.profile) {
            (true, _) => of_model,
            (_, Profile::Quick) => Span::from_ms(200),
            (_, Profile::Full | Profile::Paper) => Span::from_secs(2),
        };
        Schedule {
            // The send queues of a slow NIC fill up.
            warm_up: (measured / 2).max(WARM_UP),
            measured,
        }
    }

    fn add(
        &mut self,
        (program, params): (&'static str, Value),
        job: Job,
        figures: Vec<&'static str>,
    ) {
        let new = Point {
            program,
            params,
            job,
            figures,
        };
        add(&mut self.points, new);
    }
}

/// Clients that post lists of one-sided operations, as far as they have several outstanding.
fn onesided_clients([threads, machines, outstanding]: [u32; 3], qps: u32) -> OneSidedClients {
    OneSidedClients {
        threads,
        machines,
        qps,
        outstanding,
        posting: Posting::of(outstanding.min(16)),
        rd_atomic: RD_ATOMIC,
        timing: Timing::Each,
        seed: 1,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::guidelines::STUDY;
    use crate::programs::{Part, testing::shown};

    const MODEL: Abilities = Abilities {
        cpus: 28,
        switches: 1,
        ..Abilities::MODEL
    };

    #[test]
    fn every_device_with_queue_pairs_fills_all_figures_and_measures_each_cell_once() {
        let all: BTreeSet<&str> = STUDY.figures.iter().map(|figure| figure.id).collect();
        let soft = Abilities {
            is_virtual: false,
            cpus: 2,
            ..MODEL
        };
        for (profile, abilities) in [(Profile::Full, MODEL), (Profile::Quick, soft)] {
            let points = plan(profile, abilities);
            let shown = shown(&points);
            let lacks = all.difference(&shown).copied().collect::<Vec<_>>();
            match abilities.is_virtual {
                true => assert!(lacks.is_empty(), "{lacks:?}"),
                false => assert_eq!(lacks, ["pcie"]),
            }
            let mut cells = BTreeSet::new();
            for point in &points {
                let cell = format!("{} {}", point.program, point.params);
                assert!(cells.insert(cell.clone()), "{cell}");
            }
        }
    }

    #[test]
    fn a_device_with_only_rc_has_reasons_for_the_figures_that_it_lacks() {
        let iwarp = Abilities {
            all_transports: false,
            atomics: false,
            ..MODEL
        };
        let points = plan(Profile::Full, iwarp);
        let shown = shown(&points);
        assert_eq!(shown, BTreeSet::from(["answers", "pcie", "windows"]));
        let reasons = STUDY.left_out(&iwarp).filter_map(|part| match part.what {
            Part::Figure(figure) => Some(figure.id),
            Part::Words(_) => None,
        });
        let all = STUDY.figures.iter().map(|figure| figure.id);
        let lacks: BTreeSet<&str> = all.filter(|id| !shown.contains(id)).collect();
        assert_eq!(reasons.collect::<BTreeSet<_>>(), lacks);
        let rc = |point: &Point| {
            !["uc", "ud"].contains(&point.params["transport"].as_str().unwrap_or("rc"))
        };
        assert!(points.iter().all(rc));
    }

    #[test]
    fn a_device_without_queue_pairs_has_the_cells_over_tcp() {
        let tcp = Abilities {
            queue_pairs: false,
            all_transports: false,
            is_virtual: false,
            ..MODEL
        };
        let points = plan(Profile::Full, tcp);
        assert_eq!(shown(&points), BTreeSet::from(["answers", "ladder"]));
        assert!(points.iter().all(|point| point.params["by"] == "tcp"));
    }

    #[test]
    fn a_server_has_no_more_cores_than_cpus_or_clients() {
        let of = |is_virtual, cpus| {
            let abilities = Abilities {
                is_virtual,
                cpus,
                ..MODEL
            };
            let points = plan(Profile::Full, abilities);
            let cores = points
                .iter()
                .filter_map(|point| point.params["server_cores"].as_u64());
            cores.max()
        };
        assert_eq!(of(true, 28), Some(14));
        assert_eq!(of(true, 4), Some(4));
        assert_eq!(of(false, 64), Some(2));
    }
}
