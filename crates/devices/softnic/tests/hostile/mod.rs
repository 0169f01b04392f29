//! What the fuzzer calls, and `tests/corpus.rs` with what it found: datagrams from anybody into a UDP port whose
//! queue pairs also have requests and receives of their own.
#![allow(unsafe_code)]

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

use adverb_softnic::{SoftMr, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Context, MemoryRegion, Operation, PathMtu, QpCaps, QpInit, QpType, Qpn, QueuePair,
    RecvRequest, SendFlags, SendRequest, WcStatus, WrId,
};
use adverb_wire::frame::{Addresses, Flow};
use adverb_wire::icrc;
use adverb_wire::ipv4::Unseen;

use crate::common::network::{FIRST_PSN, How, Network, connect_to};
use crate::common::{End, QKEY, connect_uc, slot_of, unused_qpn};

/// Longest input.
const LONGEST: usize = 4096;
/// The region that connected peers may write.
const MEMORY: usize = 64 << 10;
/// Payload of a local request, and of a receive.
const LENGTH: u32 = 4096;
/// Content of the region that nobody may write.
const UNTOUCHED: u8 = 0x5a;
const HOW: How = How {
    mtu: PathMtu::B1024,
    timeout: 14,
    retries: 7,
};

/// A device, and a socket with the address of its peers.
pub(crate) struct Lab {
    end: End,
    /// A region without remote access in the same protection domain.
    untouched: SoftMr,
    network: Network,
    forger: UdpSocket,
}

/// The queue pairs of one input.
struct QueuePairs {
    /// RC, UC, UD.
    all: [SoftQp; 3],
    posted: u64,
}

/// The bytes of an input, then zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let first = self.0.split_off_first();
        first.copied().unwrap_or(0)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }
}

impl Lab {
    pub(crate) fn new(net: u8) -> Self {
        let network = Network::loopback(net);
        let end = network.end(0, Bytes::new(MEMORY as u64));
        let access = AccessFlags::LOCAL_WRITE;
        let untouched = end
            .context
            .alloc_mr(&end.pd, Bytes::new(MEMORY as u64), access)
            .unwrap();
        let pattern = [UNTOUCHED; MEMORY];
        untouched.write(0, &pattern).unwrap();
        // The port of slot 0, which the queue pairs' peers have.
        let forger = UdpSocket::bind((network.ip(1), 4791)).unwrap();
        forger.set_nonblocking(true).unwrap();
        Lab {
            end,
            untouched,
            network,
            forger,
        }
    }

    /// Carries out the steps of an input, and checks that only memory with access rights has changed, and that
    /// nothing completes that was not posted.
    pub(crate) fn run(&self, data: &[u8]) {
        let mut input = Input(&data[..data.len().min(LONGEST)]);
        let mut qps = QueuePairs {
            all: [
                self.connected(QpType::Rc),
                self.connected(QpType::Uc),
                self.datagrams(),
            ],
            posted: 0,
        };
        let mut completed = 0;
        while !input.0.is_empty() {
            match input.byte() % 8 {
                0 => {
                    let length = input.byte();
                    let bytes: Vec<u8> = (0..length).map(|_| input.byte()).collect();
                    self.send(&bytes, 1, qps.all[0].qpn());
                }
                1 => qps.receive(self, input.byte()),
                2 => qps.request(self, input.byte()),
                3 => completed += self.poll(qps.posted),
                _ => self.forge(&mut input, &qps),
            }
        }
        completed += self.poll(qps.posted);
        drop(qps.all);
        assert!(
            completed <= qps.posted,
            "{completed} of {} completed",
            qps.posted
        );
        let mut found = [0; MEMORY];
        self.untouched.read(0, &mut found).unwrap();
        assert!(
            found.iter().all(|byte| *byte == UNTOUCHED),
            "memory without access rights has changed"
        );
        while self.forger.recv(&mut found).is_ok() {}
    }

    fn connected(&self, qp_type: QpType) -> SoftQp {
        if qp_type == QpType::Rc {
            let qp = self.end.qp();
            connect_to(&qp, self.network.address(1), Qpn::new(77).unwrap(), HOW);
            return qp;
        }
        let init = QpInit::new(qp_type, &self.end.cq, QpCaps::default());
        let qp = self.end.context.create_qp(&self.end.pd, &init).unwrap();
        let to = (self.network.address(1), Qpn::new(78).unwrap());
        connect_uc(&qp, to, FIRST_PSN, HOW.mtu);
        qp
    }

    fn datagrams(&self) -> SoftQp {
        self.end.datagram_qp(&self.end.cq, QpCaps::default())
    }

    /// Polls until what was sent must have been received: the loopback delivers at once.
    fn poll(&self, posted: u64) -> u64 {
        let mut count = 0;
        for _ in 0..8 {
            for completion in self.end.poll() {
                assert!(
                    completion.wr_id.0 < posted,
                    "{completion:?} of {posted} requests"
                );
                if completion.status == WcStatus::Success {
                    assert!(completion.byte_len <= LENGTH, "{completion:?}");
                }
                count += 1;
            }
        }
        count
    }

    /// Sends one or several packets with valid ICRC. The input chooses their number and all fields: opcode,
    /// destination, flags, packet number, extension header and length.
    fn forge(&self, input: &mut Input<'_>, qps: &QueuePairs) {
        let [opcode, control, ahead, length, count] = input.bytes();
        let dest = match control & 3 {
            3 => unused_qpn(qps.all[0].qpn()),
            of => qps.all[usize::from(of)].qpn(),
        };
        let psn = FIRST_PSN.advance(i32::from(ahead as i8) as u32).get();
        let mut packet = vec![opcode, control & 0xf0, 0xff, 0xff];
        packet.extend(dest.get().to_be_bytes());
        packet.extend((psn | u32::from(control & 4) << 29).to_be_bytes());
        packet.extend(self.extension(input));
        packet.resize(packet.len() + 4 * usize::from(length), opcode);
        let ip = self.network.ip(1);
        let flow = Flow {
            addresses: Addresses::of(ip, self.network.ip(0)).unwrap(),
            source_port: 4791,
            destination_port: 4791 + slot_of(dest) as u16,
        };
        let length = packet.len();
        packet.resize(length + 4, 0);
        icrc::seal(&flow, Unseen::default(), &mut packet, length).unwrap();
        self.send(&packet, 1 + usize::from(count & 7), dest);
    }

    /// Returns an extension header: one that names the accessible region, the other one or a queue key, or any bytes.
    fn extension(&self, input: &mut Input<'_>) -> Vec<u8> {
        let [kind, offset, length] = input.bytes();
        let region = match kind % 8 {
            0 => &self.end.mr,
            1 => &self.untouched,
            2 => {
                let qkey = QKEY.to_be_bytes();
                return [qkey, u32::from(offset).to_be_bytes()].concat();
            }
            _ => return (0..kind / 8).map(|_| input.byte()).collect(),
        };
        let remote = region.remote(0);
        let addr = remote.addr + MEMORY as u64 * u64::from(offset) / 128;
        let length = u32::from(length) * 64;
        let mut reth = addr.to_be_bytes().to_vec();
        reth.extend(remote.rkey.0.to_be_bytes());
        reth.extend(length.to_be_bytes());
        reth
    }

    /// Sends `count` copies of a packet to the port of `dest` with one system call, so that they arrive joined.
    fn send(&self, packet: &[u8], count: usize, dest: Qpn) {
        let to = (self.network.ip(0), 4791 + slot_of(dest) as u16);
        let size = if count > 1 { packet.len() } else { 0 };
        // SAFETY: the option's value is an `int` that lives as long as the call.
        let set = unsafe {
            let size = size as libc::c_int;
            let (value, length) = ((&raw const size).cast(), size_of_val(&size) as u32);
            libc::setsockopt(
                self.forger.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                value,
                length,
            )
        };
        assert_eq!(set, 0, "UDP_SEGMENT");
        // Too long a batch is refused.
        let _ = self.forger.send_to(&packet.repeat(count), to);
    }

    /// Returns the address from which packets are forged.
    pub(crate) fn peer(&self) -> IpAddr {
        self.network.ip(1)
    }
}

impl QueuePairs {
    fn receive(&mut self, lab: &Lab, of: u8) {
        let sges = [lab.end.mr.sge(0, LENGTH).unwrap()];
        let request = RecvRequest::new(WrId(self.posted), &sges);
        let posted = self.all[usize::from(of % 3)].post_recv(&[request]);
        self.posted += u64::from(posted.is_ok());
    }

    /// Posts a WRITE, READ or SEND to the connected peer.
    fn request(&mut self, lab: &Lab, kind: u8) {
        let remote = lab.end.mr.remote(0);
        let operation = match kind / 2 % 3 {
            0 => Operation::RdmaWrite(remote),
            1 => Operation::RdmaRead(remote),
            _ => Operation::Send,
        };
        let sges = [lab.end.mr.sge(LENGTH.into(), LENGTH).unwrap()];
        let request = SendRequest::new(WrId(self.posted), operation, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        let posted = self.all[usize::from(kind % 2)].post_send(&[request]);
        self.posted += u64::from(posted.is_ok());
    }
}
