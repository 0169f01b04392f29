//! How messages pass between two members: connections of TCP, or queue pairs.

use adverb_units::Span;
use adverb_verbs::{RoleId, Station, Streams};
use adverb_workload::attend::{Awaited, Members, attentively};
use adverb_workload::error::Fault;
use adverb_workload::pattern::wiring::{receive, send};
use adverb_workload::streams::StreamOf;

use super::end::{End, Traffic};

/// Timeout for connecting: the peer listens before it sends its address.
const TIMEOUT: Span = Span::from_secs(10);

/// How messages are sent.
pub(crate) enum Way<'m, S: Station> {
    Verbs(Box<End<'m, S>>),
    Stream(StreamOf<S>),
}

impl<S: Station> Way<'_, S> {
    /// Returns the requests posted so far.
    pub(crate) fn traffic(&self) -> Traffic {
        match self {
            Way::Verbs(end) => end.traffic(),
            Way::Stream(_) => Traffic::default(),
        }
    }
}

/// Connects to a member that accepts.
pub(crate) fn connect<S: Station>(
    members: &Members<'_, S>,
    peer: RoleId,
) -> Result<StreamOf<S>, Fault> {
    let at = receive(members, peer)?;
    Ok(members.station().streams().connect(at, TIMEOUT)?)
}

/// Accepts a connection of each of these members, in any order.
pub(crate) fn accept<S: Station>(
    members: &Members<'_, S>,
    peers: &[RoleId],
) -> Result<Vec<StreamOf<S>>, Fault> {
    let streams = members.station().streams();
    let (listener, at) = streams.listen()?;
    peers
        .iter()
        .map(|peer| {
            // One after another: a listener's backlog may be short.
            send(members, *peer, &at)?;
            attentively(members, Awaited::OwnRequest, |timeout| {
                streams.accept(&listener, timeout)
            })
        })
        .collect()
}
