//! Queue pair 1: management datagrams between processes, hosts of any kind, and the process that listens for a service.

#![allow(missing_docs, reason = "a test program")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use adverb_softnic::{Gsi, ReceivedMad, SoftContext, SoftDevice};
use adverb_verbs::{Context as _, Device as _, Psn, Qpn};
use adverb_wire::frame::Addresses;
use adverb_wire::ipv4::Unseen;
use adverb_wire::mad::{self, GSI_QKEY, GSI_QPN};
use adverb_wire::{Bth, Deth, Extension, Flow, Opcode, Packet, PacketHeaders, icrc};
use common::isolated;

const SERVICE: u64 = 0x0106_1c06;

/// An address of this process alone, so that its UDP ports are free.
fn address(number: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + number, high, low | 1).into()
}

fn open(number: u8) -> (SoftContext, Gsi) {
    let device = SoftDevice::at(address(number));
    let context = device.open().unwrap();
    let gsi = context.open_gsi().unwrap();
    (context, gsi)
}

/// Takes the next datagram.
fn next(gsi: &Gsi) -> ReceivedMad {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(mad) = gsi.wait(Some(Duration::from_secs(1))) {
            return mad;
        }
    }
    panic!("no datagram at {} in a minute", gsi.own());
}

fn filled(byte: u8) -> [u8; mad::LEN] {
    [byte; mad::LEN]
}

#[test]
fn datagrams_reach_queue_pair_1_of_another_address() {
    isolated("datagrams_reach_queue_pair_1_of_another_address", || {
        let ((_a, one), (_b, two)) = (open(1), open(2));
        for byte in 0..50 {
            one.send(two.own(), &filled(byte));
            let mad = next(&two);
            assert_eq!((mad.from, *mad.bytes), (one.own(), filled(byte)));
            two.send(mad.from, &filled(byte + 100));
            assert_eq!(*next(&one).bytes, filled(byte + 100));
        }
    });
}

#[test]
fn requests_find_the_process_that_listens() {
    isolated("requests_find_the_process_that_listens", || {
        let ((_a, first), (_b, second), (_c, away)) = (open(3), open(3), open(4));
        assert_eq!([first.own().port(), second.own().port()], [4791, 4792]);
        let here = first.own().ip();
        // Nobody listens: the process at 4791 refuses it.
        assert_eq!(second.listener(here, SERVICE), first.own());
        second.announce(SERVICE).unwrap();
        assert_eq!(first.listener(here, SERVICE), second.own());
        let taken = first.announce(SERVICE).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        // From another address, by way of the first process.
        let to = away.listener(here, SERVICE);
        assert_eq!(to, first.own());
        away.send(to, &filled(7));
        let request = next(&first);
        assert!(first.forward(&request, SERVICE));
        let forwarded = next(&second);
        assert_eq!((forwarded.from, *forwarded.bytes), (away.own(), filled(7)));
        let process = first.process_at(second.own());
        assert!(process.is_some() && process != first.process_at(first.own()));
        assert!(first.process_at(away.own()).is_some());
        second.withdraw(SERVICE);
        assert!(!first.is_announced(SERVICE));
        assert!(!first.forward(&request, SERVICE));
    });
}

#[test]
fn a_process_that_listens_takes_over_the_standard_port() {
    isolated(
        "a_process_that_listens_takes_over_the_standard_port",
        || {
            let (first, (_b, second), (_c, third)) = (open(15), open(15), open(15));
            let (_d, away) = open(16);
            let standard = first.1.own();
            assert!(first.1.take_standard_port(), "it has it");
            assert!(!second.take_standard_port(), "the first process lives");
            drop(first);
            assert!(second.take_standard_port());
            assert!(!third.take_standard_port());
            assert!(second.has_standard_port() && !third.has_standard_port());
            third.announce(SERVICE).unwrap();
            away.send(standard, &request());
            let at_second = next(&second);
            assert_eq!((at_second.from, *at_second.bytes), (away.own(), request()));
            assert!(second.forward(&at_second, SERVICE));
            assert_eq!(next(&third).from, away.own());
            // Processes at other addresses of this host are known, too.
            assert!(away.process_at(second.own()).is_some());
            assert_eq!(away.process_at(standard), None);
        },
    );
}

#[test]
fn a_request_to_an_address_without_process_at_4791_is_refused_by_the_requester() {
    isolated(
        "a_request_to_an_address_without_process_at_4791_is_refused_by_the_requester",
        || {
            let (first, (_b, second)) = (open(5), open(5));
            drop(first);
            let to = second.listener(second.own().ip(), SERVICE);
            assert_eq!(to, second.own());
        },
    );
}

/// A REQ for [`SERVICE`]: attribute 0x10, path MTU 4096 B.
fn request() -> [u8; mad::LEN] {
    let mut mad = filled(0);
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[17] = 0x10;
    mad[24..28].copy_from_slice(&77_u32.to_be_bytes());
    mad[32..40].copy_from_slice(&SERVICE.to_be_bytes());
    mad[24 + 50] = 5 << 4;
    mad
}

#[test]
fn a_process_without_queue_pair_1_forwards_and_refuses_requests() {
    isolated(
        "a_process_without_queue_pair_1_forwards_and_refuses_requests",
        || {
            let _first = SoftDevice::at(address(13)).open().unwrap();
            let ((_b, second), (_c, away)) = (open(13), open(14));
            let to = away.listener(address(13), SERVICE);
            away.send(to, &request());
            let refused = next(&away);
            // REJ of connection 77: reason 8.
            assert_eq!((refused.from, refused.bytes[17]), (to, 0x12));
            assert_eq!(refused.bytes[24..36], [0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 8]);
            second.announce(SERVICE).unwrap();
            away.send(to, &request());
            let forwarded = next(&second);
            assert_eq!((forwarded.from, *forwarded.bytes), (away.own(), request()));
            assert_eq!(forwarded.requested_service(), Some(SERVICE));
        },
    );
}

/// A datagram to queue pair 1 as another RoCE implementation sends it, from any UDP port.
fn packet(from: SocketAddr, to: SocketAddr, (qkey, payload): (u32, &[u8])) -> Vec<u8> {
    let bth = Bth::new(Opcode::UdSendOnly, GSI_QPN, Psn::new(3));
    let src_qp = Qpn::new(1).unwrap();
    let extension = Extension::Datagram(Deth { qkey, src_qp });
    let packet = Packet {
        headers: PacketHeaders::new(bth, extension),
        payload,
    };
    let mut bytes = vec![0; 400];
    let length = packet.emit(&mut bytes).unwrap();
    let flow = Flow {
        addresses: Addresses::of(from.ip(), to.ip()).unwrap(),
        source_port: from.port(),
        destination_port: to.port(),
    };
    let length = icrc::seal(&flow, Unseen::default(), &mut bytes, length).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn answers_to_other_implementations_go_to_4791() {
    isolated("answers_to_other_implementations_go_to_4791", || {
        let (_context, gsi) = open(6);
        let ip = address(7);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let from = socket.local_addr().unwrap();
        let good = packet(from, gsi.own(), (GSI_QKEY, &filled(9)));
        socket.send_to(&good, gsi.own()).unwrap();
        assert_eq!(next(&gsi).from, SocketAddr::new(ip, 4791));
    });
}

#[test]
fn invalid_datagrams_are_dropped_and_counted() {
    isolated("invalid_datagrams_are_dropped_and_counted", || {
        let (context, gsi) = open(8);
        let ip = address(9);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let from = socket.local_addr().unwrap();
        // Another Q_Key, other lengths, and a sender given by another host.
        let wrong: [(u32, &[u8]); 4] = [
            (1, &[1; 256]),
            (GSI_QKEY, &[1; 255]),
            (GSI_QKEY, &[1; 260]),
            (GSI_QKEY, &[1; 276]),
        ];
        for parts in wrong {
            socket
                .send_to(&packet(from, gsi.own(), parts), gsi.own())
                .unwrap();
        }
        let good = packet(from, gsi.own(), (GSI_QKEY, &filled(9)));
        socket.send_to(&good, gsi.own()).unwrap();
        assert_eq!(*next(&gsi).bytes, filled(9));
        assert_eq!(context.counters()["drop_malformed"], 4);
    });
}

#[test]
fn datagrams_beyond_the_queue_are_dropped_and_counted() {
    isolated("datagrams_beyond_the_queue_are_dropped_and_counted", || {
        let (context, gsi) = open(10);
        let (_b, other) = open(11);
        let end = Instant::now() + Duration::from_secs(60);
        while context.counters()["drop_mad_overrun"] == 0 {
            assert!(Instant::now() < end, "{:?}", context.counters());
            (0..100).for_each(|_| other.send(gsi.own(), &filled(1)));
            std::thread::sleep(Duration::from_millis(1));
        }
        let waiting = std::iter::from_fn(|| gsi.wait(Some(Duration::ZERO)));
        assert!(waiting.count() >= 1024);
    });
}

#[test]
fn queue_pair_1_is_open_once_and_wakes_on_demand() {
    isolated("queue_pair_1_is_open_once_and_wakes_on_demand", || {
        let (context, gsi) = open(12);
        context.open_gsi().unwrap_err();
        gsi.wake();
        assert!(gsi.wait(None).is_none());
        drop(gsi);
        context.open_gsi().unwrap();
        let refused = SoftDevice::new().open().unwrap().open_gsi().unwrap_err();
        assert!(
            refused.to_string().contains("management datagrams"),
            "{refused}"
        );
    });
}
