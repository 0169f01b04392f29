//! Writes captures in the classic pcap format with nanoseconds, for tcpdump and Wireshark.

use std::io::{self, Write};
use std::time::Duration;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const SNAP_LENGTH: u32 = 65_535;

/// The header at the beginning of each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet header.
    Ethernet,
    /// IP header.
    Raw,
}

impl LinkType {
    /// Returns its number in the registry of link types.
    pub const fn code(self) -> u32 {
        match self {
            LinkType::Ethernet => 1,
            LinkType::Raw => 101,
        }
    }
}

/// Writes a capture.
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the header of a capture.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub fn new(mut out: W, link_type: LinkType) -> io::Result<Self> {
        let [major, minor] = VERSION.map(u16::to_le_bytes);
        out.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        out.write_all(&[major, minor].concat())?;
        out.write_all(&[0; 8])?;
        out.write_all(&SNAP_LENGTH.to_le_bytes())?;
        out.write_all(&link_type.code().to_le_bytes())?;
        Ok(PcapWriter { out })
    }

    /// Continues a capture: `out` has its header.
    pub const fn appending(out: W) -> Self {
        PcapWriter { out }
    }

    /// Adds a frame, captured at `at` after 1970.
    ///
    /// # Errors
    /// Writing to `out` failed, or the frame is longer than 65535 B.
    pub fn write(&mut self, at: Duration, frame: &[u8]) -> io::Result<()> {
        let length = u32::try_from(frame.len()).ok();
        let length = length.filter(|&n| n <= SNAP_LENGTH).ok_or_else(|| {
            let text = format!("frame of {} B exceeds {SNAP_LENGTH} B", frame.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        for word in [at.as_secs() as u32, at.subsec_nanos(), length, length] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(frame)
    }

    /// Returns the underlying writer.
    pub fn into_inner(self) -> W {
        self.out
    }
}
