//! When the kernel received a datagram (`SO_TIMESTAMPNS`): unlike the time at which a thread reads it, this does not depend
//! on whether the thread has a core.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Room for a control message with a `timespec`.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Has the kernel note when it receives a datagram.
pub(crate) fn turn_on(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is an int, of that length.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives a datagram; returns the time of day at which the kernel received it.
pub(crate) fn receive(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Duration> {
    let mut piece = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let mut control = Control([0; 64]);
    // SAFETY: all fields are integers or pointers that may be null.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the header's pointers are to the variables above and to `into`, with their lengths.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled in the header; a control message that it returns is within `control`.
    let time = unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header).as_ref();
        let stamp = message.filter(|message| message.cmsg_type == libc::SCM_TIMESTAMPNS);
        stamp.map(|stamp| {
            libc::CMSG_DATA(stamp)
                .cast::<libc::timespec>()
                .read_unaligned()
        })
    };
    let time = time.ok_or_else(|| io::Error::other("the kernel reports no time of arrival"))?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}
