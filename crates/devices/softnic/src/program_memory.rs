//! Memory that the program already has: whether it may be registered.

use std::io;
use std::ops::Range;
use std::ptr::null_mut;

use adverb_verbs::AccessFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::pages::maps::{self, Mapped};

/// Checks that this process has `range`, and may read it, and write it if `access` has LOCAL_WRITE. Fails with
/// `EFAULT` otherwise, as `ibv_reg_mr` does.
///
/// All its pages are faulted in, so that no page fault occurs during a measurement.
pub(crate) fn fault_in(range: &Range<u64>, access: AccessFlags) -> io::Result<()> {
    let writes = access.contains(AccessFlags::LOCAL_WRITE);
    let advice = if writes {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    let fault = io::Error::from(Errno::FAULT);
    let page = page_size();
    let start = range.start / page * page;
    let Some(end) = range.end.checked_next_multiple_of(page) else {
        return Err(fault);
    };
    let length = usize::try_from(end - start).map_err(|_| Errno::FAULT)?;
    // SAFETY: populating page tables changes the contents of no page.
    let populated = unsafe {
        let start = std::ptr::with_exposed_provenance_mut(start as usize);
        madvise(start, length, advice)
    };
    // SAFETY: an empty range; this only asks whether the kernel (5.14 or later) knows the advice.
    let is_known = || unsafe { madvise(null_mut(), 0, advice) }.is_ok();
    match populated {
        Ok(()) => Ok(()),
        Err(_) if is_known() => Err(fault),
        Err(_) => {
            let needed = if writes { "rw" } else { "r" };
            is_mapped(range, needed)?.then_some(()).ok_or(fault)
        }
    }
}

/// Returns the size of a page.
pub(crate) fn page_size() -> u64 {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Whether mappings of this process that have the permissions `needed` contain all of `range`.
fn is_mapped(range: &Range<u64>, needed: &str) -> io::Result<bool> {
    let mut next = range.start;
    maps::visit(|mapped| next = end_of_mapped(next, mapped, needed))?;
    Ok(next >= range.end)
}

/// Returns the end of `mapped`, if it contains the address `next` and has the permissions `needed`; otherwise `next`.
fn end_of_mapped(next: u64, mapped: &Mapped<'_>, needed: &str) -> u64 {
    let contains = (mapped.start..mapped.end).contains(&next);
    match contains && mapped.permissions.starts_with(needed.as_bytes()) {
        true => mapped.end,
        false => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-4000 rw-s 00000000 00:00 0                          /dev/shm/x
4000-5000 r--p 00000000 00:00 0
6000-7000 rw-p 00000000 00:00 0                          [heap]
";

    #[test]
    fn a_range_has_to_be_mapped_without_gaps_and_with_the_permissions() {
        for (range, needed, expected) in [
            (0x1000..0x1001, "rw", true),
            (0x1fff..0x4000, "rw", true),
            (0x1000..0x4001, "rw", false),
            (0x1000..0x5000, "r", true),
            (0x4fff..0x5001, "r", false),
            (0x4fff..0x6001, "r", false),
            (0x5000..0x5001, "r", false),
            (0x0fff..0x1001, "r", false),
            (0x6000..0x7000, "rw", true),
            (0x6000..0x7001, "rw", false),
        ] {
            let mapped = (MAPS.lines()).map(|line| Mapped::parse(line.as_bytes()).unwrap());
            let end = mapped.fold(range.start, |next, mapped| {
                end_of_mapped(next, &mapped, needed)
            });
            assert_eq!(end >= range.end, expected, "{range:x?} {needed}");
        }
    }

    #[test]
    fn the_listed_mappings_agree_with_what_the_kernel_faults_in() {
        let local = 0u64;
        let at = (&raw const local).addr() as u64;
        for (range, access) in [
            (at..at + 8, AccessFlags::LOCAL_WRITE),
            (1..9, AccessFlags::empty()),
        ] {
            let listed = is_mapped(&range, "r").unwrap();
            assert_eq!(fault_in(&range, access).is_ok(), listed, "{range:x?}");
        }
    }
}
