//! Random operations of several hosts over RC, UC and UD in virtual time, while packets are lost,
//! repeated, delayed, reordered and damaged; and checks of the outcome.
#![allow(dead_code, unreachable_pub)]

pub mod hostile;
pub mod layout;
pub mod loose;
pub mod reliable;
pub mod target;

use std::collections::VecDeque;

use adverb_transport::SendWork;
use adverb_units::Span;
use adverb_verbs::{PathMtu, QpState};

use crate::lab::network::{AnyQp, At, Network, To};
use crate::lab::{Delivery, Random};
use layout::Layout;
pub use layout::{Path, Space};
use loose::{Inbox, Loose, Service};
use reliable::Reliable;

/// Words at the beginning of each host's shared memory that all add to.
pub const TICKETS: u64 = 4;
/// The queue key of all datagram queue pairs.
pub const QKEY: u32 = 0x1111;

/// How many packets of 1000 have which delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub drop: u64,
    pub duplicate: u64,
    pub delay: u64,
    pub corrupt: u64,
}

impl Faults {
    pub fn of(random: &mut Random) -> Self {
        let mut rate = |most| match random.below(3) {
            0 => 0,
            _ => random.below(most),
        };
        Faults {
            drop: rate(60),
            duplicate: rate(100),
            delay: rate(150),
            corrupt: rate(40),
        }
    }

    /// Whether a packet may arrive twice, or after a later one.
    fn disorders(&self) -> bool {
        self.duplicate != 0 || self.delay != 0
    }

    fn deciding(self, mut random: Random) -> Box<dyn FnMut() -> Delivery> {
        Box::new(move || {
            let later = Span::from_ns(random.below(60_000));
            if random.chance(self.drop) {
                Delivery::Drop
            } else if random.chance(self.corrupt) {
                Delivery::Corrupt(random.number() as usize)
            } else if random.chance(self.duplicate) {
                Delivery::Duplicate(later)
            } else if random.chance(self.delay) {
                Delivery::Delay(later)
            } else {
                Delivery::Pass
            }
        })
    }
}

/// What one queue pair still has to post.
struct Left {
    from: At,
    work: VecDeque<(SendWork, To)>,
    /// Whether all is posted that there is room for; else one request a step.
    eager: bool,
}

/// A run of one seed, to its end.
pub struct Run {
    pub network: Network,
    pub faults: Faults,
    reliable: Vec<Reliable>,
    loose: Vec<Loose>,
    inboxes: Vec<Inbox>,
    left: Vec<Left>,
}

/// Totals over several runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Operations over RC.
    pub reliable: u64,
    /// Messages over UC and UD.
    pub loose: u64,
    pub packets: u64,
    pub resent: u64,
    pub duplicates: u64,
    pub rnr_naks: u64,
    pub damaged: u64,
    pub timeouts: u64,
    /// Messages of UC and UD that did not arrive.
    pub lost: u64,
}

impl Sums {
    pub fn add(&mut self, other: &Sums) {
        self.reliable += other.reliable;
        self.loose += other.loose;
        self.packets += other.packets;
        self.resent += other.resent;
        self.duplicates += other.duplicates;
        self.rnr_naks += other.rnr_naks;
        self.damaged += other.damaged;
        self.timeouts += other.timeouts;
        self.lost += other.lost;
    }
}

impl Run {
    /// Makes a run up: two to four hosts, each service between some of them, and so many operations
    /// for each direction.
    pub fn new(operations: usize, mut random: Random, deliveries: Random) -> Self {
        let random = &mut random;
        let faults = Faults::of(random);
        let mtus = [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B4096];
        let hosts = 2 + random.below(3) as usize;
        let mut layout = Layout::new(hosts, mtus[random.below(4) as usize]);
        let rc: Vec<_> = (0..1 + random.below(3))
            .flat_map(|_| layout.connect_rc(random))
            .collect();
        let uc: Vec<_> = (0..random.below(3))
            .flat_map(|_| layout.connect_uc(random))
            .collect();
        let ud: Vec<_> = (0..hosts * random.below(2) as usize)
            .map(|host| layout.add_ud(host, random))
            .collect();

        let spaces = &mut layout.spaces;
        let reliable: Vec<_> = rc
            .into_iter()
            .map(|path| Reliable::new(path, operations, spaces, random))
            .collect();
        let mut loose: Vec<_> = uc
            .into_iter()
            .map(|path| Loose::new(Service::Uc(path.to), path.from, operations, spaces, random))
            .collect();
        let longest = layout.mtu.bytes().get();
        for &from in &ud {
            let service = Service::Ud {
                all: ud.clone(),
                longest,
            };
            loose.push(Loose::new(service, from, operations, spaces, random));
        }
        let inboxes = Inbox::all(&loose, spaces, random);

        let mut network = Network::new(layout.build(), faults.deciding(deliveries));
        for direction in &reliable {
            direction.post_receives(&mut network, random);
        }
        for inbox in &inboxes {
            inbox.post(&mut network, random);
        }
        let mut run = Run {
            network,
            faults,
            reliable,
            loose,
            inboxes,
            left: vec![],
        };
        run.left = run.all_work();
        run
    }

    fn all_work(&self) -> Vec<Left> {
        let reliable = self.reliable.iter().map(|direction| Left {
            from: direction.path.from,
            work: direction.work().map(|work| (work, To::Peer)).collect(),
            eager: true,
        });
        let loose = self.loose.iter().map(|sender| Left {
            from: sender.from,
            work: sender.work().collect(),
            eager: false,
        });
        reliable.chain(loose).collect()
    }

    /// Runs until all is done.
    pub fn finish(&mut self) {
        let limit = Span::from_secs(50).as_ps();
        loop {
            self.post();
            if !self.network.step() && self.left.iter().all(|left| left.work.is_empty()) {
                break;
            }
            assert!(self.network.now.as_ps() < limit, "it hangs");
        }
    }

    fn post(&mut self) {
        for left in &mut self.left {
            while let Some((work, to)) = left.work.front() {
                if self.network.post(left.from, work.clone(), *to).is_err() {
                    break;
                }
                left.work.pop_front();
                if !left.eager {
                    break;
                }
            }
        }
    }

    /// Whether a connection ended, as it does after too many losses in a row.
    pub fn has_failed(&self) -> bool {
        let stations = self.network.hosts.iter().flat_map(|host| &host.stations);
        stations
            .into_iter()
            .any(|s| matches!(&s.qp, AnyQp::Rc(qp, _) if qp.state() == QpState::Err))
    }

    /// Checks that every operation has its required outcome.
    pub fn check(&self) {
        for direction in &self.reliable {
            direction.check(&self.network);
        }
        reliable::check_tickets(&self.reliable, &self.network);
        for sender in &self.loose {
            sender.check_sends(&self.network);
            sender.check_writes(&self.network, &self.faults);
        }
        for inbox in &self.inboxes {
            inbox.check(&self.loose, &self.network, &self.faults);
        }
        for host in &self.network.hosts {
            assert!(host.memory.spare.is_empty(), "keys that nobody ended");
        }
    }

    pub fn sums(&self) -> Sums {
        let mut sums = Sums {
            reliable: self.reliable.iter().map(Reliable::count).sum::<usize>() as u64,
            packets: self.network.packets,
            ..Sums::default()
        };
        for host in &self.network.hosts {
            sums.damaged += host.damaged;
            for station in &host.stations {
                let counters = station.qp.counters();
                sums.resent += counters.resent;
                sums.duplicates += counters.duplicates;
                sums.rnr_naks += counters.rnr_naks;
                sums.timeouts += counters.timeouts;
            }
        }
        for sender in &self.loose {
            sums.loose += sender.count() as u64;
        }
        for inbox in &self.inboxes {
            let (sent, received) = inbox.sent_and_received(&self.loose, &self.network);
            sums.lost += sent.saturating_sub(received) as u64;
        }
        sums
    }
}
