//! What a guest is before it runs commands: mounts, modules, limits, network, RDMA link.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::protocol::{HOST_FILES, MODULES, PeerSetup, Setup};

/// How long the RDMA device may take to be active with its IPv4 GID.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// `IB_PORT_ACTIVE`, as sysfs prints it.
const ACTIVE: &str = "4: ACTIVE";
/// The last bytes before the IPv4 address in a GID that maps one.
const IPV4_MAPPED: &str = "0000:0000:0000:0000:0000:ffff:";

/// Mounts the host's files, over them what the guest writes, and what is the guest's own; makes that the root
/// folder. Lifts the limit on locked memory, which regions are.
pub(super) fn mounts() -> anyhow::Result<()> {
    let host = c"trans=virtio,version=9p2000.L,msize=512000,cache=loose";
    let over = c"lowerdir=/host,upperdir=/written/files,workdir=/written/work";
    for (source, target, kind, options) in [
        (HOST_FILES, "/host", "9p", host),
        ("tmpfs", "/written", "tmpfs", c""),
        ("overlay", "/new", "overlay", over),
        ("proc", "/new/proc", "proc", c""),
        ("sysfs", "/new/sys", "sysfs", c""),
        ("devtmpfs", "/new/dev", "devtmpfs", c""),
        ("tmpfs", "/new/dev/shm", "tmpfs", c""),
        ("tmpfs", "/new/run", "tmpfs", c""),
    ] {
        fs::create_dir_all(target).with_context(|| target.to_owned())?;
        mount(source, target, kind, MountFlags::empty(), options)
            .with_context(|| format!("cannot mount {target}"))?;
        if target == "/written" {
            fs::create_dir("/written/files").context("/written/files")?;
            fs::create_dir("/written/work").context("/written/work")?;
        }
    }
    std::os::unix::fs::chroot("/new").context("cannot make /new the root folder")?;
    std::env::set_current_dir("/").context("cannot enter the root folder")?;
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Memlock, unlimited).context("cannot lift the limit on locked memory")
}

/// Loads the modules of the initramfs.
pub(super) fn modules() -> anyhow::Result<()> {
    let entries = fs::read_dir(MODULES).context(MODULES)?.flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    for path in paths {
        let path = path.display();
        let file = File::open(path.to_string()).with_context(|| path.to_string())?;
        match rustix::system::finit_module(&file, c"", 0) {
            // Hardware that this CPU does not have: its generic sibling does the work.
            Ok(()) | Err(Errno::EXIST | Errno::NODEV) => {}
            Err(e) => return Err(e).with_context(|| format!("cannot load {path}")),
        }
    }
    Ok(())
}

/// Brings up `lo`, `eth0` and the RDMA link over it, and waits until it can carry traffic.
pub(super) fn network(wanted: &Setup) -> anyhow::Result<()> {
    rustix::system::sethostname(wanted.hostname.as_bytes()).context("sethostname")?;
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
    let deadline = Instant::now() + ACTIVE_TIMEOUT;
    loop {
        let state = fs::read_to_string(port.join("state")).unwrap_or_default();
        if state.trim() == ACTIVE && has_gid(&port) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{device} was not active with a GID within {ACTIVE_TIMEOUT:?}: its state is '{}'",
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
