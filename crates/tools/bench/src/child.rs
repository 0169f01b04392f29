//! Processes that measurements start.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long a server may take until it listens.
const START: Duration = Duration::from_secs(20);

/// A program of the workspace: the one next to this program.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let found = own.with_file_name(program);
    ensure!(
        found.is_file(),
        "{} does not exist: build it with `make bench`",
        found.display()
    );
    Ok(found)
}

/// A process that does not outlive the measurement.
pub(crate) struct Ended(pub(crate) Child);

impl Ended {
    /// Waits until it listens on `port`. Connecting would begin the measurement.
    pub(crate) fn wait_until_it_listens(&mut self, port: u16, program: &str) -> Result<()> {
        let deadline = Instant::now() + START;
        while !listens(port) {
            if let Some(status) = self.0.try_wait()? {
                bail!("the server of {program} ended before it listened ({status})");
            }
            ensure!(
                Instant::now() < deadline,
                "the server of {program} did not listen on port {port} within {START:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program on one core: a child inherits the affinity of the thread that starts it.
pub(crate) fn spawn_on(core: u32, mut command: Command) -> Result<Child> {
    let name = command.get_program().to_string_lossy().into_owned();
    on_core(core, || {
        let started = command.spawn();
        started.with_context(|| format!("cannot start {name}"))
    })
}

/// Runs `work` in a thread on one core, so that the calling thread is not pinned.
pub(crate) fn on_core<T: Send>(core: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let pinned = scope.spawn(move || {
            adverb_host::pin(core).with_context(|| format!("cannot run on core {core}"))?;
            work()
        });
        pinned.join().expect("the pinned thread does not panic")
    })
}

/// Whether a program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// A TCP port on which nothing listens.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free TCP port")?;
    Ok(listener.local_addr()?.port())
}

/// Whether some socket in the network namespace listens on `port` of the calling thread (state 0A in
/// /proc/thread-self/net/tcp).
fn listens(port: u16) -> bool {
    let ending = format!(":{port:04X}");
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"]
        .iter()
        .any(|path| {
            let table = std::fs::read_to_string(path).unwrap_or_default();
            table.lines().any(|line| {
                let mut columns = line.split_whitespace().skip(1);
                let local = columns.next().is_some_and(|local| local.ends_with(&ending));
                local && columns.nth(1) == Some("0A")
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }
}
