//! The user-space NIC's UDP port and a device of libibverbs as each other's peers, in one process:
//! the former opens in the network namespace of a machine's second card.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use adverb_ibverbs::{VerbsContext, VerbsDevice};
use adverb_softnic::{SoftContext, SoftDevice};
use adverb_verbs::{Device, OpenError};
use adverb_vm::{PEER_ADDRESS, PEER_NAMESPACE};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::either::Either;

/// The device of a pair's first end, which is the active one in most cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    Soft,
    Verbs,
}

impl First {
    pub(crate) const BOTH: [First; 2] = [First::Soft, First::Verbs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            First::Soft => "soft",
            First::Verbs => "verbs",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        First::BOTH.into_iter().find(|first| first.name() == name)
    }
}

/// Contexts of a case that can be the user-space NIC's. Foreign devices reach one at an address.
const ADDRESSES: u8 = 30;

/// Opens the user-space NIC and the other device in turn.
#[derive(Debug)]
pub(crate) struct Mixed {
    verbs: VerbsDevice,
    first: First,
    opened: AtomicU8,
}

impl Mixed {
    pub(crate) fn new(verbs: VerbsDevice, first: First) -> Self {
        let opened = AtomicU8::new(0);
        Mixed {
            verbs,
            first,
            opened,
        }
    }
}

/// The context of one device or the other.
pub(crate) type MixedContext = Either<SoftContext, VerbsContext>;

impl Mixed {
    /// Opens one device, and the other the next time.
    pub(crate) fn open(&self) -> Result<MixedContext, OpenError> {
        let count = self.opened.fetch_add(1, Ordering::Relaxed);
        let is_first = count.is_multiple_of(2);
        if is_first == (self.first == First::Soft) {
            open_soft(count / 2).map(Either::One)
        } else {
            self.open_for_station()
        }
    }

    /// Opens the device that takes no address of the namespace.
    pub(crate) fn open_for_station(&self) -> Result<MixedContext, OpenError> {
        self.verbs.open().map(Either::Other)
    }
}

/// The address of the `count`th context.
fn address(count: u8) -> Ipv4Addr {
    let first: Ipv4Addr = PEER_ADDRESS.parse().expect("an address");
    let [a, b, c, d] = first.octets();
    Ipv4Addr::new(a, b, c, d + count)
}

/// Opens it in its namespace, to which its sockets then belong; the caller stays in its own.
fn open_soft(count: u8) -> Result<SoftContext, OpenError> {
    assert!(count < ADDRESSES, "a case opens {count} user-space NICs");
    let open = || {
        let path = format!("/run/netns/{PEER_NAMESPACE}");
        let namespace = File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .unwrap_or_else(|e| panic!("cannot enter {path}: {e}"));
        SoftDevice::at(IpAddr::V4(address(count))).open()
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives the namespace an address for each context; it has the first.
pub(crate) fn prepare() -> Result<(), String> {
    let mut ip = Command::new("ip")
        .args(["-n", PEER_NAMESPACE, "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| format!("ip: {e}"))?;
    let mut commands = ip.stdin.take().expect("a pipe");
    for count in 1..ADDRESSES {
        let line = format!("address add {}/24 dev eth1\n", address(count));
        commands
            .write_all(line.as_bytes())
            .map_err(|e| e.to_string())?;
    }
    drop(commands);
    let status = ip.wait().map_err(|e| e.to_string())?;
    status
        .success()
        .then_some(())
        .ok_or(format!("ip -batch: {status}"))
}
