//! The interconnect between the sockets: bandwidth in each direction, which DMA, the threads of a load and workers share.

use adverb_units::{Span, Time};

use crate::host::demand::Used;
use crate::host::pcie::LINE;
use crate::rate::ns;
use crate::resource::Server;

/// Largest share of the time of a direction that the threads of a load get while DMA needs it.
const MAX_LOAD_SHARE: f64 = 0.9;

/// The direction in which data cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    ToNic = 0,
    FromNic = 1,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    dma: Server,
    /// Share of its time that the load uses.
    share: f64,
    /// How long another line waits for lines of the load.
    queueing: Span,
}

#[derive(Debug)]
pub(crate) struct Interconnect {
    line: Span,
    directions: [Direction; 2],
}

impl Interconnect {
    /// A line occupies a direction for `line`.
    pub(crate) fn new(line: Span) -> Self {
        Interconnect {
            line,
            directions: Default::default(),
        }
    }

    pub(crate) fn line(&self) -> Span {
        self.line
    }

    /// Threads use a direction from now on.
    pub(crate) fn load(&mut self, crossing: Crossing, used: Used) {
        let direction = &mut self.directions[crossing as usize];
        direction.share = (direction.share + used.share).min(MAX_LOAD_SHARE);
        direction.queueing += used.crossing;
    }

    /// Returns how long a line waits for lines of the load.
    pub(crate) fn queueing(&self, crossing: Crossing) -> Span {
        self.directions[crossing as usize].queueing
    }

    /// DMA carries `bytes` across at `at`, in the time that the load leaves. Returns how long they wait for earlier ones.
    pub(crate) fn carry(&mut self, crossing: Crossing, bytes: u64, at: Time) -> Span {
        let direction = &mut self.directions[crossing as usize];
        let lines = bytes.div_ceil(LINE) as f64;
        let span = ns(self.line.as_ns_f64() * lines / (1.0 - direction.share));
        direction.dma.begin(at, span) - at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(share: f64) -> Used {
        Used {
            crossing: Span::from_ns(7),
            share,
            ..Used::default()
        }
    }

    #[test]
    fn a_load_delays_dma_in_its_direction_only_and_leaves_it_a_share() {
        let at = Time::ZERO;
        let (line, second) = (Span::from_ns(2), |link: &mut Interconnect, way| {
            link.carry(way, 640, at);
            link.carry(way, 64, at)
        });
        let mut link = Interconnect::new(line);
        assert_eq!(second(&mut link, Crossing::ToNic), line * 10);
        let mut link = Interconnect::new(line);
        link.load(Crossing::ToNic, used(0.5));
        assert_eq!(second(&mut link, Crossing::ToNic), line * 20);
        assert_eq!(second(&mut link, Crossing::FromNic), line * 10);
        assert_eq!(link.queueing(Crossing::ToNic), Span::from_ns(7));
        assert_eq!(link.queueing(Crossing::FromNic), Span::ZERO);
        let mut link = Interconnect::new(line);
        (0..9).for_each(|_| link.load(Crossing::ToNic, used(0.5)));
        let all = second(&mut link, Crossing::ToNic).as_ns_f64();
        assert!((all / (line * 100).as_ns_f64() - 1.0).abs() < 1e-6, "{all}");
    }
}
