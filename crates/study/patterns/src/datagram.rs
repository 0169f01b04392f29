//! The maximum of a datagram.

use adverb_units::Bytes;
use adverb_verbs::{Context, Station};
use adverb_workload::pattern::PatternError;

/// Refuses a message that exceeds the path MTU of the station's port, the maximum of a datagram; says what to use instead.
pub(crate) fn check_datagram<S: Station>(
    station: &S,
    message: u32,
    instead: &str,
) -> Result<(), PatternError> {
    let context = station.context();
    let mtu = context.port(context.port_num())?.active_mtu.bytes();
    let message = Bytes::new(message.into());
    if message > mtu {
        return Err(PatternError::Refused(format!(
            "a message of {message} exceeds the path MTU of {mtu}, the maximum of a datagram; use {instead}"
        )));
    }
    Ok(())
}
