//! A `newc` cpio archive, the format of the kernel's initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHAR_DEVICE: u32 = 0o020_000;

/// What an entry is.
pub(crate) enum Kind<'a> {
    Folder,
    /// With its permission bits.
    File {
        mode: u32,
        content: &'a [u8],
    },
    CharDevice {
        major: u32,
        minor: u32,
    },
}

/// Writes entries, then the trailer.
pub(crate) struct Writer<W> {
    to: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(to: W) -> Self {
        Writer { to, inode: 0 }
    }

    /// Writes an entry at `path`, which has no leading slash; its folder must have been written before.
    pub(crate) fn entry(&mut self, path: &str, kind: &Kind<'_>) -> io::Result<()> {
        let (mode, content, device): (u32, &[u8], (u32, u32)) = match kind {
            Kind::Folder => (FOLDER | 0o755, &[], (0, 0)),
            Kind::File { mode, content } => (FILE | (mode & 0o7777), content, (0, 0)),
            Kind::CharDevice { major, minor } => (CHAR_DEVICE | 0o600, &[], (*major, *minor)),
        };
        self.inode += 1;
        self.header(path, mode, content.len(), device)?;
        self.padded(content)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.header(TRAILER, 0, 0, (0, 0))?;
        Ok(self.to)
    }

    fn header(&mut self, path: &str, mode: u32, size: usize, device: (u32, u32)) -> io::Result<()> {
        let size = u32::try_from(size).map_err(|_| {
            let text = format!("/{path} has {size} bytes; the format ends at 4 GiB");
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        })?;
        let name_size = path.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device's major, minor, the node's major,
        // minor, size of the name, checksum (not in this format).
        let (major, minor) = device;
        let fields = [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        let mut header = MAGIC.to_owned();
        fields.iter().for_each(|f| header += &format!("{f:08x}"));
        header += path;
        header.push('\0');
        self.padded(header.as_bytes())
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.to
            .write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_with_the_trailer() {
        let mut cpio = Writer::new(Vec::new());
        cpio.entry("dev", &Kind::Folder).unwrap();
        let (mode, content) = (0o755, &b"hello"[..]);
        cpio.entry("init", &Kind::File { mode, content }).unwrap();
        let bytes = cpio.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701"));
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            text.contains("init\0hello\0") || text.contains("init\0\0hello"),
            "{text}"
        );
        assert!(text.trim_end_matches('\0').ends_with(TRAILER));
    }
}
