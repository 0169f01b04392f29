//! A capture of a UDP port's packets, for Wireshark and tcpdump: a pcap file with IP headers.
//!
//! `ADVERB_PCAP` names the file. Packets are added as the kernel takes or delivers them, each batch by one write, so
//! a killed process leaves whole packets, and several processes can share a file. A socket does not see IP headers:
//! in the file, the time to live and the checksums are made up, and the traffic class of received packets is 0. Traffic
//! over shared memory has no packets and is not in it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use adverb_verbs::TrafficClass;
use adverb_wire::frame::{self, Addresses, Ip};
use adverb_wire::ipv4::{self, Ipv4};
use adverb_wire::ipv6::Ipv6;
use adverb_wire::pcap::{LinkType, PcapWriter};

use super::packet::{ReceivedDatagram, Remote, unseen};

/// Environment variable with the path of the file.
pub const CAPTURE_VARIABLE: &str = "ADVERB_PCAP";
/// Maximum number of bytes that a port adds to the file. Later packets are only counted.
const LIMIT: u64 = 1 << 30;
/// Time to live in the headers.
const TTL: u8 = 64;

/// Creates an empty capture, or empties an existing one.
///
/// # Errors
/// The file cannot be created or written.
pub fn create_capture(path: &Path) -> io::Result<()> {
    write_header(&File::create(path)?)
}

/// Writes the header as one piece.
fn write_header(mut file: &File) -> io::Result<()> {
    let header = PcapWriter::new(Vec::new(), LinkType::Raw)?.into_inner();
    file.write_all(&header)
}

/// The file, and how much may still be written to it.
#[derive(Debug)]
pub(super) struct Capture(Mutex<Output>);

#[derive(Debug)]
struct Output {
    file: File,
    left: u64,
    /// Packets that were not written, because the file is too large or a write failed.
    missing: u64,
}

impl Capture {
    /// Opens the file that the environment names, if it names one.
    ///
    /// # Errors
    /// The text names the file.
    pub(super) fn from_env() -> io::Result<Option<Self>> {
        match std::env::var_os(CAPTURE_VARIABLE).filter(|path| !path.is_empty()) {
            None => Ok(None),
            Some(path) => Self::open(Path::new(&path), LIMIT).map(Some),
        }
    }

    fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let explained = |e: io::Error| {
            let text = format!("{CAPTURE_VARIABLE} is {}: {e}", path.display());
            io::Error::new(e.kind(), text)
        };
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(path);
        let file = file.map_err(explained)?;
        if file.metadata().map_err(explained)?.len() == 0 {
            write_header(&file).map_err(explained)?;
        }
        Ok(Capture(Mutex::new(Output {
            file,
            left: limit,
            missing: 0,
        })))
    }

    /// Adds sent packets of `segment` bytes. The last one may be shorter.
    pub(super) fn sent(
        &self,
        (from, to): (SocketAddr, Remote),
        contents: &[u8],
        (segment, numbering): (usize, Numbering),
    ) {
        let packets = contents.chunks(segment).zip(0..);
        self.add(packets.map(|(bytes, place)| Packet {
            from,
            to: to.to,
            class: to.class,
            identification: match numbering {
                Numbering::Counted => place,
                Numbering::Zero => 0,
            },
            bytes,
        }));
    }

    /// Adds received packets.
    pub(super) fn received<'a>(&self, datagrams: impl Iterator<Item = ReceivedDatagram<'a>>) {
        self.add(datagrams.map(|datagram| Packet {
            from: datagram.from,
            to: datagram.to,
            class: TrafficClass::default(),
            identification: datagram.place,
            bytes: datagram.bytes,
        }));
    }

    fn add<'a>(&self, packets: impl Iterator<Item = Packet<'a>>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let mut pcap = PcapWriter::appending(Vec::new());
        let mut count = 0;
        for frame in packets.filter_map(|packet| packet.frame()) {
            pcap.write(now, &frame)
                .expect("a vector takes every packet");
            count += 1;
        }
        let bytes = pcap.into_inner();
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_written = output.left >= bytes.len() as u64 && output.file.write_all(&bytes).is_ok();
        match is_written {
            true => output.left -= bytes.len() as u64,
            false => {
                output.left = 0;
                output.missing += count;
            }
        }
    }

    /// Returns the number of packets that are missing in the file.
    pub(super) fn missing(&self) -> u64 {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .missing
    }
}

/// The IP identifications of packets that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// They count from 0: one call with GSO sent them.
    Counted,
    /// All are 0: each was sent alone.
    Zero,
}

struct Packet<'a> {
    from: SocketAddr,
    to: SocketAddr,
    class: TrafficClass,
    identification: u16,
    bytes: &'a [u8],
}

impl Packet<'_> {
    /// Returns the packet with IP and UDP header; `None` if its addresses are of two IP versions.
    fn frame(&self) -> Option<Vec<u8>> {
        let ip = match Addresses::of(self.from.ip(), self.to.ip())? {
            Addresses::V4(source, destination) => Ip::V4(Ipv4 {
                tos: self.class.0,
                total_length: ipv4::LEN as u16,
                unseen: unseen(self.identification),
                ttl: TTL,
                source,
                destination,
            }),
            Addresses::V6(source, destination) => Ip::V6(Ipv6 {
                traffic_class: self.class.0,
                flow_label: 0,
                payload_length: 0,
                hop_limit: TTL,
                source,
                destination,
            }),
        };
        let ports = (self.from.port(), self.to.port());
        Some(frame::datagram(&ip, ports, self.bytes))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sent(capture: &Capture, [from, to]: [&str; 2], numbering: Numbering) {
        let [from, to] = [from, to].map(|at| at.parse().unwrap());
        let to = Remote {
            to,
            class: TrafficClass(2),
        };
        capture.sent((from, to), &[7; 10], (4, numbering));
    }

    #[test]
    fn packets_of_a_batch_are_written_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets.pcap");
        create_capture(&path).unwrap();
        let capture = Capture::open(&path, LIMIT).unwrap();
        sent(
            &capture,
            ["10.0.0.1:4791", "10.0.0.2:4792"],
            Numbering::Counted,
        );
        sent(
            &capture,
            ["[fd00::1]:4791", "[fd00::2]:4792"],
            Numbering::Zero,
        );
        let bytes = std::fs::read(&path).unwrap();
        let headers = |ip: usize| 16 + ip + 8;
        assert_eq!(bytes.len(), 24 + 3 * (headers(20) + headers(40)) + 2 * 10);
        let first = &bytes[24 + 16..];
        let (ip, rest) = Ipv4::parse(first).unwrap();
        assert_eq!((ip.tos, ip.total_length), (2, 32));
        assert_eq!(rest[..8], [0x12, 0xb7, 0x12, 0xb8, 0, 12, 0, 0]);
        let second = &first[32 + 16..];
        assert_eq!(Ipv4::parse(second).unwrap().0.unseen, unseen(1));
        // Another process goes on in the same file.
        drop(Capture::open(&path, LIMIT).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn a_full_capture_counts_the_packets_that_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packets.pcap");
        let capture = Capture::open(&path, 200).unwrap();
        for _ in 0..3 {
            sent(
                &capture,
                ["10.0.0.1:4791", "10.0.0.2:4791"],
                Numbering::Zero,
            );
        }
        assert_eq!(capture.missing(), 6);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 24 + 3 * 44 + 10);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = Capture::open(Path::new("/nowhere/a.pcap"), LIMIT).unwrap_err();
        let text = "ADVERB_PCAP is /nowhere/a.pcap: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), text);
    }
}
