//! `SO_KEEPALIVE`: a thread that asks peers for a sign of life, so that a connection to a host that has vanished ends.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::socket::Socket;
use super::table;
use crate::cm::agent::block_signals;

/// Interval at which rsockets are looked for whose time has come.
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

/// Asks the peer of an rsocket, if nothing has arrived for the time of its option. If it does not answer, the device
/// reports an error, which ends the connection.
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
