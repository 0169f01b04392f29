//! How a client of RDMA and a server that is running find each other: over a connection of TCP, which lives as long as
//! the connection of their queue pairs. The client sends [`ATTACH`] and a line with a [`Hello`]; the server answers with
//! a line of its own.

use std::net::SocketAddr;

use adverb_units::Span;
use adverb_verbs::{
    AccessFlags, Context, Endpoint, QpCaps, QpType, RemoteAddress, Station, StreamAddress, Streams,
};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use adverb_workload::reap::Queue;
use adverb_workload::streams::{StreamOf, receive_all, send_all};
use adverb_workload::wiring::Kit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::session::SEND_DEPTH;

/// The beginning of the line.
pub const ATTACH: [u8; 16] = *b"adverb_attach   ";
/// The beginning of the answer.
pub const ATTACHED: &str = "ATTACHED ";
/// What both ends may do with each other's memory: READ values.
pub const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_READ);
/// Longest answer.
const MAX_ANSWER: usize = 1024;
/// Timeout for connecting.
const TIMEOUT: Span = Span::from_secs(10);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// Its region.
    pub region: RemoteAddress,
}

impl Hello {
    /// Returns the hello as one word.
    pub fn to_word(&self) -> String {
        let bytes = postcard::to_stdvec(self).expect("plain data can be serialized");
        STANDARD.encode(bytes)
    }

    /// Reads a word; `None` if it is not a hello.
    pub fn from_word(word: &[u8]) -> Option<Self> {
        postcard::from_bytes(&STANDARD.decode(word).ok()?).ok()
    }
}

/// Returns the sizes of the queue pair of either end.
pub fn caps(inline: u32) -> QpCaps {
    QpCaps {
        max_inline_data: inline,
        ..QpCaps::new(SEND_DEPTH, 2)
    }
}

/// A queue pair that is connected to a server, with the connection of TCP that keeps it.
pub(super) struct Attached<S: Station> {
    pub(super) qp: <S::Context as Context>::Qp,
    pub(super) server: RemoteAddress,
    pub(super) stream: StreamOf<S>,
}

/// Connects a queue pair to the server that listens at an address.
///
/// # Errors
/// The server cannot be reached, or refuses, with its reason.
pub(super) fn attach<S: Station>(
    members: &Members<'_, S>,
    (kit, queue): (&Kit<'_, S>, &Queue<S::Context>),
    (server, inline): (SocketAddr, u32),
) -> Result<Attached<S>, Fault> {
    use adverb_verbs::MemoryRegion;
    let streams = members.station().streams();
    let qp = kit.queue_pair(QpType::Rc, (queue, queue), caps(inline), 0)?;
    let to = StreamAddress {
        at: server,
        key: ATTACH,
    };
    let stream = streams.connect(to, TIMEOUT)?;
    let hello = Hello {
        endpoint: kit.endpoint(&qp),
        region: kit.mr.remote(0),
    };
    send_all(
        members,
        &stream,
        format!("{}\r\n", hello.to_word()).as_bytes(),
    )?;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < MAX_ANSWER {
        let mut byte = [0];
        receive_all(members, &stream, &mut byte)?;
        line.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&line);
    let word = text.trim_end().strip_prefix(ATTACHED);
    let Some(theirs) = word.and_then(|word| Hello::from_word(word.as_bytes())) else {
        return Err(Fault::Refused(format!(
            "the store at {server} takes no client of RDMA: {}; expected an `adverb store serve`",
            text.trim_end()
        )));
    };
    kit.connect(
        (QpType::Rc, &qp),
        hello.endpoint,
        theirs.endpoint,
        &kit.route(1),
    )?;
    Ok(Attached {
        qp,
        server: theirs.region,
        stream,
    })
}
