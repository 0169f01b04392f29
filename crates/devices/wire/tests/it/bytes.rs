//! Packets and frames round-trip, and no input makes the parser panic.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use adverb_verbs::{Imm, Psn, Qpn, RemoteAddress, Rkey};
use adverb_wire::frame::{self, Addresses};
use adverb_wire::ipv4::Unseen;
use adverb_wire::{
    Bth, Extension, Flow, Frame, Grh, ImmDt, Ip, Opcode, Packet, PacketHeaders, ROCE_PORT, Reth,
    WireError,
    icrc::{self, Icrc},
};
use proptest::prelude::*;

fn flow(source_port: u16) -> Flow {
    Flow {
        addresses: Addresses::V4(Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)),
        source_port,
        destination_port: ROCE_PORT,
    }
}

proptest! {
    #[test]
    fn packets_round_trip((headers, payload) in crate::common::packet()) {
        let packet = Packet { headers, payload: &payload };
        let mut bytes = [0xee; 512];
        let length = packet.emit(&mut bytes).unwrap();
        prop_assert_eq!(length % 4, 0);
        prop_assert_eq!(Packet::parse(&bytes[..length]), Ok(packet));
        prop_assert_eq!(bytes[length], 0xee, "wrote beyond the packet");
    }

    #[test]
    fn frames_round_trip((headers, payload) in crate::common::packet(), ip in crate::common::ip(), port in any::<u16>()) {
        let packet = Packet { headers, payload: &payload };
        let mut bytes = [0; 512];
        let length = frame::emit(&ip, port, &packet, &mut bytes).unwrap();
        let seen = Frame::parse(&bytes[..length]).unwrap();
        prop_assert_eq!(seen.packet, packet);
        prop_assert_eq!(seen.ip.addresses(), ip.addresses());
        prop_assert_eq!(seen.ip.unseen(), ip.unseen());
        prop_assert_eq!(seen.udp.source, port);
        prop_assert!(!seen.to_string().contains('\n'));
    }

    #[test]
    fn a_buffer_that_is_too_short_is_refused((headers, payload) in crate::common::packet(), ip in crate::common::ip()) {
        let packet = Packet { headers, payload: &payload };
        let mut bytes = [0; 512];
        let length = frame::emit(&ip, 1, &packet, &mut bytes).unwrap();
        for short in 0..length {
            let refused = frame::emit(&ip, 1, &packet, &mut bytes[..short]);
            let no_space = matches!(refused, Err(WireError::NoSpace { .. }));
            prop_assert!(no_space, "{short}: {refused:?}");
        }
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            let mut again = [0; 128];
            let length = packet.emit(&mut again).unwrap();
            prop_assert_eq!(length, bytes.len());
            prop_assert_eq!(Packet::parse(&again[..length]), Ok(packet));
        }
        let _ = Frame::parse(&bytes);
        let _ = Frame::parse_ethernet(&bytes);
        let _ = icrc::find_identification(&flow(1), Unseen::default(), &bytes);
    }

    #[test]
    fn a_packet_with_any_opcode_is_a_packet_or_an_error(code: u8, rest in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = rest;
        if bytes.len() > 1 {
            bytes[0] = code;
            bytes[1] &= 0xf0;
        }
        let known = Opcode::from_code(code).is_some();
        match Packet::parse(&bytes) {
            Ok(packet) => prop_assert_eq!(packet.opcode().code(), code),
            Err(WireError::Opcode(unknown)) => prop_assert!(!known && unknown.code == code),
            Err(_) => prop_assert!(known || bytes.len() < 12),
        }
    }

    #[test]
    fn a_damaged_frame_is_refused(
        (headers, payload) in crate::common::packet(), ip in crate::common::ip(), at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let packet = Packet { headers, payload: &payload };
        let mut bytes = [0; 512];
        let length = frame::emit(&ip, 9, &packet, &mut bytes).unwrap();
        let at = at.index(length);
        bytes[at] ^= 1 << bit;
        // Fields that may change on the way are not covered.
        let seen = Frame::parse(&bytes[..length]);
        prop_assert!(seen.is_err() || may_change(&ip, at), "byte {at} of {length}");
    }

    #[test]
    fn the_identification_is_found(
        (headers, payload) in crate::common::packet(), identification: u16, port: u16, at in any::<prop::sample::Index>(), bit in 0..8u32,
    ) {
        let packet = Packet { headers, payload: &payload };
        let mut bytes = [0; 512];
        let length = packet.emit(&mut bytes).unwrap();
        let sent = Unseen { identification, ..Unseen::default() };
        let length = icrc::seal(&flow(port), sent, &mut bytes, length).unwrap();
        let found = icrc::find_identification(&flow(port), Unseen::default(), &bytes[..length]);
        prop_assert_eq!(found, Ok((&bytes[..length - 4], identification)));
        // A flipped bit never looks like another identification: it changes bits outside the identification's 16.
        let at = at.index(length);
        let mut damaged = bytes;
        damaged[at] ^= 1 << bit;
        let found = icrc::find_identification(&flow(port), Unseen::default(), &damaged[..length]);
        prop_assert!(found.is_err() || at == 4, "byte {at} of {length}");
    }
}

/// The rate that `docs/soft-nic.md` states: of all 2^32 ICRCs, 2^16 are right for some identification.
#[test]
fn of_random_icrcs_one_in_65536_is_right_over_ipv4_and_none_over_ipv6() {
    let v4 = flow(1);
    let v6 = Flow {
        addresses: Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
        ..v4
    };
    let packet = [0x5a; 64];
    let accepts = |flow: &Flow, icrc: u32| {
        let bytes = [&packet[..], &Icrc(icrc).to_bytes()].concat();
        icrc::find_identification(flow, Unseen::default(), &bytes).is_ok()
    };
    let of_identification = |identification| {
        let unseen = Unseen {
            identification,
            ..Unseen::default()
        };
        icrc::compute(&v4, unseen, &packet).0
    };
    let right: BTreeSet<u32> = (0..=u16::MAX).map(of_identification).collect();
    assert_eq!(right.len(), 1 << 16);
    assert!(right.iter().all(|icrc| accepts(&v4, *icrc)));
    let any = (0..1 << 20).map(|n: u32| n.wrapping_mul(0x9e37_79b1));
    assert!(
        any.clone()
            .all(|icrc| accepts(&v4, icrc) == right.contains(&icrc))
    );
    assert!(!any.clone().any(|icrc| accepts(&v6, icrc)));
}

/// Whether a byte of a frame is outside what its checks cover: IP fields that routers change, UDP's
/// checksum, byte 4 of the base transport header.
fn may_change(ip: &Ip, at: usize) -> bool {
    let udp = ip.length();
    let of_ip = match ip {
        Ip::V4(_) => false, // its own checksum covers it
        Ip::V6(_) => (0..4).contains(&at) || at == 7,
    };
    of_ip || at == udp + 6 || at == udp + 7 || at == udp + 8 + 4
}

/// Returns a valid packet, from which invalid ones are made.
fn write_only(payload: &[u8]) -> Vec<u8> {
    let remote = RemoteAddress {
        addr: 0x8000_0000_0000_1000,
        rkey: Rkey(0x1234),
    };
    let headers = PacketHeaders {
        xrc: None,
        bth: Bth::new(
            Opcode::RcWriteOnlyImm,
            Qpn::new(0x11).unwrap(),
            Psn::new(0xff_ffff),
        ),
        extension: Extension::RdmaImm(
            Reth {
                remote,
                length: payload.len() as u32,
            },
            ImmDt { imm: Imm(7) },
        ),
    };
    let mut bytes = vec![0; 256];
    let length = Packet { headers, payload }.emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn invalid_packets_are_refused_with_the_check_that_failed() {
    let good = write_only(b"hello");
    assert_eq!(Packet::parse(&good).unwrap().payload, b"hello");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let cases: [(Vec<u8>, &str); 11] = [
        (vec![], "BTH has 12 B, but only 0 B are left"),
        (good[..11].into(), "BTH has 12 B, but only 11 B are left"),
        (good[..12].into(), "RETH has 16 B, but only 0 B are left"),
        (good[..30].into(), "ImmDt has 4 B, but only 2 B are left"),
        (
            with(0, 0x15),
            "unknown opcode 0x15: expected one of RC, XRC, UC, UD or CNP",
        ),
        (
            with(0, 0xff),
            "unknown opcode 0xff: expected one of RC, XRC, UC, UD or CNP",
        ),
        (with(1, 0x41), "invalid BTH version 1: expected 0"),
        (
            good[..37].into(),
            "pad count 3 does not fit 5 B of payload and padding",
        ),
        (
            good[..32].into(),
            "pad count 3 does not fit 0 B of payload and padding",
        ),
        (
            with(0, 0x0c),
            "9 B of payload with opcode 0x0c, which has none",
        ),
        (with(0, 0x11), "reserved AETH syndrome 0x80"),
    ];
    for (bytes, why) in cases {
        match Packet::parse(&bytes) {
            Err(error) => assert_eq!(error.to_string(), why),
            Ok(packet) => panic!("parsed {packet}; expected: {why}"),
        }
    }
}

#[test]
fn headers_of_another_opcode_are_not_written() {
    let bth = Bth::new(Opcode::RcAck, Qpn::default(), Psn::default());
    let headers = PacketHeaders::new(bth, Extension::None);
    let refused = headers.lay_out(0, &mut [0; 64]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "extended headers 0x0 with opcode 0x11, which requires 0x8"
    );
}

#[test]
fn packets_print_on_one_line() {
    let good = write_only(b"hello");
    assert_eq!(
        Packet::parse(&good).unwrap().to_string(),
        "RC WRITE only with immediate, qp 0x000011 psn 0xffffff to 0x8000000000001000 rkey 0x00001234 \
         dmalen 5 imm 0x00000007, length 5"
    );
}

#[test]
fn a_grh_round_trips() {
    let grh = Grh {
        traffic_class: 0xa5,
        flow_label: 0xf_edcb,
        payload_length: 0x1234,
        next_header: adverb_wire::grh::NEXT_HEADER,
        hop_limit: 63,
        sgid: adverb_verbs::Gid([1; 16]),
        dgid: adverb_verbs::Gid([2; 16]),
    };
    let bytes = grh.to_bytes();
    assert_eq!(Grh::parse(&bytes), Ok((grh, &[][..])));
}
