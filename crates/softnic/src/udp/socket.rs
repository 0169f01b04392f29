//! The socket: packets in batches, in as few system calls as the kernel allows.
//!
//! What peers send comes to one socket, unconnected, since it hears all of them. Packets of connected
//! queue pairs leave by *lanes*, a socket for each peer that is connected to the peer's: of those the
//! kernel looks the way up once and not for each packet, an eighth of what a short message costs. A lane
//! has a UDP port of its own, as RoCEv2 leaves the source port to the sender, for routers that have
//! several ways to choose by (IBTA annex A17).
//!
//! All are "don't fragment", so that no packet is cut underway, and it is known how Linux numbers them:
//! see [`super::numbering`].
//!
//! A ping is two system calls a side and message, so what they cost is the latency: the kernel is not
//! asked for what nobody reads (when a packet came, for which address), everything goes out by plain
//! `send` or `sendto`, and one call receives one datagram, or as many as the kernel has joined. Into what it
//! is to cut a batch the kernel is told by an option of the socket, which stays: a control message, read
//! anew with each batch, would cost a tenth of what sending does. Of which datagrams it has joined what
//! it gives, the kernel says in a control message, too, and that takes `recvmsg`, which costs a fifth
//! more than `recvfrom`: see [`super::seams`].
//!
//! An interface that computes no checksums takes no batches. The packets that it takes instead leave
//! without a checksum, as those of other makes of RoCE: the kernel would go over each byte for it, and the
//! ICRC covers more. (Over IPv6 it is not optional.)

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use adverb_verbs::TrafficClass;
use adverb_wire::ROCE_PORT;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, sendto,
    socket_with, sockopt,
};

use super::address::{interface_index, slot_at};
use super::filter;
use super::message_header::{Control, EMPTY, SocketName, header};
use super::numbering::{Numbering, Probe};

/// Bytes that the socket shall hold, each way: a burst of every peer.
const BUFFER: usize = 8 << 20;
/// Microseconds to look at the network card for: once, for a call that does not wait.
const BUSY_POLL: libc::c_int = 1;
/// The kernel joins datagrams up to the longest IP packet.
pub(super) const LONGEST: usize = 1 << 16;

/// Datagrams that one call can send: what all kernels since Linux 4.18 take (`UDP_MAX_SEGMENTS`).
pub(super) const MOST_SEGMENTS: usize = 64;
/// Datagrams that one call sends one by one: more would hardly make them cheaper.
const MOST_SINGLE: usize = 16;

/// Words of `SO_MEMINFO` up to the count of dropped datagrams (`SK_MEMINFO_DROPS`).
const MEMORY_INFO: usize = 9;

/// Of which packets the kernel computes the UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    All,
    None,
}

/// A peer's socket, and the traffic class of the packets to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remote {
    pub(super) to: SocketAddr,
    pub(super) class: TrafficClass,
}

/// What a lane has besides.
#[derive(Debug)]
struct Lane {
    to: Remote,
    probe: Arc<Probe>,
}

/// A UDP socket at one address.
#[derive(Debug)]
pub(super) struct RoceSocket {
    at: SocketAddr,
    socket: UdpSocket,
    lane: Option<Lane>,
    pub(super) numbering: Numbering,
    /// The kernel cuts what is longer into datagrams of this length; 0: nothing. One thread at a time
    /// sends.
    cut: AtomicUsize,
    /// The kernel computes no checksums, and so cuts nothing.
    is_unchecked: AtomicBool,
    /// Traffic class that the kernel gives to packets.
    class: AtomicU8,
}

impl RoceSocket {
    pub(super) fn bind(mut at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        at.set_port(socket.local_addr()?.port());
        Self::over(socket, at)
    }

    /// A socket for what is sent to a multicast group in the network of `own`; others may have one for
    /// the same. Of the calling thread's network namespace.
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
                let interface = interface_index(own)?;
                bind(&socket, &SocketAddrV6::new(group, ROCE_PORT, 0, interface))?;
                sockopt::set_ipv6_add_membership(&socket, &group, interface)?;
            }
            _ => return Err(io::ErrorKind::AddrNotAvailable.into()),
        }
        Self::over(socket.into(), at)
    }

    /// From now on the kernel drops what is for no queue pair of the slot whose UDP port this is.
    pub(super) fn take_only_served(&self) -> io::Result<()> {
        filter::admit(&self.socket, slot_at(self.at.port()))
    }

    /// Datagrams that the kernel dropped here: by the filter, or because the buffer was full.
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

    /// A socket for what is sent from `own` to one peer's. Of the calling thread's network namespace.
    pub(super) fn lane(own: IpAddr, to: Remote, probe: &Arc<Probe>) -> io::Result<Self> {
        let socket = UdpSocket::bind((own, 0))?;
        socket.connect(to.to)?;
        let at = socket.local_addr()?;
        // Nobody reads what comes.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, 0);
        let mut lane = Self::sending(socket, at)?;
        lane.mark(to.class)?;
        if at.is_ipv4() {
            lane.numbering = Numbering::learn(&lane.socket, probe)?;
        }
        lane.lane = Some(Lane {
            to,
            probe: probe.clone(),
        });
        Ok(lane)
    }

    /// Has what is sent to IPv4 groups leave by the interface of `own`.
    pub(super) fn send_groups_from(&self, own: Ipv4Addr) -> io::Result<()> {
        Ok(sockopt::set_ip_multicast_if(&self.socket, &own)?)
    }

    /// Has what is sent to IPv6 groups leave by this interface.
    pub(super) fn send_groups_by(&self, interface: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_multicast_if(&self.socket, interface)?)
    }

    fn over(socket: UdpSocket, at: SocketAddr) -> io::Result<Self> {
        // Who finds nothing here looks at the network card, too, whose interrupt takes longer to come. Takes
        // the capability to, or `net.core.busy_read`.
        let _ = set(&socket, (libc::SOL_SOCKET, libc::SO_BUSY_POLL), BUSY_POLL);
        // Without it datagrams come one by one.
        let _ = set(&socket, (libc::SOL_UDP, libc::UDP_GRO), 1);
        // Beyond the administrator's limit with the capability to, up to it without. What came of it
        // is what the window goes by.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
        Self::sending(socket, at)
    }

    /// One that sends whole packets, and never waits.
    fn sending(socket: UdpSocket, at: SocketAddr) -> io::Result<Self> {
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
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
        Ok(RoceSocket {
            at,
            socket,
            lane: None,
            numbering: Numbering::Zero,
            cut: AtomicUsize::new(0),
            is_unchecked: AtomicBool::new(false),
            class: AtomicU8::new(0),
        })
    }

    /// Bytes that wait for this process at most.
    pub(super) fn receive_buffer(&self) -> usize {
        sockopt::socket_recv_buffer_size(&self.socket).unwrap_or(0)
    }

    /// Sends `contents`, datagrams of `segment` bytes (the last may be shorter).
    ///
    /// # Errors
    /// The kernel's; of several datagrams none was sent. [`never_cuts`] tells what is to be expected of
    /// the next ones.
    pub(super) fn send(&self, to: Remote, contents: &[u8], segment: usize) -> io::Result<()> {
        let Remote { to, class } = to;
        self.mark(class)?;
        let is_one = contents.len() <= segment;
        if !is_one {
            self.compute(Checksums::All)?;
        }
        if !self.cuts_well(contents.len(), segment) {
            self.cut_into(segment)?;
        }
        match self.send_as_set(to, contents) {
            // While it is to cut, a kernel may refuse even what needs none: where the cut would be too
            // long for the interface, or cannot be made there. (A lane has to count anew.)
            Err(e) if is_one && is_refusal(&e) && self.cuts() && self.lane.is_none() => {
                self.cut_into(0)?;
                self.send_as_set(to, contents)
            }
            sent => sent,
        }
    }

    /// The bare system call, as in [`RoceSocket::receive_plainly`]: those of the C library can be
    /// cancelled, which costs them two atomic operations.
    #[inline]
    fn send_as_set(&self, to: SocketAddr, contents: &[u8]) -> io::Result<()> {
        match self.lane {
            None => sendto(&self.socket, contents, SendFlags::empty(), &to)?,
            Some(_) => send(&self.socket, contents, SendFlags::empty())?,
        };
        self.numbering.count(1);
        Ok(())
    }

    /// After a refusal, of which it is not known whether it was counted; from now on nothing is cut.
    ///
    /// # Errors
    /// The count is not known any more.
    #[cold]
    pub(super) fn count_anew(&self) -> io::Result<()> {
        if let Some(Lane { probe, .. }) = &self.lane {
            self.cut_into(0)?;
            self.numbering.set(&Numbering::learn(&self.socket, probe)?);
        }
        Ok(())
    }

    /// Has its probe hear nothing more, so that it learns nothing more.
    #[cfg(all(test, not(loom)))]
    pub(super) fn lose_count(&self) {
        let lane = self.lane.as_ref().expect("it is a lane");
        lane.probe.listen_to_nobody();
    }

    /// Where it leads, if it is a lane.
    pub(super) fn leads_to(&self) -> Option<Remote> {
        self.lane.as_ref().map(|lane| lane.to)
    }

    /// The address that it is bound to.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Sends datagrams of `segment` bytes (the last may be shorter) one by one; how many, at least one.
    ///
    /// # Errors
    /// The kernel's of the first one.
    pub(super) fn send_singly(
        &self,
        Remote { to, class }: Remote,
        contents: &[u8],
        segment: usize,
    ) -> io::Result<usize> {
        self.mark(class)?;
        if self.cuts() {
            self.cut_into(0)?;
        }
        self.compute(match to {
            SocketAddr::V4(_) => Checksums::None,
            SocketAddr::V6(_) => Checksums::All,
        })?;
        if contents.len() <= segment {
            // The shorter way into the kernel.
            return self.send_as_set(to, contents).map(|()| 1);
        }
        let (mut name, name_length) = match self.lane {
            None => SocketName::of(to),
            Some(_) => (SocketName::default(), 0),
        };
        let mut pieces = [const { EMPTY }; MOST_SINGLE];
        // SAFETY: all of a header's fields may be 0.
        let mut headers: [libc::mmsghdr; MOST_SINGLE] = unsafe { std::mem::zeroed() };
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
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        self.numbering.count(sent);
        Ok(sent)
    }

    /// From now on the kernel computes these checksums. Over IPv4, where they are optional.
    fn compute(&self, checksums: Checksums) -> io::Result<()> {
        let unchecked = checksums == Checksums::None;
        if self.is_unchecked.load(Ordering::Relaxed) == unchecked {
            return Ok(());
        }
        let option = (libc::SOL_SOCKET, libc::SO_NO_CHECK);
        set(&self.socket, option, unchecked.into())?;
        self.is_unchecked.store(unchecked, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the packets that follow this traffic class. The option stays set, so that as long as the class
    /// is the same no system call is made: a lane's never changes, the class on the main socket does where
    /// datagrams of several classes alternate.
    #[inline]
    fn mark(&self, class: TrafficClass) -> io::Result<()> {
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

    fn cuts(&self) -> bool {
        self.cut.load(Ordering::Relaxed) != 0
    }

    /// Whether as it cuts now `length` bytes become datagrams of `segment` bytes, or a single one.
    fn cuts_well(&self, length: usize, segment: usize) -> bool {
        match self.cut.load(Ordering::Relaxed) {
            cut if length > segment => cut == segment,
            0 => true,
            cut => length <= cut,
        }
    }

    /// From now on the kernel cuts what is sent into datagrams of so many bytes; 0: not at all.
    fn cut_into(&self, segment: usize) -> io::Result<()> {
        let option = (libc::SOL_UDP, libc::UDP_SEGMENT);
        set(&self.socket, option, segment as libc::c_int)?;
        self.cut.store(segment, Ordering::Relaxed);
        Ok(())
    }

    /// Receives what the kernel gives at once, whatever it has joined for it; its length, and whence.
    pub(super) fn receive_plainly(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (_, length, from) = recvfrom(&self.socket, into, RecvFlags::empty())?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        Ok((length, from.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Receives what the kernel gives at once, and of which datagrams it has joined it.
    pub(super) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        let mut from = SocketName::default();
        let mut control = Control::default();
        let mut piece = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let mut header = header(&mut from, &mut piece, &mut control);
        // SAFETY: the header's pointers are to what stands above and to `into`, with their lengths.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        let from = from.address(header.msg_namelen);
        Ok(Received {
            from: from.ok_or(io::ErrorKind::InvalidData)?,
            length,
            each: control.segment(&header).unwrap_or(length).max(1),
        })
    }
}

impl AsFd for RoceSocket {
    /// Readable while datagrams wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the kernel does not take it at all, rather than not now.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::WouldBlock
}

/// Whether the refusal of a batch will be that of the next one, too: the interface computes no checksums,
/// or the kernel does not cut.
pub(super) fn never_cuts(refusal: &io::Error) -> bool {
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

/// What one call received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) length: usize,
    /// Length of each datagram of it but the last.
    pub(super) each: usize,
}
