//! Whole messages over byte streams. The waits poll.

use adverb_verbs::{Station, StreamWait, Streams};

use crate::attend::{Awaited, Members, attentively};
use crate::error::Fault;

/// A stream of a station.
pub type StreamOf<S> = <<S as Station>::Streams as Streams>::Stream;

/// Sends all of `bytes`.
///
/// # Errors
/// Timeout, the connection has ended, or another member has failed.
pub fn send_all<S: Station>(
    members: &Members<'_, S>,
    stream: &StreamOf<S>,
    mut bytes: &[u8],
) -> Result<(), Fault> {
    let streams = members.station().streams();
    while !bytes.is_empty() {
        let sent = attentively(members, Awaited::OwnRequest, |timeout| {
            streams.send_some(stream, bytes, StreamWait::Poll, timeout)
        })?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Fills `room` with received bytes.
///
/// # Errors
/// Timeout, the connection has ended, or another member has failed.
pub fn receive_all<S: Station>(
    members: &Members<'_, S>,
    stream: &StreamOf<S>,
    mut room: &mut [u8],
) -> Result<(), Fault> {
    let streams = members.station().streams();
    while !room.is_empty() {
        let received = attentively(members, Awaited::Message, |timeout| {
            streams.receive_some(stream, room, StreamWait::Poll, timeout)
        })?;
        room = &mut std::mem::take(&mut room)[received..];
    }
    Ok(())
}
