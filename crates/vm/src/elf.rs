//! What ELF files say of themselves: the libraries that a program or library names (gABI, "Dynamic
//! Linking"), and where a kernel is entered.

use std::path::PathBuf;

use object::Endianness;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, ELFMAG, EM_X86_64, FileHeader64,
    ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// The note of a kernel that says where it is entered without its own unpacker (PVH), and the
/// notes' owner.
const PHYS32_ENTRY: u32 = 18;
const XEN: &[u8] = b"Xen";

/// What a program or library has the loader do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Linkage {
    /// The loader.
    pub(crate) interpreter: Option<PathBuf>,
    /// Names of libraries.
    pub(crate) needed: Vec<String>,
    /// Folders where they are looked for first; may begin with `$ORIGIN`.
    pub(crate) folders: Vec<String>,
}

/// Whether a file is a program, a library or another ELF file.
pub(crate) fn is_elf(content: &[u8]) -> bool {
    content.starts_with(&ELFMAG)
}

/// Whether an ELF file is one of x86-64, by class, byte order and machine.
pub(crate) fn is_x86_64(content: &[u8]) -> bool {
    FileHeader64::<Endianness>::parse(content).is_ok_and(|header| {
        header
            .endian()
            .is_ok_and(|endian| header.e_machine(endian) == EM_X86_64)
    })
}

/// What an ELF file of 64 bit has the loader do; nothing if it is static or not linked yet.
pub(crate) fn linkage(content: &[u8]) -> Result<Linkage, object::Error> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, content)?;
    let mut linkage = Linkage::default();
    for segment in segments {
        if let Some(path) = segment.interpreter(endian, content)? {
            linkage.interpreter = Some(PathBuf::from(text(path)));
        }
        if let Some(entries) = segment.dynamic(endian, content)? {
            let entries = entries
                .iter()
                .map(|entry| (entry.d_tag(endian), entry.d_val(endian)));
            let entries: Vec<_> = entries.collect();
            let strings = strings(&entries, segments, endian, content).unwrap_or_default();
            linkage.add(&entries, strings);
        }
    }
    Ok(linkage)
}

impl Linkage {
    fn add(&mut self, entries: &[(u64, u64)], strings: &[u8]) {
        let string = |at: u64| {
            let from = usize::try_from(at).ok().and_then(|at| strings.get(at..))?;
            from.split(|byte| *byte == 0).next().map(text)
        };
        for (tag, value) in entries {
            match (u32::try_from(*tag), string(*value)) {
                (Ok(DT_NEEDED), Some(name)) => self.needed.push(name),
                (Ok(DT_RPATH | DT_RUNPATH), Some(folders)) => {
                    self.folders.extend(folders.split(':').map(str::to_owned));
                }
                _ => {}
            }
        }
    }
}

/// The string table of the dynamic section: an address, which lies in one of the segments.
fn strings<'a>(
    entries: &[(u64, u64)],
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    content: &'a [u8],
) -> Option<&'a [u8]> {
    let value = |wanted: u32| {
        let found = entries.iter().find(|(tag, _)| *tag == u64::from(wanted));
        found.map(|(_, value)| *value)
    };
    let (address, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let mut found = segments
        .iter()
        .filter_map(|segment| segment.data_range(endian, content, address, size).ok()?);
    found.next()
}

/// Whether a kernel can be entered without its own unpacker (PVH).
pub(crate) fn is_pvh_kernel(content: &[u8]) -> bool {
    has_note(content, XEN, PHYS32_ENTRY).unwrap_or(false)
}

fn has_note(content: &[u8], owner: &[u8], kind: u32) -> Result<bool, object::Error> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, content)? {
        let Some(mut notes) = segment.notes(endian, content)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == owner && note.n_type(endian) == kind {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_the_loader_and_the_c_library() {
        let me = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(is_elf(&me) && is_x86_64(&me) && !is_pvh_kernel(&me));
        let linkage = linkage(&me).unwrap();
        assert!(
            linkage
                .needed
                .iter()
                .any(|name| name.starts_with("libc.so")),
            "{linkage:?}"
        );
        assert!(linkage.interpreter.is_some(), "{linkage:?}");
    }

    #[test]
    fn another_machine_is_told_by_the_header() {
        let mut me = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        const E_MACHINE: usize = 18;
        me[E_MACHINE] = object::elf::EM_AARCH64 as u8;
        assert!(is_elf(&me) && !is_x86_64(&me));
    }
}
