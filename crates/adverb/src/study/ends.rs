//! `adverb study --degen`: the two hosts of a study are network namespaces, with `degen` between them.

use std::env;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::{Duration, Instant};

use adverb_degen::{Ends, Path, Router};
use adverb_host::usable_cores;
use adverb_launch::{HostPort, PeerAddress, Usage};
use adverb_results::Impairment;
use anyhow::Context as _;

use crate::degen::{FarProgram, report};
use crate::terminal;

/// Addresses of the near and the far end.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MTU: u32 = 1500;
/// Timeout for the start of the server at the far end.
const START: Duration = Duration::from_secs(20);

/// Returns the server at the far end.
pub(super) fn peer() -> PeerAddress {
    PeerAddress::Server(server())
}

fn server() -> HostPort {
    let address = FAR.to_string();
    address.parse().expect("an address is a host")
}

/// Returns the error of studies that do not run there.
pub(super) fn only_wan() -> Usage {
    Usage(
        "--degen: only --study wan runs there; other programs run behind `adverb degen`".to_owned(),
    )
}

/// Calls `work` at the near end of a path with `adverb serve` at its far end. What `work` sends happens to the packets
/// of both directions from then on.
///
/// # Errors
/// There can be no path here, or `work` fails.
pub(super) fn behind_degen<T>(
    work: impl FnOnce(&Sender<Impairment>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    // Before any thread starts: the process may enter a user namespace.
    let path = Path::make(&Ends::New, [NEAR, FAR], MTU)?;
    if usable_cores().len() < 3 {
        terminal::warn(
            "the two ends and the router between them share fewer than three cores: times include waits for a core, \
             which take milliseconds while other programs run",
        );
    }
    let mut command = Command::new(env::current_exe()?);
    command.args(["serve", "--bind", &FAR.to_string()]);
    command.args(["--parent", &std::process::id().to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let far = FarProgram::start(&path, command)?;
    path.within(1, wait_for_server)??;
    path.enter(0)?;
    let (done, counts) = Router::during(&path, Impairment::default(), work)?;
    drop(far);
    report(&counts);
    done
}

/// Waits at the far end until the server listens there.
fn wait_for_server() -> anyhow::Result<()> {
    let addresses = server().resolve()?;
    let deadline = Instant::now() + START;
    while let Err(error) = TcpStream::connect(&addresses[..]) {
        if Instant::now() > deadline {
            return Err(error).context("`adverb serve` does not start at the far end of the path");
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
