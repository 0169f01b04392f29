//! Decompresses kernels (Documentation/x86/boot.rst). A `vmlinuz` would decompress itself in the guest, which takes
//! seconds on an emulated processor; here it takes less than one, once for all machines.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use tempfile::NamedTempFile;

use crate::error::{Error, io_error};

/// Fields of the header (`setup_header`): number of 512-byte sectors of the real-mode code after
/// the first, then where the payload is after it, and its length.
const SETUP_SECTORS: usize = 0x1f1;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;
/// The unpacked length, which the build appends to all formats that do not have it themselves.
const APPENDED: usize = size_of::<u32>();
/// The type of the ELF note with the PVH entry point, by which a kernel is entered without its own
/// decompressor, and the note's owner.
const PHYS32_ENTRY: u32 = 18;
const XEN: &[u8] = b"Xen";

/// First bytes of a format, its program, whether its length is appended.
const FORMATS: [(&[u8], &str, usize); 3] = [
    (b"\xfd7zXZ\0", "xz", APPENDED),
    (b"\x28\xb5\x2f\xfd", "zstd", APPENDED),
    (b"\x1f\x8b", "gzip", 0),
];

/// Returns the kernel to boot: `vmlinuz` unpacked into `folder` (or found there), or `vmlinuz` itself if its
/// format is unknown, the decompressor is not installed, or the kernel cannot be entered uncompressed.
pub(crate) fn bootable(vmlinuz: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let name = cached_name(vmlinuz).map_err(io_error("cannot read", vmlinuz))?;
    let unpacked = folder.join(name);
    if unpacked.is_file() {
        return Ok(unpacked);
    }
    let packed = fs::read(vmlinuz).map_err(io_error("cannot read", vmlinuz))?;
    match unpack(&packed, &unpacked) {
        Ok(Unpacked::Done) => Ok(unpacked),
        Ok(Unpacked::NotPossible) => Ok(vmlinuz.to_owned()),
        Err(error) => Err(io_error("cannot unpack the kernel to", &unpacked)(error)),
    }
}

/// Returns a file name that differs between contents: a newer package may have a kernel of the same release.
fn cached_name(vmlinuz: &Path) -> io::Result<String> {
    let meta = fs::metadata(vmlinuz)?;
    let modified = meta.modified()?.duration_since(std::time::UNIX_EPOCH);
    let seconds = modified.map_or(0, |since| since.as_secs());
    let file = vmlinuz.file_name().unwrap_or_default().to_string_lossy();
    let file = file.replace("vmlinuz", "vmlinux");
    Ok(format!("{file}.{}-{seconds}", meta.len()))
}

enum Unpacked {
    Done,
    NotPossible,
}

/// Decompresses a kernel to `to`. It is written under a temporary name first, so that nobody boots half a kernel.
fn unpack(packed: &[u8], to: &Path) -> io::Result<Unpacked> {
    let Some((program, payload)) = payload(packed) else {
        return Ok(Unpacked::NotPossible);
    };
    let mut input = tempfile::tempfile()?;
    input.write_all(payload)?;
    input.rewind()?;
    let folder = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let output = NamedTempFile::new_in(folder)?;
    if !decompress(program, input, output.reopen()?) || !is_pvh_kernel(&fs::read(output.path())?) {
        return Ok(Unpacked::NotPossible);
    }
    output.persist(to)?;
    Ok(Unpacked::Done)
}

/// Whether a kernel can be entered without its own unpacker (PVH).
fn is_pvh_kernel(content: &[u8]) -> bool {
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

fn decompress(program: &str, from: File, to: File) -> bool {
    let status = Command::new(program)
        .arg("-dc")
        .stdin(from)
        .stdout(to)
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Returns the compressed kernel in a `vmlinuz`, and the program that decompresses it.
fn payload(packed: &[u8]) -> Option<(&'static str, &[u8])> {
    let word = |at: usize| {
        let bytes = packed.get(at..at + size_of::<u32>())?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let setup = (usize::from(*packed.get(SETUP_SECTORS)?) + 1) * SECTOR;
    let begin = setup.checked_add(word(PAYLOAD_OFFSET)?)?;
    let end = begin.checked_add(word(PAYLOAD_LENGTH)?)?;
    let payload = packed.get(begin..end)?;
    let format = FORMATS
        .iter()
        .find(|(magic, ..)| payload.starts_with(magic));
    let (_, program, appended) = format?;
    Some((
        *program,
        payload.get(..payload.len().checked_sub(*appended)?)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `vmlinuz` with one sector of real-mode code after the first.
    fn vmlinuz(payload: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; 2 * SECTOR];
        packed[SETUP_SECTORS] = 1;
        packed[PAYLOAD_OFFSET] = 8;
        packed[PAYLOAD_LENGTH..][..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        packed.extend([0; 8]);
        packed.extend(payload);
        packed.extend(b"a signature");
        packed
    }

    #[test]
    fn the_payload_is_found_by_the_header_and_its_format() {
        let packed = vmlinuz(b"\xfd7zXZ\0content\x01\x02\x03\x04");
        assert_eq!(payload(&packed), Some(("xz", &b"\xfd7zXZ\0content"[..])));
        let packed = vmlinuz(b"\x1f\x8bcontent");
        assert_eq!(payload(&packed), Some(("gzip", &b"\x1f\x8bcontent"[..])));
        assert_eq!(payload(&vmlinuz(b"LZO?")), None);
        assert_eq!(payload(b"short"), None);
    }

    #[test]
    fn a_kernel_that_cannot_be_unpacked_is_booted_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("vmlinuz-1");
        for content in [&b"\x1f\x8bnot gzip"[..], b"LZO?"] {
            fs::write(&kernel, vmlinuz(content)).unwrap();
            assert_eq!(bootable(&kernel, &dir.path().join("out")).unwrap(), kernel);
        }
        let left = fs::read_dir(dir.path().join("out")).unwrap().count();
        assert_eq!(left, 0, "files left behind");
    }
}
