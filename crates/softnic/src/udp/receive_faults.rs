//! Fault injection on received datagrams, for tests: a closure decides the fate of each.

use std::net::SocketAddr;

use super::rx_batch::{Datagram, Icrc};

/// The fate of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Pass,
    /// It is lost.
    Lose,
    /// It arrives twice.
    Repeat,
    /// It arrives after this number of its successors.
    Delay(u32),
    /// The bit of this number, modulo its length, is flipped.
    Damage(usize),
}

type Rule = Box<dyn FnMut(&[u8]) -> Fate + Send>;

/// A delayed datagram.
struct Held {
    left: u32,
    from: SocketAddr,
    to: SocketAddr,
    place: u16,
    icrc: Icrc,
    bytes: Vec<u8>,
}

/// The closure, and the datagrams that it delayed.
#[derive(Default)]
pub(super) struct ReceiveFaults {
    rule: Option<Rule>,
    held: Vec<Held>,
}

impl std::fmt::Debug for ReceiveFaults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveFaults")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl ReceiveFaults {
    pub(super) fn follow(&mut self, rule: Rule) {
        self.rule = Some(rule);
    }

    pub(super) fn pass<'a>(
        &mut self,
        datagrams: impl Iterator<Item = Datagram<'a>>,
        mut take: impl FnMut(Datagram<'_>),
    ) {
        for datagram in datagrams {
            match self
                .rule
                .as_mut()
                .map_or(Fate::Pass, |rule| rule(datagram.bytes))
            {
                Fate::Pass => take(datagram),
                Fate::Lose => {}
                Fate::Repeat => {
                    take(datagram);
                    take(datagram);
                }
                Fate::Delay(left) => {
                    self.held.push(Held {
                        left,
                        from: datagram.from,
                        to: datagram.to,
                        place: datagram.place,
                        icrc: datagram.icrc,
                        bytes: datagram.bytes.to_vec(),
                    });
                    continue;
                }
                Fate::Damage(bit) => {
                    let mut bytes = datagram.bytes.to_vec();
                    let bit = bit % (bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    take(Datagram {
                        icrc: Icrc::Unchecked,
                        bytes: &bytes,
                        ..datagram
                    });
                }
            }
            self.release(&mut take);
        }
    }

    fn release(&mut self, take: &mut impl FnMut(Datagram<'_>)) {
        self.held
            .iter_mut()
            .for_each(|held| held.left = held.left.saturating_sub(1));
        for held in self.held.extract_if(.., |held| held.left == 0) {
            take(Datagram {
                from: held.from,
                to: held.to,
                place: held.place,
                icrc: held.icrc,
                bytes: &held.bytes,
            });
        }
    }
}
