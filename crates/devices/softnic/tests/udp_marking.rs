//! The traffic class of packets, as a socket at the other end receives them; and that a queue pair or
//! address handle is refused whose packets would not carry what it asks for.

#![allow(unsafe_code)] // control messages, and in what tests share

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use adverb_softnic::{SoftAh, SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AckTimeout, AddressHandle, AddressVector, Context, Destination, MemoryRegion, Operation,
    PathMtu, Psn, QpAttr, QpCaps, QpState, QpType, Qpn, QueuePair, SendFlags, SendRequest,
    ServiceLevel, TrafficClass, WcStatus, WrId,
};
use common::network::{How, Network, connect_to};
use common::{End, QKEY, isolated, not_run};

/// The standard's UDP port, at which other makes of NICs receive.
const ROCE_PORT: u16 = 4791;

/// A socket in the place of another make of NIC, which answers nothing.
struct Foreign(UdpSocket);

/// A packet as it arrived.
struct Arrived {
    class: u8,
    dest_qpn: u32,
}

impl Foreign {
    fn new(ip: IpAddr) -> Self {
        let socket = UdpSocket::bind((ip, ROCE_PORT)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        let (level, name) = match ip {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        };
        let yes: libc::c_int = 1;
        let length = size_of_val(&yes) as libc::socklen_t;
        // SAFETY: the option's value is an int.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const yes).cast(),
                length,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        Foreign(socket)
    }

    /// The next packet; `None` if none arrives soon.
    fn receive(&self) -> Option<Arrived> {
        let (mut bytes, mut control) = ([0_u8; 128], [0_u64; 16]);
        // SAFETY: all of the structure may be 0.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        let mut piece = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: the header's pointers are to what is above, with their lengths.
        let length = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0) };
        (length >= 12).then(|| Arrived {
            class: class_of(&header).expect("the kernel tells it"),
            dest_qpn: u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]),
        })
    }
}

/// Returns the type of service or traffic class of a received packet, which the kernel reports.
fn class_of(header: &libc::msghdr) -> Option<u8> {
    // SAFETY: the kernel wrote whole control messages to the room that the header names; the macros do
    // not leave them. Of IPv4 the value is a byte, of IPv6 an int.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header).as_ref()?;
        let value = libc::CMSG_DATA(message);
        match (message.cmsg_level, message.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_TOS) => Some(*value),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                u8::try_from(value.cast::<libc::c_int>().read_unaligned()).ok()
            }
            _ => None,
        }
    }
}

fn marked(address: AddressVector, class: u8) -> AddressVector {
    AddressVector {
        traffic_class: TrafficClass(class),
        ..address
    }
}

fn level(address: AddressVector) -> AddressVector {
    AddressVector {
        service_level: ServiceLevel::new(3).unwrap(),
        ..address
    }
}

/// What takes a queue pair to RTR, to the queue pair `dest`.
fn to_rtr(qp_type: QpType, address: AddressVector, dest: u32) -> QpAttr {
    let dest = Qpn::new(dest).unwrap();
    let mut rtr = QpAttr::to_rtr(address, dest, Psn::new(0), PathMtu::B256);
    if qp_type == QpType::Uc {
        (rtr.max_dest_rd_atomic, rtr.min_rnr_timer) = (None, None);
    }
    rtr
}

fn connected(end: &End, qp_type: QpType, (address, dest): (AddressVector, u32)) -> SoftQp {
    let qp = end.in_init(qp_type);
    qp.modify(&to_rtr(qp_type, address, dest)).unwrap();
    let mut rts = QpAttr::to(QpState::Rts);
    rts.sq_psn = Some(Psn::new(0));
    if qp_type == QpType::Rc {
        rts = QpAttr::to_rts(Psn::new(0));
        rts.timeout = AckTimeout::new(18); // nobody answers: seconds until the queue pair fails
    }
    qp.modify(&rts).unwrap();
    qp
}

/// Sends 8 bytes, as a datagram if there is a destination.
fn send(end: &End, qp: &SoftQp, to: Option<Destination<'_>>) {
    let sges = [end.mr.sge(0, 8).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    let mut request = request.with_flags(SendFlags::SIGNALED);
    request.to = to;
    qp.post_send(&[request]).unwrap();
    end.poll();
}

/// RC, UC and UD packets have the class of their queue pair or address handle, although they leave by the
/// same socket.
fn each_has_its_own(network: &Network) {
    let foreign = network.on(1, || Foreign::new(network.ip(1)));
    let end = network.end(0, Bytes::kib(4));
    let there = network.address(1);
    let connections = [
        (QpType::Rc, 0x28),
        (QpType::Rc, 0),
        (QpType::Uc, 0x4a),
        (QpType::Uc, 0x28),
    ];
    let classes = connections.map(|(_, class)| class).into_iter();
    let datagrams = [0x68, 0, 0xff];
    // The peers' queue pairs, by number, and the class that each is to see.
    let expected: BTreeMap<u32, u8> = (0x100..).zip(classes.chain(datagrams)).collect();
    let qps: Vec<SoftQp> = (0x100..)
        .zip(connections)
        .map(|(dest, (qp_type, class))| connected(&end, qp_type, (marked(there, class), dest)))
        .collect();
    let ud = end.datagram_qp(&end.cq, QpCaps::default());
    let handle = |class| end.context.create_ah(&end.pd, &marked(there, class));
    let handles: Vec<SoftAh> = datagrams.map(|class| handle(class).unwrap()).into();
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    // RC: as many packets as the window holds; later packets are retransmissions.
    let mut requests = 0..8;
    while seen.len() < expected.len() {
        assert!(Instant::now() < deadline, "{seen:x?}");
        let may_request = requests.next().is_some();
        qps.iter()
            .zip(connections)
            .filter(|(_, (qp_type, _))| *qp_type == QpType::Uc || may_request)
            .for_each(|(qp, _)| send(&end, qp, None));
        for (dest, ah) in (0x104..).zip(&handles) {
            let qpn = Qpn::new(dest).unwrap();
            let (ah, qkey) = (ah.handle(), QKEY);
            send(&end, &ud, Some(Destination { ah, qpn, qkey }));
        }
        while let Some(arrived) = foreign.receive() {
            let dest = arrived.dest_qpn;
            assert_eq!(Some(&arrived.class), expected.get(&dest), "to QP {dest:#x}");
            seen.insert(dest);
        }
    }
}

const IPV6: &str = "packets_have_the_class_of_their_queue_pair_or_handle_over_ipv6";

#[test]
fn packets_have_the_class_of_their_queue_pair_or_handle() {
    each_has_its_own(&Network::loopback(61));
}

#[test]
fn packets_have_the_class_of_their_queue_pair_or_handle_over_ipv6() {
    isolated(IPV6, || match Network::wire_of_ipv6("class") {
        Ok(network) => each_has_its_own(&network),
        Err(why) => not_run(&format!("{IPV6}: two network namespaces: {why}")),
    });
}

/// The ICRC does not cover the class, which routers may change.
#[test]
fn marked_packets_are_taken_by_the_peer() {
    let network = Network::loopback(62);
    let ends = [0, 1].map(|host| network.end(host, Bytes::kib(64)));
    let qps = [0, 1].map(|host| ends[host].qp());
    let how = How {
        mtu: PathMtu::B1024,
        timeout: 14,
        retries: 7,
    };
    for (host, class) in [(0, 0x28), (1, 0x02)] {
        let peer = 1 - host;
        let address = marked(network.address(peer), class);
        connect_to(&qps[host], address, qps[peer].qpn(), how);
    }
    let bytes: Vec<u8> = (0..40_000).map(|n| (n % 251) as u8).collect();
    ends[0].mr.write(0, &bytes).unwrap();
    let sges = [ends[0].mr.sge(0, bytes.len() as u32).unwrap()];
    let write = Operation::RdmaWrite(ends[1].mr.remote(0));
    let request = SendRequest::new(WrId(1), write, &sges).with_flags(SendFlags::SIGNALED);
    qps[0].post_send(&[request]).unwrap();
    assert_eq!(ends[0].poll_one("of the WRITE").status, WcStatus::Success);
    let mut there = vec![0; bytes.len()];
    ends[1].mr.read(0, &mut there).unwrap();
    assert!(there == bytes);
}

/// Queue pairs and address handles of this address are refused, in these words.
#[track_caller]
fn refused(end: &End, address: AddressVector, words: &str) {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (qp, peer) = (end.in_init(qp_type), end.in_init(qp_type));
        let rtr = to_rtr(qp_type, address, peer.qpn().get());
        assert_eq!(qp.modify(&rtr).unwrap_err().to_string(), words);
        assert_eq!(qp.state(), QpState::Init);
    }
    let error = end.context.create_ah(&end.pd, &address).unwrap_err();
    assert_eq!(error.to_string(), words);
}

#[test]
fn options_that_packets_do_not_carry_are_refused() {
    const CLASS: &str =
        "traffic class 40: this device's port (shared memory) sends no packets; leave it out";
    let network = Network::loopback(63);
    let (local, remote) = (SoftDevice::new(), SoftDevice::at(network.ip(0)));
    for device in [local, remote] {
        let end = End::of(device, Bytes::kib(4));
        refused(&end, marked(end.local_address(), 40), CLASS);
        refused(
            &end,
            level(end.local_address()),
            "service level 3: this device's port (shared memory) sends no packets; leave it out",
        );
    }
    let end = network.end(0, Bytes::kib(4));
    refused(
        &end,
        level(network.address(1)),
        "service level 3: this device's port (Ethernet) sends through UDP sockets, which have no service level; leave it out",
    );
}
