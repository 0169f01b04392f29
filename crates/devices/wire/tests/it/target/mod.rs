//! What the fuzzer calls, and `tests/corpus.rs` with what it found.
#![allow(unreachable_pub)]

use std::net::{Ipv4Addr, Ipv6Addr};

use adverb_wire::cm::{CmMessage, IpCmHeader};
use adverb_wire::frame::{self, Addresses};
use adverb_wire::ipv4::{Ipv4, Unseen};
use adverb_wire::ipv6::Ipv6;
use adverb_wire::{Flow, Frame, Ip, Packet, ROCE_PORT, icrc, mad};

/// The longest UDP payload.
const LONGEST: usize = 65_507;

/// Takes bytes for everything that they could be: an error or a value, and a value comes back from its
/// bytes.
pub fn packet(data: &[u8]) {
    let data = &data[..data.len().min(LONGEST)];
    if let Ok(packet) = Packet::parse(data) {
        comes_back(data, &packet);
        for ip in ips() {
            in_a_frame(&ip, &packet);
        }
    }
    let frames = [Frame::parse(data), Frame::parse_ethernet(data)];
    for frame in frames.into_iter().flatten() {
        assert!(!frame.to_string().contains('\n'));
        in_a_frame(&frame.ip, &frame.packet);
    }
    sealed(data);
    managed(data);
}

/// As a message of the communication manager: without its header, which is the same for all of a kind.
fn managed(data: &[u8]) {
    let _ = IpCmHeader::parse(data);
    let mut mad = [0; mad::LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    let (kind, data) = data.split_first().unwrap_or((&0, &[]));
    mad[17] = 0x0f + kind % 12;
    let length = data.len().min(mad::DATA_LEN);
    mad[mad::HEADER_LEN..][..length].copy_from_slice(&data[..length]);
    if let Ok((transaction, message)) = CmMessage::parse(&mad) {
        let again = message.to_mad(transaction);
        assert_eq!(CmMessage::parse(&again), Ok((transaction, message)));
    }
}

/// Only the padding's bytes may differ: what they are has no meaning.
fn comes_back(data: &[u8], packet: &Packet<'_>) {
    assert!(!packet.to_string().contains('\n'));
    let mut bytes = vec![0xee; data.len()];
    let length = packet.emit(&mut bytes).expect("it was that long");
    assert_eq!(length, data.len());
    assert_eq!(Packet::parse(&bytes), Ok(*packet));
}

fn in_a_frame(ip: &Ip, packet: &Packet<'_>) {
    let mut bytes = vec![0; 128 + packet.payload.len()];
    let length = frame::emit(ip, 0xc000, packet, &mut bytes).expect("there is room");
    if length - ip.length() > LONGEST {
        return;
    }
    let seen = Frame::parse(&bytes[..length]).expect("it was built");
    assert_eq!(seen.packet, *packet);
    assert_eq!(seen.ip.addresses(), ip.addresses());
}

/// With an ICRC, and an identification that the receiver does not see.
fn sealed(data: &[u8]) {
    let flow = Flow {
        addresses: Addresses::V4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        source_port: 1,
        destination_port: ROCE_PORT,
    };
    let identification = data.len() as u16;
    let sent = Unseen {
        identification,
        ..Unseen::default()
    };
    let mut bytes = [data, &[0; icrc::LEN]].concat();
    let length = icrc::seal(&flow, sent, &mut bytes, data.len()).expect("there is room");
    let found = icrc::find_identification(&flow, Unseen::default(), &bytes[..length]);
    assert_eq!(found, Ok((data, identification)));
    let _ = icrc::find_identification(&flow, Unseen::default(), data);
}

fn ips() -> [Ip; 2] {
    let v4 = Ipv4 {
        tos: 0,
        total_length: 0,
        unseen: Unseen::default(),
        ttl: 64,
        source: Ipv4Addr::LOCALHOST,
        destination: Ipv4Addr::LOCALHOST,
    };
    let v6 = Ipv6 {
        traffic_class: 0,
        flow_label: 0,
        payload_length: 0,
        hop_limit: 64,
        source: Ipv6Addr::LOCALHOST,
        destination: Ipv6Addr::LOCALHOST,
    };
    [Ip::V4(v4), Ip::V6(v6)]
}
