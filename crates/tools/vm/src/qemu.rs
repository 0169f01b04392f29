//! The QEMU process of one machine.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use adverb_units::Bytes;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::console::Console;
use crate::needs::QEMU;
use crate::protocol::{HOST_FILES, PORT};

/// PCI and an interrupt controller; of the rest, which takes time to probe, what can be left out
/// is. Without HPET the guest's clock is the TSC, which a program reads without leaving it.
const MACHINE: &str = "q35,usb=off,sata=off,smbus=off,i8042=off,vmport=off,hpet=off";

/// All that QEMU emulates, except features that are slow there and that the kernel and programs would use
/// because they are fast elsewhere: string instructions copy byte by byte (`erms`, `fsrm`), carry-less
/// products, with which CRCs are made, bit by bit (`pclmulqdq`).
const PROCESSOR: &str = "max,erms=off,fsrm=off,pclmulqdq=off";

/// The kernel's options (admin-guide/kernel-parameters.rst).
const KERNEL_OPTIONS: [&str; 13] = [
    "console=ttyS0",
    "quiet",
    "loglevel=4",
    // A panic or an oops restarts the machine, and QEMU ends instead of restarting.
    "panic=-1",
    "oops=panic",
    // QEMU's processors share one TSC; measuring whether they do takes time and fails on a loaded
    // host.
    "tsc=reliable",
    "no_timer_check",
    // Nobody is kept out of this machine.
    "mitigations=off",
    "lsm=capability",
    "audit=0",
    // Without watchdogs and tests: an emulated processor may stop for a while.
    "nowatchdog",
    "cryptomgr.notests",
    "initcall_blacklist=crypto_kdf108_init",
];

/// This host's files. Inode numbers are remapped, because several file systems may use the same ones.
const HOST_FILES_OPTION: &str =
    "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap";

/// The ends of cards, as QEMU names them.
const WIRE: &str = "wire";
const SECOND_WIRE: &str = "second";

/// What is behind the machine's network card.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    /// Nothing: the machine talks to itself.
    Open,
    /// A second card of the same machine.
    Looped,
    /// One end of a link: names of datagram sockets in QEMU's working folder.
    Joined {
        here: &'static str,
        there: &'static str,
    },
}

impl Wire {
    fn option(&self) -> String {
        match self {
            Wire::Open | Wire::Looped => format!("hubport,id={WIRE},hubid=0"),
            Wire::Joined { here, there } => format!(
                "dgram,id={WIRE},local.type=unix,local.path={here},\
                 remote.type=unix,remote.path={there}"
            ),
        }
    }

    /// What else is on the wire.
    fn second(&self) -> Option<String> {
        matches!(self, Wire::Looped).then(|| format!("hubport,id={SECOND_WIRE},hubid=0"))
    }
}

/// One machine's hardware.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) processors: u32,
    pub(crate) memory: Bytes,
    pub(crate) number: u32,
    /// Most bytes of an IP packet over the network card.
    pub(crate) mtu: u16,
    pub(crate) wire: Wire,
    /// Where what its first card sends and receives is written, as pcap.
    pub(crate) capture: Option<PathBuf>,
    /// QEMU's working folder; short names of sockets are relative to it.
    pub(crate) folder: PathBuf,
}

/// A running QEMU; dropping it kills it.
///
/// The harness and the guest talk over a socket pair, whose other end is QEMU's standard input, so
/// each notices the other's end. A thread per machine starts QEMU and waits for it: the kernel
/// kills QEMU when that thread ends, which it does with the process.
pub(crate) struct Qemu {
    pid: Pid,
    handle: OwnedFd,
    keeper: Option<JoinHandle<io::Result<ExitStatus>>>,
}

impl Qemu {
    /// Starts QEMU; gives the harness's end of the port.
    pub(crate) fn start(hardware: &Hardware, console: &Console) -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let (log, serial) = UnixStream::pair()?;
        let mut command = command(hardware);
        command
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(serial))
            .stderr(Stdio::piped());
        let (started, start) = mpsc::channel();
        let console = console.clone();
        let keeper = thread::spawn(move || {
            let child = command.spawn();
            // Closes this process's copies of QEMU's ends.
            drop(command);
            keep(child, &started, &console, log)
        });
        match start.recv() {
            Ok((pid, handle)) => {
                let keeper = Some(keeper);
                let qemu = Qemu {
                    pid,
                    handle,
                    keeper,
                };
                Ok((qemu, ours))
            }
            Err(_) => Err(match keeper.join().expect("the keeper does not panic") {
                Err(error) => error,
                Ok(status) => io::Error::other(status.to_string()),
            }),
        }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether QEMU has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.keeper.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Kills QEMU, if it still runs, and gives what it ended with.
    pub(crate) fn end(&mut self) -> Option<io::Result<ExitStatus>> {
        let keeper = self.keeper.take()?;
        // Fails only if it has already ended.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        Some(keeper.join().expect("the keeper does not panic"))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.end();
    }
}

fn keep(
    child: io::Result<Child>,
    started: &mpsc::Sender<(Pid, OwnedFd)>,
    console: &Console,
    log: UnixStream,
) -> io::Result<ExitStatus> {
    let mut child = child?;
    let pid = Pid::from_child(&child);
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(error) => {
            child.kill()?;
            child.wait()?;
            return Err(error.into());
        }
    };
    let stderr = child.stderr.take().expect("stderr is piped");
    let follow = console.clone();
    let messages = thread::spawn(move || follow.follow(stderr));
    let follow = console.clone();
    let serial = thread::spawn(move || follow.follow(log));
    let _ = started.send((pid, handle));
    let status = child.wait();
    // Both end with QEMU, which has ended.
    let _ = (messages.join(), serial.join());
    status
}

fn command(hardware: &Hardware) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", QEMU])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-accel", "tcg,thread=multi"])
        .args(["-machine", MACHINE, "-cpu", PROCESSOR])
        .args(["-smp", &hardware.processors.to_string()])
        .args(["-m", &format!("{}M", hardware.memory.get() >> 20)])
        .arg("-kernel")
        .arg(&hardware.kernel)
        .arg("-initrd")
        .arg(&hardware.initrd)
        .args(["-append", &KERNEL_OPTIONS.join(" ")])
        .args(["-chardev", "socket,id=serial,fd=1"])
        .args(["-serial", "chardev:serial"])
        .args(["-chardev", "socket,id=port,fd=0"])
        .args(["-device", "virtio-serial-pci,max_ports=2"])
        .args([
            "-device",
            &format!("virtserialport,chardev=port,name={PORT}"),
        ])
        .args(["-fsdev", HOST_FILES_OPTION, "-device"])
        .arg(format!("virtio-9p-pci,fsdev=files,mount_tag={HOST_FILES}"))
        .current_dir(&hardware.folder);
    network(&mut command, hardware);
    command
}

fn network(command: &mut Command, hardware: &Hardware) {
    let mut card = |wire: &str, option: &str, mac: String| {
        let mtu = hardware.mtu;
        let device = format!("virtio-net-pci,netdev={wire},mac={mac},host_mtu={mtu},romfile=");
        command.args(["-netdev", option, "-device", &device]);
    };
    let number = hardware.number;
    let wire = &hardware.wire;
    card(WIRE, &wire.option(), format!("52:54:00:ad:be:{number:02x}"));
    if let Some(second) = wire.second() {
        card(SECOND_WIRE, &second, format!("52:54:00:ad:bf:{number:02x}"));
    }
    if let Some(capture) = &hardware.capture {
        // A comma is written twice in QEMU's options.
        let file = capture.to_string_lossy().replace(',', ",,");
        let dump = format!("filter-dump,id=capture,netdev={WIRE},file={file}");
        command.args(["-object", &dump]);
    }
}
