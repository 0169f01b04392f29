//! The UDP sockets of a port, which send and receive batches in as few system calls as the kernel allows.
//!
//! One socket, the main socket, receives from all peers and sends to all; it is not connected. A connected socket
//! for each peer, whose route the kernel would look up only once, saves 4 to 5 % of a short message's time, but
//! Linux counts the packets of a connected socket in their IP identification, which the ICRC covers, from a random
//! number that it does not report.
//!
//! All sockets set "don't fragment": no packet is fragmented on its way, and the IP identification is known. It is
//! 0, and in a GSO batch the packet's index in the batch.
//!
//! A ping is two system calls per side and message, so their cost is its latency:
//! - The kernel is not asked for information that nobody reads (timestamps, destination addresses).
//! - Sending is a plain `send` or `sendto`. The GSO segment size is set by a socket option, which persists; as a
//!   control message it would make sending 10 % slower.
//! - One call receives one datagram or one GRO buffer. Its segment size comes in a control message, which requires
//!   `recvmsg`. (With `recvfrom`, and packet boundaries guessed from the ICRCs, a ping was only 4 % faster.)
//!
//! GSO requires an interface that computes checksums. Through others, packets are sent one by one and without a UDP
//! checksum, as other RoCE implementations send them: the kernel would read each byte for it, and the ICRC
//! covers more. (Over IPv6 the checksum is mandatory.)

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use adverb_verbs::TrafficClass;
use adverb_wire::ROCE_PORT;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with, sockopt,
};

use super::address::interface_to_group;
use super::capture::{Capture, Numbering};
use super::filter;
use super::message_header::{Control, EMPTY, SocketName, header};
use super::packet::Remote;
use crate::shm::fork::Withheld;

/// Requested size of the socket's buffers in bytes: room for a burst from every peer.
const BUFFER: usize = 8 << 20;
/// `SO_BUSY_POLL` in microseconds: a non-blocking call polls the network card once.
const BUSY_POLL: libc::c_int = 1;
/// Maximum length of a GRO buffer: the longest IP packet.
pub(super) const LONGEST: usize = 1 << 16;

/// Maximum number of segments of a GSO batch, on all kernels since Linux 4.18 (`UDP_MAX_SEGMENTS`).
pub(super) const MAX_SEGMENTS: usize = 64;
/// Maximum number of datagrams per `sendmmsg`: more would hardly make them cheaper.
const MAX_UNBATCHED: usize = 16;

/// Words of `SO_MEMINFO` up to the count of dropped datagrams (`SK_MEMINFO_DROPS`).
const MEMORY_INFO: usize = 9;

/// Whether the kernel computes UDP checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    All,
    None,
}

/// A UDP socket at one address.
#[derive(Debug)]
pub(super) struct RoceSocket {
    at: SocketAddr,
    _withheld: Withheld,
    socket: UdpSocket,
    /// GSO segment size that is set, in bytes; 0: GSO is off. Relaxed: only one thread at a time sends.
    gso_size: AtomicUsize,
    /// `SO_NO_CHECK` is set: no checksums, hence no GSO.
    is_unchecked: AtomicBool,
    /// Traffic class that is set.
    class: AtomicU8,
    capture: Option<Arc<Capture>>,
}

impl RoceSocket {
    pub(super) fn bind(mut at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        at.set_port(socket.local_addr()?.port());
        Self::over(socket, at)
    }

    /// Binds a socket to a multicast group on the interface of `own`, in the calling thread's network
    /// namespace. Other processes may bind the same group.
    pub(super) fn join(group: IpAddr, own: IpAddr) -> io::Result<Self> {
        let family = match group {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        let at = SocketAddr::new(group, ROCE_PORT);
        match (group, own) {
            (IpAddr::V4(group), IpAddr::V4(own)) => {
                bind(&socket, &at)?;
                sockopt::set_ip_add_membership(&socket, &group, &own)?;
            }
            (IpAddr::V6(group), _) => {
                let interface = interface_to_group(own, group.into())?;
                bind(&socket, &SocketAddrV6::new(group, ROCE_PORT, 0, interface))?;
                sockopt::set_ipv6_add_membership(&socket, &group, interface)?;
            }
            _ => return Err(io::ErrorKind::AddrNotAvailable.into()),
        }
        Self::over(socket.into(), at)
    }

    /// Attaches a filter that drops congestion notifications.
    pub(super) fn refuse_notifications(&self) -> io::Result<()> {
        filter::refuse_notifications(&self.socket)
    }

    /// Returns the number of datagrams that the kernel dropped: by the filter, or because the buffer was full.
    pub(super) fn dropped(&self) -> u64 {
        let mut info = [0_u32; MEMORY_INFO];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `info`, and how many to `length`.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        match done {
            0 => info[MEMORY_INFO - 1].into(),
            _ => 0,
        }
    }

    /// Sends datagrams to IPv4 groups through the interface of `own`.
    pub(super) fn send_groups_from(&self, own: Ipv4Addr) -> io::Result<()> {
        Ok(sockopt::set_ip_multicast_if(&self.socket, &own)?)
    }

    /// Sends datagrams to IPv6 groups through this interface.
    pub(super) fn send_groups_by(&self, interface: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_if(&self.socket, interface)?)
    }

    fn over(socket: UdpSocket, at: SocketAddr) -> io::Result<Self> {
        // A receive that finds nothing polls the network card, which is faster than its interrupt. Requires
        // CAP_NET_ADMIN; `net.core.busy_read` does the same.
        let _ = set(&socket, (libc::SOL_SOCKET, libc::SO_BUSY_POLL), BUSY_POLL);
        // Without GRO, each datagram takes a call.
        let _ = set(&socket, (libc::SOL_UDP, libc::UDP_GRO), 1);
        // Beyond `net.core.rmem_max` with CAP_NET_ADMIN, up to it without. The window of connections depends on the
        // size that results.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        socket.set_nonblocking(true)?;
        match at {
            SocketAddr::V4(_) => set(
                &socket,
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
                libc::IP_PMTUDISC_PROBE,
            )?,
            SocketAddr::V6(_) => {
                let probe = libc::IPV6_PMTUDISC_PROBE;
                set(
                    &socket,
                    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
                    probe,
                )?;
                set(&socket, (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG), 1)?;
            }
        }
        Ok(RoceSocket {
            at,
            _withheld: Withheld::new(socket.as_fd()),
            socket,
            gso_size: AtomicUsize::new(0),
            is_unchecked: AtomicBool::new(false),
            class: AtomicU8::new(0),
            capture: None,
        })
    }

    /// Adds all packets to a capture from now on.
    pub(super) fn capture_to(&mut self, capture: Option<Arc<Capture>>) {
        self.capture = capture;
    }

    pub(super) fn capture(&self) -> Option<&Arc<Capture>> {
        self.capture.as_ref()
    }

    /// Returns the size of the receive buffer in bytes.
    pub(super) fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.socket).unwrap_or(0)
    }

    /// Sends `contents`, datagrams of `segment` bytes (the last may be shorter).
    ///
    /// # Errors
    /// The kernel's; no datagram was sent. [`refuses_gso`] returns whether GSO would fail again.
    pub(super) fn send(&self, to: Remote, contents: &[u8], segment: usize) -> io::Result<()> {
        self.send_batch(to, contents, segment)?;
        if let Some(capture) = &self.capture {
            capture.sent((self.at, to), contents, (segment, Numbering::Counted));
        }
        Ok(())
    }

    #[inline]
    fn send_batch(
        &self,
        Remote { to, class }: Remote,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        self.set_traffic_class(class)?;
        let is_one = contents.len() <= segment;
        if !is_one {
            self.set_checksums(Checksums::All)?;
        }
        if !self.gso_size_fits(contents.len(), segment) {
            self.set_gso_size(segment)?;
        }
        match self.send_raw(to, contents) {
            // With a GSO size set, a kernel may refuse even a single datagram: if the size exceeds the MTU, or the
            // interface cannot segment.
            Err(e) if is_one && is_refusal(&e) && self.uses_gso() => {
                self.set_gso_size(0)?;
                self.send_raw(to, contents)
            }
            sent => sent,
        }
    }

    /// A raw system call, as in [`RoceSocket::receive`]: the C library's functions are cancellation points, which cost
    /// two atomic operations.
    #[inline]
    fn send_raw(&self, to: SocketAddr, contents: &[u8]) -> io::Result<()> {
        sendto(&self.socket, contents, SendFlags::empty(), &to)?;
        Ok(())
    }

    /// Returns the local address.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Sends datagrams of `segment` bytes (the last may be shorter) without GSO. Returns how many were sent, at
    /// least one.
    ///
    /// # Errors
    /// The kernel's, for the first datagram.
    pub(super) fn send_unbatched(
        &self,
        to: Remote,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        let count = self.send_each(to, contents, segment)?;
        if let Some(capture) = &self.capture {
            let sent = &contents[..contents.len().min(count * segment)];
            capture.sent((self.at, to), sent, (segment, Numbering::Zero));
        }
        Ok(count)
    }

    fn send_each(
        &self,
        Remote { to, class }: Remote,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        self.set_traffic_class(class)?;
        if self.uses_gso() {
            self.set_gso_size(0)?;
        }
        self.set_checksums(match to {
            SocketAddr::V4(_) => Checksums::None,
            SocketAddr::V6(_) => Checksums::All,
        })?;
        if contents.len() <= segment {
            // A cheaper system call.
            return self.send_raw(to, contents).map(|()| 1);
        }
        let (mut name, name_length) = SocketName::of(to);
        let mut pieces = [const { EMPTY }; MAX_UNBATCHED];
        // SAFETY: all of a header's fields may be 0.
        let mut headers: [libc::mmsghdr; MAX_UNBATCHED] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let places = pieces.iter_mut().zip(&mut headers);
        for ((piece, header), datagram) in places.zip(contents.chunks(segment)) {
            // The kernel does not write what it sends.
            piece.iov_base = datagram.as_ptr().cast_mut().cast();
            piece.iov_len = datagram.len();
            header.msg_hdr.msg_name = (&raw mut name).cast();
            header.msg_hdr.msg_namelen = name_length;
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: the pointers of the first `count` headers are to `name`, `pieces` and `contents`, with
        // their lengths.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Turns UDP checksums on or off; they are optional over IPv4.
    fn set_checksums(&self, checksums: Checksums) -> io::Result<()> {
        let unchecked = checksums == Checksums::None;
        if self.is_unchecked.load(Ordering::Relaxed) == unchecked {
            return Ok(());
        }
        let option = (libc::SOL_SOCKET, libc::SO_NO_CHECK);
        set(&self.socket, option, unchecked.into())?;
        self.is_unchecked.store(unchecked, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the traffic class of the next packets. Makes no system call while the class stays the same.
    #[inline]
    fn set_traffic_class(&self, class: TrafficClass) -> io::Result<()> {
        match self.class.load(Ordering::Relaxed) == class.0 {
            true => Ok(()),
            false => self.set_class(class),
        }
    }

    #[cold]
    fn set_class(&self, class: TrafficClass) -> io::Result<()> {
        let option = match self.at {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        set(&self.socket, option, class.0.into())?;
        self.class.store(class.0, Ordering::Relaxed);
        Ok(())
    }

    fn uses_gso(&self) -> bool {
        self.gso_size.load(Ordering::Relaxed) != 0
    }

    /// Whether the GSO size that is set turns `length` bytes into datagrams of `segment` bytes.
    fn gso_size_fits(&self, length: usize, segment: usize) -> bool {
        match self.gso_size.load(Ordering::Relaxed) {
            gso_size if length > segment => gso_size == segment,
            0 => true,
            gso_size => length <= gso_size,
        }
    }

    /// Sets the GSO segment size in bytes; 0 turns GSO off.
    fn set_gso_size(&self, segment: usize) -> io::Result<()> {
        let option = (libc::SOL_UDP, libc::UDP_SEGMENT);
        set(&self.socket, option, segment as libc::c_int)?;
        self.gso_size.store(segment, Ordering::Relaxed);
        Ok(())
    }

    /// Receives a datagram or GRO buffer, with its segment size.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        let mut from = SocketName::default();
        let mut control = Control::default();
        let mut piece = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let mut header = header(&mut from, &mut piece, &mut control);
        // SAFETY: the header's pointers are to the variables above and to `into`, with their lengths.
        let length = unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                self.socket.as_raw_fd(),
                &raw mut header,
                0,
            )
        };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let from = from.address(header.msg_namelen);
        Ok(Received {
            from: from.ok_or(io::ErrorKind::InvalidData)?,
            length,
            segment: control.segment(&header).unwrap_or(length).max(1),
        })
    }
}

impl AsFd for RoceSocket {
    /// Readable while datagrams are waiting.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the kernel refused a send for another reason than a full buffer.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::WouldBlock
}

/// Whether the next GSO batch would be refused, too: the interface computes no checksums, or the kernel does not
/// support GSO.
pub(super) fn refuses_gso(refusal: &io::Error) -> bool {
    let lasting = [libc::EIO, libc::EINVAL, libc::ENOPROTOOPT, libc::EOPNOTSUPP];
    let number = refusal.raw_os_error();
    number.is_some_and(|number| lasting.contains(&number))
}

/// Sets an option, given as level and name, whose value is an int.
fn set(
    socket: &UdpSocket,
    (level, name): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the value is an int, of that length.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A received datagram or GRO buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) length: usize,
    /// Length of each datagram except the last.
    pub(super) segment: usize,
}
