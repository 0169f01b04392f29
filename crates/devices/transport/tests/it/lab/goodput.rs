//! How much payload a connection carries over a link that loses packets, in virtual time.

use std::fmt::Write;

use adverb_transport::{RcQp, ReceiveQueue, SendWork, Work};
use adverb_units::Span;
use adverb_verbs::{AckTimeout, PathMtu, SendFlags, Srqn, WcStatus, WrId};

use super::memory::{REMOTE, piece};
use super::network::{AnyQp, At, Host, Network, To};
use super::{Delivery, Random, Side, TestMemory, config};

/// What a byte takes on the link: 10 Gbit/s.
const BYTE: Span = Span::from_ps(800);
/// Requests that the program keeps in flight.
const DEPTH: usize = 16;
const LONG_DEPTH: usize = 100;
/// One-way time of a long path.
const LONG_FLIGHT: Span = Span::from_ms(1);
/// 4.096 µs × 2^10 = 4.2 ms.
const LONG_TIMEOUT: u8 = 10;
/// 4.096 µs × 2^6 = 262 µs.
pub const TIMEOUT: u8 = 6;
/// Bytes that are carried for a figure, at least in `MESSAGES` messages.
const BYTES: usize = 8 << 20;
const LONG_BYTES: usize = 128 << 20;
const MESSAGES: usize = 32;

/// Packets lost, of 10 000.
pub const LOSSES: [u64; 5] = [0, 10, 100, 300, 1000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write,
    Read,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub kind: Kind,
    pub mtu: PathMtu,
    /// Packets that may be in flight.
    pub window: u32,
    /// Bytes of a message.
    pub size: usize,
    /// Maximum number of packets in flight over a path of 1 ms. `None`: the path takes [`FLIGHT`](super::FLIGHT), and the
    /// window stays.
    pub long: Option<u32>,
}

/// All rows.
pub fn rows() -> Vec<Row> {
    let mut rows = vec![];
    for kind in [Kind::Write, Kind::Read] {
        for mtu in [PathMtu::B1024, PathMtu::B4096] {
            for window in [4, 16, 64] {
                for size in [1 << 10, 16 << 10, 1 << 20] {
                    rows.push(Row {
                        kind,
                        mtu,
                        window,
                        size,
                        long: None,
                    });
                }
            }
        }
    }
    rows
}

impl Row {
    /// Gbit/s of payload while every packet, whatever it is, is lost with the same probability.
    pub fn goodput(&self, loss: u64) -> f64 {
        let bytes = self.long.map_or(BYTES, |_| LONG_BYTES);
        let count = (bytes / self.size).max(MESSAGES);
        let mut network = self.network(loss);
        let from = At { host: 0, qp: 0 };
        let mut posted = 0;
        loop {
            let done = network.station(from).completions.len();
            while posted < count && posted < done + self.depth() {
                let work = self.work(posted as u64);
                network.post(from, work, To::Peer).expect("there is room");
                posted += 1;
            }
            if done == count {
                break;
            }
            assert!(network.step(), "it stands still");
        }
        let station = network.station(from);
        let failed = |c: &&adverb_transport::Completion| c.work.status != WcStatus::Success;
        assert_eq!(station.completions.iter().find(failed), None);
        (8 * count * self.size) as f64 / network.now.as_ps() as f64 * 1e3
    }

    /// Requests that the program keeps in flight.
    fn depth(&self) -> usize {
        self.long.map_or(DEPTH, |_| LONG_DEPTH)
    }

    pub fn work(&self, id: u64) -> SendWork {
        SendWork {
            wr_id: WrId(id),
            work: match self.kind {
                Kind::Write => Work::Write(REMOTE),
                Kind::Read => Work::Read(REMOTE),
            },
            payload: piece(0, self.size),
            flags: SendFlags::SIGNALED,
            remote_srqn: Srqn(0),
        }
    }

    /// Two hosts with a queue pair each; the network between them loses `loss` packets of 10 000.
    pub fn network(&self, loss: u64) -> Network {
        let ends = [0, 1].map(|host| At { host, qp: 0 });
        let timeout = self.long.map_or(TIMEOUT, |_| LONG_TIMEOUT);
        let hosts = [(Side::A, 0, 1), (Side::B, 1, 0)].map(|(side, own, peer)| {
            let mut config = config(side);
            (config.qpn, config.peer) = (ends[own].qpn(), ends[peer].qpn());
            config.path_mtu = self.mtu;
            config.requester.window = self.window;
            config.requester.max_window = self.long.unwrap_or(self.window);
            config.requester.max_work = self.depth();
            config.requester.max_reads = DEPTH as u8;
            config.responder.max_reads = DEPTH as u8;
            config.requester.retry.timeout = AckTimeout::new(timeout).unwrap();
            let qp = RcQp::new(&config, ReceiveQueue::new(1));
            let memory = TestMemory::sized(self.size, self.size);
            Host::new(memory, vec![AnyQp::Rc(Box::new(qp), ends[peer])])
        });
        let mut random = Random::new(1);
        let delivery = move || match random.below(10_000) < loss {
            true => Delivery::Drop,
            false => Delivery::Pass,
        };
        let mut network = Network::new(hosts.into(), Box::new(delivery));
        network.byte = Some(BYTE);
        if self.long.is_some() {
            network.flight = LONG_FLIGHT;
        }
        network
    }
}

/// Every row, with its goodput at each of [`LOSSES`].
pub fn figures() -> Vec<(Row, Vec<f64>)> {
    let row = |row: Row| {
        let goodput = LOSSES.iter().map(|&loss| row.goodput(loss));
        (row, goodput.collect())
    };
    rows().into_iter().map(row).collect()
}

/// Figures as text.
pub fn table(figures: &[(Row, Vec<f64>)]) -> String {
    let mut table = String::from("kind   MTU  window  message  ");
    for loss in LOSSES {
        write!(table, "{:>7} %", loss as f64 / 100.).unwrap();
    }
    for (row, goodput) in figures {
        let kind = format!("{:?}", row.kind).to_uppercase();
        let (mtu, kib) = (row.mtu.bytes().get(), row.size >> 10);
        let window = row.window;
        write!(table, "\n{kind:<5} {mtu:>4}  {window:>6}  {kib:>4} KiB ").unwrap();
        for figure in goodput {
            write!(table, "{figure:>9.2}").unwrap();
        }
    }
    table
}
