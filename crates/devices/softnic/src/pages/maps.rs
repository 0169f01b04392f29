//! Reads `/proc/self/maps`.

use std::fs::File;
use std::io::{self, Read};

/// A mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// As in `rw-p`.
    pub(crate) permissions: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    pub(crate) name: &'a [u8],
}

impl<'a> Mapped<'a> {
    /// Parses a line.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = split(fields.next()?, b'-')?;
        let permissions = fields.next()?;
        let offset = number(fields.next()?, 16)?;
        let _device = fields.next()?;
        let inode = number(fields.next()?, 10)?;
        Some(Mapped {
            start: number(start, 16)?,
            end: number(end, 16)?,
            permissions,
            offset,
            inode,
            name: fields.next().unwrap_or_default().trim_ascii_start(),
        })
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.permissions.get(3) == Some(&b's')
    }

    /// Returns the protection, as `mmap` takes it.
    pub(crate) fn protection(&self) -> libc::c_int {
        let flags = [
            (b'r', libc::PROT_READ),
            (b'w', libc::PROT_WRITE),
            (b'x', libc::PROT_EXEC),
        ];
        let given = flags
            .iter()
            .filter(|(letter, _)| self.permissions.contains(letter));
        given.fold(libc::PROT_NONE, |all, (_, flag)| all | flag)
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// Passes all mappings of this process to `visit`, in ascending order.
///
/// It does not allocate memory, because the child of a fork must not write to pages that it still shares.
pub(crate) fn visit(visit: impl FnMut(&Mapped<'_>)) -> io::Result<()> {
    visit_lines(File::open("/proc/self/maps")?, visit)
}

#[inline(never)] // the buffer would be in the callers' frames, too
fn visit_lines(mut from: impl Read, mut visit: impl FnMut(&Mapped<'_>)) -> io::Result<()> {
    // A line is 73 characters and a path of at most 4096. Newlines in it take four characters each; the rest of a line that
    // is too long then is not a mapping. Small, because a program's thread may have a stack of 16 KiB.
    let mut buffer = [0; 4500];
    let mut filled = 0;
    loop {
        let count = from.read(&mut buffer[filled..])?;
        filled += count;
        let mut rest = &buffer[..filled];
        while let Some((line, after)) = split(rest, b'\n') {
            if let Some(mapped) = Mapped::parse(line) {
                visit(&mapped);
            }
            rest = after;
        }
        if rest.len() == buffer.len() {
            if let Some(mapped) = Mapped::parse(rest) {
                visit(&mapped);
            }
            rest = &[];
        }
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
        if count == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
1000-3000 rw-p 00000000 00:00 0
7ffe1000-7ffe4000 r-xs 00002000 00:01 2051                       /memfd:a b (deleted)
7fff0000-7fff1000 ---p 00000000 00:00 0                          [stack]
";

    /// Returns a few bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = into.len().min(7);
            self.0.read(&mut into[..count])
        }
    }

    #[test]
    fn each_line_is_a_mapping_wherever_the_file_is_cut() {
        let mut seen = Vec::new();
        visit_lines(Slow(MAPS), |mapped| {
            let name = String::from_utf8_lossy(mapped.name).into_owned();
            let (range, protection) = (mapped.start..mapped.end, mapped.protection());
            seen.push((range, protection, mapped.is_shared(), name));
            assert_eq!(mapped.offset != 0, mapped.inode == 2051);
        })
        .unwrap();
        let expected = [
            (0x1000..0x3000, 3, false, String::new()),
            (
                0x7ffe_1000..0x7ffe_4000,
                5,
                true,
                "/memfd:a b (deleted)".into(),
            ),
            (0x7fff_0000..0x7fff_1000, 0, false, "[stack]".into()),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no /proc")]
    fn the_mappings_of_this_process_contain_its_variables() {
        let local = 0u8;
        let at = (&raw const local).addr() as u64;
        let mut found = 0;
        visit(|mapped| found += u32::from((mapped.start..mapped.end).contains(&at))).unwrap();
        assert_eq!(found, 1);
    }
}
