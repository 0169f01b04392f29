//! Memory regions with their bytes, found by key.

use adverb_sim::Condition;
use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, RegisterError};
use smallvec::SmallVec;

use crate::host::pages::Pages;
use crate::ids::MachineId;

/// Bits of a key that are the region's index; the others change with each registration.
const INDEX_BITS: u32 = 16;
/// Alignment of regions.
const PAGE: u64 = 4096;

pub(crate) struct Region {
    pub(crate) key: u32,
    pub(crate) addr: u64,
    pub(crate) bytes: Pages,
    access: AccessFlags,
    pd: u32,
    /// Number of its first page among all pages that were ever registered.
    first_page: u32,
    /// Signaled when the NIC has written to the region. `None` until a role waits for that.
    pub(crate) changed: Option<Condition>,
}

pub(crate) struct Memory {
    regions: Vec<Option<Region>>,
    free: Vec<u32>,
    next_addr: u64,
    generation: u32,
    /// Bytes that one translation covers.
    page: u64,
    next_page: u32,
}

/// The memory and the rights that an access needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) key: u32,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) pd: u32,
    pub(crate) access: AccessFlags,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalSge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) key: u32,
}

/// The scatter/gather list of a request; most have one element.
pub(crate) type SgList = SmallVec<[LocalSge; 1]>;

/// The ranges of memory that a scatter/gather list refers to.
pub(crate) type Ranges = SmallVec<[Range; 1]>;

/// A range of a region that may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) region: u32,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl Range {
    /// Whether two ranges of a machine's memory have bytes in common.
    pub(crate) fn overlaps(self, other: Range) -> bool {
        let (end, other_end) = (self.offset + self.length, other.offset + other.length);
        self.region == other.region && self.offset < other_end && other.offset < end
    }
}

impl Memory {
    pub(crate) fn new(machine: MachineId, page: u64) -> Self {
        Memory {
            regions: Vec::new(),
            free: Vec::new(),
            // Machines have disjoint addresses, so that using another machine's is an error.
            next_addr: (u64::from(machine.0) + 1) << 40,
            generation: 0,
            page: page.max(1),
            next_page: 0,
        }
    }

    pub(crate) fn register(
        &mut self,
        length: u64,
        access: AccessFlags,
        pd: u32,
    ) -> Result<u32, RegisterError> {
        let index = self.free.pop().unwrap_or(self.regions.len() as u32);
        if index >> INDEX_BITS != 0 {
            return Err(RegisterError::Exhausted {
                limit: 1 << INDEX_BITS,
            });
        }
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        let is_too_long = |_| RegisterError::Memory {
            length: Bytes::new(length),
            place: "this process, which holds the model's memory".into(),
            source: std::io::ErrorKind::OutOfMemory.into(),
            remedy: "use smaller buffers or fewer machines".into(),
        };
        // The pages themselves cannot be refused.
        Vec::<u8>::new()
            .try_reserve_exact(size)
            .map_err(is_too_long)?;
        let bytes = Pages::new(size);
        self.generation = self.generation % 0x7fff + 1;
        let region = Region {
            key: self.generation << INDEX_BITS | index,
            addr: self.next_addr,
            bytes,
            access,
            pd,
            first_page: self.next_page,
            changed: None,
        };
        self.next_page += length.div_ceil(self.page) as u32;
        self.next_addr += (length.next_multiple_of(PAGE)) + PAGE;
        if index as usize == self.regions.len() {
            self.regions.push(Some(region));
        } else {
            self.regions[index as usize] = Some(region);
        }
        Ok(index)
    }

    pub(crate) fn deregister(&mut self, index: u32) {
        self.regions[index as usize] = None;
        self.free.push(index);
    }

    /// Returns a region whose handle exists.
    ///
    /// # Panics
    /// If the region was deregistered, which the handle does when it is dropped.
    #[inline]
    pub(crate) fn region(&mut self, index: u32) -> &mut Region {
        self.regions[index as usize]
            .as_mut()
            .expect("a region lives as long as its handle")
    }

    /// Returns the requested range if it is within the key's region and the access rights suffice.
    #[inline]
    pub(crate) fn find(&self, asked: &Asked) -> Option<Range> {
        let index = asked.key & ((1 << INDEX_BITS) - 1);
        let region = self.regions.get(index as usize)?.as_ref()?;
        let offset = asked.addr.wrapping_sub(region.addr);
        let size = region.bytes.len() as u64;
        let fits = offset <= size && asked.length <= size - offset;
        let allowed = region.access.contains(asked.access) && region.pd == asked.pd;
        (region.key == asked.key && fits && allowed).then_some(Range {
            region: index,
            offset: offset as usize,
            length: asked.length as usize,
        })
    }

    /// Returns the ranges of a scatter/gather list; `None` if one of them may not be accessed.
    #[inline]
    pub(crate) fn ranges(
        &self,
        sg_list: &[LocalSge],
        pd: u32,
        access: AccessFlags,
    ) -> Option<Ranges> {
        let find = |sge: &LocalSge| {
            self.find(&Asked {
                key: sge.key,
                addr: sge.addr,
                length: sge.length.into(),
                pd,
                access,
            })
        };
        if let [sge] = sg_list
            && sge.length > 0
        {
            return Some(Ranges::from_buf([find(sge)?]));
        }
        let used = sg_list.iter().filter(|sge| sge.length > 0);
        used.map(find).collect()
    }

    /// Returns the pages of a range that is not empty.
    #[inline]
    pub(crate) fn pages(&self, range: Range) -> std::ops::Range<u32> {
        let first = self.regions[range.region as usize]
            .as_ref()
            .map_or(0, |region| region.first_page);
        let page = |offset: usize| match offset as u64 {
            // The usual case, without a division.
            offset if offset < self.page => first,
            offset => first + (offset / self.page) as u32,
        };
        page(range.offset)..page(range.offset + range.length - 1) + 1
    }

    /// Returns the bytes of a range, unless its region was deregistered.
    #[inline]
    pub(crate) fn bytes(&self, range: Range) -> Option<&[u8]> {
        let region = self.regions[range.region as usize].as_ref()?;
        region.bytes.get(range.offset, range.length)
    }

    /// As [`Memory::bytes`], to change them.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, range: Range) -> Option<&mut [u8]> {
        let region = self.regions[range.region as usize].as_mut()?;
        region.bytes.get_mut(range.offset, range.length)
    }

    /// Whether a range is known to contain only zeros.
    pub(crate) fn is_zero(&self, range: Range) -> bool {
        let region = self.regions[range.region as usize].as_ref();
        region.is_some_and(|region| region.bytes.are_zero_from(range.offset))
    }

    /// Appends the bytes of an element to `buffer` without checking its key. If no region contains them, appends
    /// nothing.
    pub(crate) fn append(&self, sge: LocalSge, buffer: &mut Vec<u8>) {
        let (addr, length) = (sge.addr, u64::from(sge.length));
        let holds = |region: &&Region| {
            let offset = addr.wrapping_sub(region.addr);
            offset <= region.bytes.len() as u64 && length <= region.bytes.len() as u64 - offset
        };
        // Regions are disjoint; usually the key is the right one.
        let index = sge.key & ((1 << INDEX_BITS) - 1);
        let by_key = self.regions.get(index as usize).and_then(Option::as_ref);
        let mut all = self.regions.iter().flatten();
        if let Some(region) = by_key.filter(holds).or_else(|| all.find(holds)) {
            let offset = (addr - region.addr) as usize;
            let bytes = region.bytes.get(offset, length as usize);
            buffer.extend_from_slice(bytes.unwrap_or_default());
        }
    }

    /// The condition of roles that wait for a change of the region.
    #[inline]
    pub(crate) fn watcher(&self, range: Range) -> Option<Condition> {
        self.regions[range.region as usize].as_ref()?.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ranges_rights_and_domains_are_checked() {
        let mut memory = Memory::new(MachineId(0), 4096);
        let write = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let index = memory.register(100, write, 7).unwrap();
        let region = memory.region(index);
        let good = Asked {
            key: region.key,
            addr: region.addr + 90,
            length: 10,
            pd: 7,
            access: AccessFlags::REMOTE_WRITE,
        };
        assert!(memory.find(&good).is_some());
        let spoil: [fn(&mut Asked); 7] = [
            |asked| asked.length = 11,
            |asked| asked.addr -= 91,
            |asked| asked.addr = u64::MAX,
            |asked| asked.pd = 8,
            |asked| asked.key += 1 << INDEX_BITS,
            |asked| asked.key += 1,
            |asked| asked.access = AccessFlags::REMOTE_READ,
        ];
        for spoil in spoil {
            let mut bad = good;
            spoil(&mut bad);
            assert_eq!(memory.find(&bad), None, "{bad:?}");
        }
        memory.deregister(index);
        assert_eq!(memory.find(&good), None);
        memory.register(100, write, 7).unwrap();
        assert_eq!(memory.find(&good), None, "an old key");
    }
}
