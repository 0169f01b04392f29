//! `SO_KEEPALIVE`: a thread that sends keepalive messages, so that a connection ends when the peer's host is gone.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::socket::Socket;
use super::table;
use crate::cm::agent::block_signals;

/// Interval at which the thread looks for rsockets that have been idle for long enough.
const CHECK: Duration = Duration::from_secs(1);

/// Starts the thread at the first call.
pub(super) fn start() -> std::io::Result<()> {
    static STARTED: OnceLock<()> = OnceLock::new();
    if STARTED.set(()).is_ok() {
        let thread = std::thread::Builder::new().name("adverb-keepalive".into());
        thread.spawn(|| {
            block_signals();
            loop {
                std::thread::sleep(CHECK);
                table::all().iter().for_each(|socket| ask(socket));
            }
        })?;
    }
    Ok(())
}

/// Sends the peer a keepalive message if nothing has arrived for `TCP_KEEPIDLE` seconds. If the peer does not acknowledge
/// it, the device reports an error, which ends the connection.
fn ask(socket: &Socket) {
    let mut state = socket.lock();
    let any = state.progress();
    if any {
        state.asked = Instant::now();
    }
    let after = state.options.keep_alive_after();
    let elapsed = state.asked.elapsed();
    if let Some(stream) = &mut state.stream
        && after.is_some_and(|after| elapsed >= after)
    {
        stream.keep_alive();
        state.asked = Instant::now();
    }
    drop(state);
    if any {
        socket.sleepers.wake_others();
    }
}
