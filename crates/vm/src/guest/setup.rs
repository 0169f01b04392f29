//! What a guest is before it runs commands: mounts, modules, limits, network, RDMA link.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::protocol::{PeerSetup, Setup};

/// How long the RDMA device may take to be active with its IPv4 GID.
const ACTIVE_PATIENCE: Duration = Duration::from_secs(20);
/// `IB_PORT_ACTIVE`, as sysfs prints it.
const ACTIVE: &str = "4: ACTIVE";
/// The last bytes before the IPv4 address in a GID that maps one.
const IPV4_MAPPED: &str = "0000:0000:0000:0000:0000:ffff:";

/// Mounts what programs expect (all else is in memory as it is, and mounts would hide what the
/// image has there), and lifts the limit on locked memory, which regions are.
pub(super) fn mounts() -> anyhow::Result<()> {
    for (source, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/dev/shm"),
    ] {
        fs::create_dir_all(target).with_context(|| target.to_owned())?;
        mount(source, target, source, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {target}"))?;
    }
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Memlock, unlimited).context("cannot lift the limit on locked memory")
}

/// Loads modules in this order.
pub(super) fn load(modules: &[String]) -> anyhow::Result<()> {
    for path in modules {
        let file = File::open(path).with_context(|| path.clone())?;
        match rustix::system::finit_module(&file, c"", 0) {
            // Hardware that this CPU does not have: its generic sibling does the work.
            Ok(()) | Err(Errno::EXIST | Errno::NODEV) => {}
            Err(e) => return Err(e).with_context(|| format!("cannot load {path}")),
        }
    }
    Ok(())
}

/// Brings up `lo`, `eth0` and the RDMA link over it, and waits until it can carry traffic.
pub(super) fn network(wanted: &Setup, modules: &[String]) -> anyhow::Result<()> {
    rustix::system::sethostname(wanted.hostname.as_bytes()).context("sethostname")?;
    load(modules)?;
    tool("ip", &["link", "set", "lo", "up"])?;
    tool("ip", &["address", "add", &wanted.address, "dev", "eth0"])?;
    tool("ip", &["link", "set", "eth0", "up"])?;
    let (device, link_type) = (wanted.device.as_str(), wanted.link_type.as_str());
    let link = ["link", "add", device, "type", link_type, "netdev", "eth0"];
    tool("rdma", &link)?;
    wait_until_active(device)?;
    wanted.peer.as_ref().map_or(Ok(()), second_card)
}

/// Brings up the second network card in its namespace.
fn second_card(peer: &PeerSetup) -> anyhow::Result<()> {
    let PeerSetup {
        namespace,
        interface,
        address,
    } = peer;
    for command in [
        format!("netns add {namespace}"),
        format!("link set {interface} netns {namespace}"),
        format!("-n {namespace} address add {address} dev {interface}"),
        format!("-n {namespace} link set lo up"),
        format!("-n {namespace} link set {interface} up"),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        tool("ip", &words)?;
    }
    Ok(())
}

fn tool(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program)
        .args(args)
        .env("PATH", super::jobs::PATH)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{program} {}` failed: {}",
        args.join(" "),
        text.trim()
    );
    Ok(())
}

fn wait_until_active(device: &str) -> anyhow::Result<()> {
    let port = PathBuf::from(format!("/sys/class/infiniband/{device}/ports/1"));
    let deadline = Instant::now() + ACTIVE_PATIENCE;
    loop {
        let state = fs::read_to_string(port.join("state")).unwrap_or_default();
        if state.trim() == ACTIVE && has_gid(&port) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{device} was not active with a GID within {ACTIVE_PATIENCE:?}: its state is '{}'",
                state.trim()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether peers can address the port: RoCE needs the GID of the IPv4 address, iWARP none.
fn has_gid(port: &Path) -> bool {
    let gids = || fs::read_dir(port.join("gids")).into_iter().flatten();
    let mapped = |text: String| text.starts_with(IPV4_MAPPED);
    let node = fs::read_to_string(port.join("../../node_type"));
    node.is_ok_and(|node| node.contains("RNIC"))
        || gids()
            .flatten()
            .any(|gid| fs::read_to_string(gid.path()).is_ok_and(mapped))
}
