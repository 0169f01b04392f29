//! An IOMMU, which translates the addresses that devices use.
//!
//! It caches translations in an IOTLB. On a miss it walks the page tables, a few walks at a time.

use adverb_units::{Span, Time};

use crate::params::IommuParams;
use crate::resource::{Cache, Slots};

#[derive(Debug)]
pub(crate) struct Iommu {
    page: u64,
    iotlb: Cache,
    walks: Slots,
    walk: Span,
}

impl Iommu {
    /// An IOMMU with an empty IOTLB; `random` is the seed of its replacement.
    pub(crate) fn new(params: &IommuParams, random: u64) -> Self {
        Iommu {
            page: params.page_bytes.into(),
            iotlb: Cache::new(params.tlb_entries as usize, random),
            walks: Slots::new(params.walks as usize),
            walk: params.walk_read_ns * u64::from(params.walk_levels),
        }
    }

    /// Returns how long a request for `address` that arrives at `at` waits for its translation.
    pub(crate) fn translate(&mut self, at: Time, address: u64) -> Span {
        let page = u32::try_from(address / self.page).unwrap_or(u32::MAX);
        if self.iotlb.access(page) {
            return Span::ZERO;
        }
        let begin = self.walks.admit(at);
        self.walks.occupy(begin + self.walk);
        begin + self.walk - at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iommu() -> Iommu {
        let params = IommuParams {
            page_bytes: 4096,
            tlb_entries: 64,
            walk_levels: 4,
            walk_read_ns: Span::from_ns(50),
            walks: 2,
        };
        Iommu::new(&params, 5)
    }

    #[test]
    fn pages_that_fit_the_iotlb_are_walked_once() {
        let mut iommu = iommu();
        let at = Time::ZERO;
        for address in (0..64 * 4096).step_by(4096) {
            iommu.translate(at, address);
        }
        let later = at + Span::from_us(100);
        for address in (0..64 * 4096).step_by(64) {
            assert_eq!(iommu.translate(later, address), Span::ZERO);
        }
    }

    #[test]
    fn concurrent_walks_are_limited() {
        let mut iommu = iommu();
        let waits = [0, 1, 2, 3, 4].map(|page| iommu.translate(Time::ZERO, page * 4096));
        let walk = Span::from_ns(200);
        assert_eq!(waits, [walk, walk, walk * 2, walk * 2, walk * 3]);
        assert_eq!(iommu.translate(Time::ZERO, 5), Span::ZERO);
    }
}
