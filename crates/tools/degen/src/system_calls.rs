//! System calls on interfaces and namespaces that rustix has no safe function for.
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use libc::{ifreq, sockaddr, sockaddr_in};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

/// Packets that an interface queues for the router, which may wait for a core.
const QUEUE: i32 = 50_000;

/// Moves the calling thread into new namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only a separate table of file descriptors would invalidate descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Starts a program that the kernel kills when the calling thread ends.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match getppid() == Some(parent) {
            true => Ok(()),
            // It has ended before.
            false => Err(Errno::SRCH.into()),
        }
    };
    // SAFETY: between fork and exec only two system calls are made.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// Returns a request for the interface with this name.
fn request(name: &str) -> ifreq {
    // SAFETY: all fields are integers, addresses of integers, or pointers that may be null.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len());
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

fn set<const OPCODE: Opcode>(fd: BorrowedFd<'_>, request: ifreq) -> io::Result<()> {
    // SAFETY: the opcodes below are those of ioctls that read an `ifreq`. TUNSETIFF also writes the name, which
    // `Setter` has copied to its own memory.
    unsafe { ioctl(fd, Setter::<OPCODE, ifreq>::new(request)) }.map_err(Into::into)
}

fn address(ip: Ipv4Addr) -> sockaddr {
    // SAFETY: an all-zero sockaddr_in is valid.
    let mut address: sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as u16;
    address.sin_addr.s_addr = u32::from(ip).to_be();
    // SAFETY: both are 16 bytes of integers.
    unsafe { std::mem::transmute(address) }
}

/// Opens /dev/net/tun.
pub(crate) fn open_tun() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(Into::into)
}

/// Makes `tun` the other end of a new interface in the calling thread's network namespace: up, with a route from `own` to
/// `peer`.
pub(crate) fn make_interface(
    tun: &OwnedFd,
    name: &str,
    [own, peer]: [Ipv4Addr; 2],
    mtu: u32,
) -> io::Result<()> {
    let mut attach = request(name);
    attach.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    set::<{ libc::TUNSETIFF as Opcode }>(tun.as_fd(), attach)?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let with = |change: fn(&mut ifreq, u32), value| {
        let mut request = request(name);
        change(&mut request, value);
        request
    };
    let fd = socket.as_fd();
    // Only root of the whole machine may lengthen the queue; a burst that exceeds the usual one loses packets.
    let _ = set::<{ libc::SIOCSIFTXQLEN as Opcode }>(
        fd,
        with(|r, _| r.ifr_ifru.ifru_metric = QUEUE, 0),
    );
    set::<{ libc::SIOCSIFMTU as Opcode }>(
        fd,
        with(|r, mtu| r.ifr_ifru.ifru_mtu = mtu as i32, mtu),
    )?;
    set::<{ libc::SIOCSIFADDR as Opcode }>(
        fd,
        with(
            |r, ip| r.ifr_ifru.ifru_addr = address(ip.into()),
            own.into(),
        ),
    )?;
    set::<{ libc::SIOCSIFDSTADDR as Opcode }>(
        fd,
        with(
            |r, ip| r.ifr_ifru.ifru_dstaddr = address(ip.into()),
            peer.into(),
        ),
    )?;
    bring_up(fd, name)
}

/// Brings up the loopback interface of the calling thread's network namespace.
pub(crate) fn bring_up_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    bring_up(socket.as_fd(), "lo")
}

fn bring_up(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut up = request(name);
    up.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    set::<{ libc::SIOCSIFFLAGS as Opcode }>(fd, up)
}
