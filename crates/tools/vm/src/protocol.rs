//! The protocol between the harness and a guest's `/init` over the virtio-serial port.
//!
//! A frame is its length (u32, little-endian) and that many bytes, at most [`MAX_FRAME`]: one
//! [`Request`] towards the guest or one [`Event`] towards the harness, in postcard's encoding. Each
//! request names a job; its events carry the same number, so that jobs overlap freely.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the virtio-serial port, as the guest finds it in `/sys/class/virtio-ports`.
pub(crate) const PORT: &str = "adverb";
/// Longest frame, in bytes.
pub(crate) const MAX_FRAME: usize = 1 << 20;
/// Most file or stream content that one message carries, in bytes.
pub(crate) const CHUNK: usize = 128 << 10;
/// The folder of the kernel modules in the initramfs; they are loaded in the order of their names.
pub(crate) const MODULES: &str = "/modules";
/// The name of this host's file tree among a guest's 9P devices.
pub(crate) const HOST_FILES: &str = "host";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct JobId(pub(crate) u32);

/// What a guest is to become.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) hostname: String,
    /// IPv4 address of `eth0` with its prefix length.
    pub(crate) address: String,
    /// Name of the RDMA device.
    pub(crate) device: String,
    /// Its type, as `rdma link add` names it.
    pub(crate) link_type: String,
    /// What becomes of a second network card.
    pub(crate) peer: Option<PeerSetup>,
}

/// A second network card, in a network namespace of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerSetup {
    pub(crate) namespace: String,
    pub(crate) interface: String,
    /// IPv4 address with its prefix length.
    pub(crate) address: String,
}

/// A program to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Milliseconds after which it is killed.
    pub(crate) limit_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WriteHow {
    Create { mode: u32 },
    Append,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Setup(Setup),
    Run(Run),
    /// Kills what the job runs.
    Kill,
    /// Answered by `Done`.
    Write {
        path: String,
        how: WriteHow,
        bytes: Vec<u8>,
    },
    /// A file or a folder; answered by `Entry` and `Content`, then `Done`.
    Get {
        path: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EntryKind {
    File,
    Folder,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
    /// It was killed because its time limit was reached.
    LimitReached,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The guest's first word.
    Hello,
    Done,
    Failed(String),
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    Ended(Ending),
    /// What follows as `Content` is in this path below the one asked for (empty: that one itself).
    Entry {
        path: String,
        kind: EntryKind,
        mode: u32,
    },
    Content(Vec<u8>),
}

/// Writes one message of a job.
pub(crate) fn write_frame<T: Serialize>(
    mut to: impl Write,
    job: JobId,
    message: &T,
) -> io::Result<()> {
    let mut frame = vec![0; size_of::<u32>()];
    frame = postcard::to_extend(&(job, message), frame).map_err(io::Error::other)?;
    let length = frame.len() - size_of::<u32>();
    if length > MAX_FRAME {
        let text = format!("a message of {length} bytes; at most {MAX_FRAME} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    frame[..size_of::<u32>()].copy_from_slice(&(length as u32).to_le_bytes());
    to.write_all(&frame)
}

/// Reads the next message and its job; the stream's end is [`io::ErrorKind::UnexpectedEof`].
pub(crate) fn read_frame<T: DeserializeOwned>(mut from: impl Read) -> io::Result<(JobId, T)> {
    let mut header = [0; size_of::<u32>()];
    from.read_exact(&mut header)?;
    let length = u32::from_le_bytes(header) as usize;
    if length > MAX_FRAME {
        let text = format!("a frame claims {length} bytes; at most {MAX_FRAME} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    postcard::from_bytes(&frame).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_went() {
        let mut wire = Vec::new();
        let sent = Event::Output {
            stream: Stream::Stderr,
            bytes: vec![0, 255, 7],
        };
        write_frame(&mut wire, JobId(9), &sent).unwrap();
        write_frame(&mut wire, JobId(0), &Event::Hello).unwrap();
        let mut wire = wire.as_slice();
        let (job, event) = read_frame::<Event>(&mut wire).unwrap();
        assert_eq!(job, JobId(9));
        assert!(
            matches!(event, Event::Output { stream: Stream::Stderr, bytes } if bytes == [0, 255, 7])
        );
        assert!(matches!(
            read_frame::<Event>(&mut wire),
            Ok((JobId(0), Event::Hello))
        ));
        let end = read_frame::<Event>(&mut wire).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_frame_beyond_the_bound_is_refused_on_both_ends() {
        let long = Event::Content(vec![0; MAX_FRAME]);
        let error = write_frame(Vec::new(), JobId(1), &long).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = read_frame::<Event>(&[255, 255, 255, 255][..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
