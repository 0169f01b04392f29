//! Whole messages over byte streams. The waits poll, unless a reader sleeps.

use adverb_results::Completion;
use adverb_verbs::{Station, StreamWait, Streams};

use crate::attend::{Awaited, Members, attentively};
use crate::error::Fault;

/// A stream of a station.
pub type StreamOf<S> = <<S as Station>::Streams as Streams>::Stream;

/// Returns how a reader that awaits completions like this waits for a stream.
pub const fn reading(completion: Completion) -> StreamWait {
    match completion {
        Completion::Poll => StreamWait::Poll,
        Completion::Event | Completion::Hybrid(_) => StreamWait::Sleep,
    }
}

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
    room: &mut [u8],
) -> Result<(), Fault> {
    receive_all_by(members, stream, StreamWait::Poll, room)
}

/// As [`receive_all`], by a reader that waits like this.
///
/// # Errors
/// As for [`receive_all`].
pub fn receive_all_by<S: Station>(
    members: &Members<'_, S>,
    stream: &StreamOf<S>,
    how: StreamWait,
    mut room: &mut [u8],
) -> Result<(), Fault> {
    let streams = members.station().streams();
    while !room.is_empty() {
        let received = attentively(members, Awaited::Message, |timeout| {
            streams.receive_some(stream, room, how, timeout)
        })?;
        room = &mut std::mem::take(&mut room)[received..];
    }
    Ok(())
}
