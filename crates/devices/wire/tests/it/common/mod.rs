//! Strategies for packets, and a reader of captures.
#![allow(unreachable_pub)]

pub mod cm;

use adverb_verbs::{Imm, Psn, Qpn, RemoteAddress, Rkey, Srqn};
use adverb_wire::bth::BthFlags;
use adverb_wire::ipv4::{Fragmentation, Ipv4, Unseen};
use adverb_wire::ipv6::Ipv6;
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Extension, Headers, Ieth, ImmDt, Ip, Opcode,
    PacketHeaders, Reth, Syndrome, XrcEth,
};
use proptest::prelude::*;

pub fn opcode() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(Opcode::ALL)
}

fn qpn() -> impl Strategy<Value = Qpn> {
    (0..1u32 << 24).prop_map(|n| Qpn::new(n).unwrap())
}

fn remote() -> impl Strategy<Value = RemoteAddress> {
    (any::<u64>(), any::<u32>()).prop_map(|(addr, rkey)| RemoteAddress {
        addr,
        rkey: Rkey(rkey),
    })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let syndrome = any::<u8>().prop_filter_map("reserved", |b| Syndrome::from_byte(b).ok());
    (syndrome, 0..1u32 << 24).prop_map(|(syndrome, msn)| Aeth { syndrome, msn })
}

/// The extension that an opcode has, with any values.
fn extension(opcode: Opcode) -> impl Strategy<Value = Extension> {
    let reth = (remote(), any::<u32>()).prop_map(|(remote, length)| Reth { remote, length });
    let imm = any::<u32>().prop_map(|imm| ImmDt { imm: Imm(imm) });
    let ieth = any::<u32>().prop_map(|rkey| Ieth { rkey: Rkey(rkey) });
    let deth = (any::<u32>(), qpn()).prop_map(|(qkey, src_qp)| Deth { qkey, src_qp });
    let atomic =
        (remote(), any::<u64>(), any::<u64>()).prop_map(|(remote, swap_or_add, compare)| {
            AtomicEth {
                remote,
                swap_or_add,
                compare,
            }
        });
    let found = any::<u64>().prop_map(|original| AtomicAckEth { original });
    (reth, imm, ieth, deth, atomic, aeth(), found).prop_map(
        move |(reth, imm, ieth, deth, atomic, aeth, found)| {
            let all = [
                Extension::None,
                Extension::Imm(imm),
                Extension::Invalidate(ieth),
                Extension::Rdma(reth),
                Extension::RdmaImm(reth, imm),
                Extension::Atomic(atomic),
                Extension::Ack(aeth),
                Extension::AtomicAck(aeth, found),
                Extension::Datagram(deth),
                Extension::DatagramImm(deth, imm),
            ];
            let fits = |e: &&Extension| e.headers() == opcode.headers() - Headers::XRC_ETH;
            *all.iter()
                .find(fits)
                .expect("each opcode has its extension")
        },
    )
}

/// Headers and payload of any packet.
pub fn packet() -> impl Strategy<Value = (PacketHeaders, Vec<u8>)> {
    let flags = (0u8..32).prop_map(BthFlags::from_bits_truncate);
    let fixed = (flags, any::<u16>(), qpn(), 0..1u32 << 24);
    (opcode(), fixed).prop_flat_map(|(opcode, (flags, pkey, dest_qp, psn))| {
        let most = if opcode.may_have_payload() { 300 } else { 0 };
        let payload = proptest::collection::vec(any::<u8>(), 0..=most);
        (extension(opcode), payload, 0..1u32 << 24).prop_map(move |(extension, payload, srqn)| {
            let bth = Bth {
                opcode,
                flags,
                pad: 0,
                pkey,
                dest_qp,
                psn: Psn::new(psn),
            };
            let bth = bth.padded_for(payload.len());
            let names_queue = opcode.headers().contains(Headers::XRC_ETH);
            let headers = PacketHeaders {
                bth,
                xrc: names_queue.then_some(XrcEth { srqn: Srqn(srqn) }),
                extension,
            };
            (headers, payload)
        })
    })
}

/// Any IP header; lengths are left to the frame.
pub fn ip() -> impl Strategy<Value = Ip> {
    let unseen = (any::<u16>(), any::<bool>()).prop_map(|(identification, may)| Unseen {
        identification,
        fragmentation: match may {
            true => Fragmentation::Allowed,
            false => Fragmentation::Forbidden,
        },
    });
    let v4 = (any::<u8>(), unseen, any::<u8>(), any::<u32>(), any::<u32>()).prop_map(
        |(tos, unseen, ttl, source, destination)| {
            Ip::V4(Ipv4 {
                tos,
                total_length: 0,
                unseen,
                ttl,
                source: source.into(),
                destination: destination.into(),
            })
        },
    );
    let head = (any::<u8>(), 0..1u32 << 20, any::<u8>());
    let v6 = (head, any::<u128>(), any::<u128>()).prop_map(|(head, source, destination)| {
        Ip::V6(Ipv6 {
            traffic_class: head.0,
            flow_label: head.1,
            payload_length: 0,
            hop_limit: head.2,
            source: source.into(),
            destination: destination.into(),
        })
    });
    prop_oneof![v4, v6]
}

/// The records of a capture in either byte order of a little-endian machine's pcap.
pub fn records(pcap: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_le_bytes(pcap[at..at + 4].try_into().unwrap()) as usize;
    assert!(
        [0xa1b2_c3d4, 0xa1b2_3c4d].contains(&word(0)),
        "not a little-endian pcap"
    );
    let mut found = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let length = word(at + 8);
        assert_eq!(length, word(at + 12), "a record was cut");
        found.push(&pcap[at + 16..at + 16 + length]);
        at += 16 + length;
    }
    found
}
