//! Frames that the kernel's Soft-RoCE sent (see `data/README.md`): every ICRC comes out, every frame
//! is made again byte for byte.

use std::collections::BTreeSet;
use std::time::Duration;

use adverb_wire::ipv4::{Fragmentation, Unseen};
use adverb_wire::pcap::{LinkType, PcapWriter};
use adverb_wire::{Flow, Frame, Ip, Opcode, frame, icrc};

const CAPTURE: &[u8] = include_bytes!("../data/rxe.pcap");
const ETHERNET: usize = 14;

fn frames() -> Vec<(&'static [u8], Frame<'static>)> {
    let records = crate::common::records(CAPTURE).into_iter();
    records
        .map(|bytes| {
            let frame = Frame::parse_ethernet(bytes).unwrap_or_else(|e| panic!("{e}: {bytes:x?}"));
            (&bytes[ETHERNET..], frame)
        })
        .collect()
}

#[test]
fn every_icrc_comes_out() {
    let seen: BTreeSet<u8> = frames()
        .iter()
        .map(|(_, f)| f.packet.opcode().code())
        .collect();
    let wanted = [
        Opcode::RcSendFirst,
        Opcode::RcSendMiddle,
        Opcode::RcSendLast,
        Opcode::RcSendOnly,
        Opcode::RcWriteFirst,
        Opcode::RcWriteMiddle,
        Opcode::RcWriteLast,
        Opcode::RcReadRequest,
        Opcode::RcReadResponseFirst,
        Opcode::RcReadResponseMiddle,
        Opcode::RcReadResponseLast,
        Opcode::RcAck,
        Opcode::RcAtomicAck,
        Opcode::RcCompareSwap,
        Opcode::RcFetchAdd,
        Opcode::UcSendFirst,
        Opcode::UcWriteFirst,
        Opcode::UdSendOnly,
    ];
    for opcode in wanted {
        assert!(seen.contains(&opcode.code()), "no {}", opcode.name());
    }
}

#[test]
fn both_versions_of_ip_are_among_them() {
    let six = frames()
        .iter()
        .filter(|(_, f)| matches!(f.ip, Ip::V6(_)))
        .count();
    assert!(six > 0 && six < frames().len());
}

#[test]
fn frames_are_made_again_byte_for_byte() {
    for (bytes, seen) in frames() {
        let mut again = vec![0; bytes.len()];
        let length = frame::emit(&seen.ip, seen.udp.source, &seen.packet, &mut again).unwrap();
        // UDP's checksum is zero on IPv4; on IPv6 Soft-RoCE makes one.
        let sums = seen.ip.length() + 6..seen.ip.length() + 8;
        again[sums].copy_from_slice(&seen.udp.checksum.to_be_bytes());
        assert_eq!(&again[..length], bytes, "{seen}");
    }
}

#[test]
fn the_identification_is_found_without_the_ip_header() {
    let mut found = BTreeSet::new();
    for (bytes, seen) in frames() {
        let flow = Flow {
            addresses: seen.ip.addresses(),
            source_port: seen.udp.source,
            destination_port: seen.udp.destination,
        };
        let datagram = &bytes[seen.ip.length() + 8..];
        let assumed = Unseen {
            identification: 0,
            fragmentation: Fragmentation::Forbidden,
        };
        let (_, identification) = icrc::find_identification(&flow, assumed, datagram).unwrap();
        assert_eq!(identification, seen.ip.unseen().identification, "{seen}");
        found.insert(identification);
    }
    assert!(
        found.len() > 5,
        "the capture has hardly any identifications"
    );
}

#[test]
fn a_capture_of_them_holds_the_same_frames() {
    let records = crate::common::records(CAPTURE);
    let mut pcap = PcapWriter::new(vec![], LinkType::Ethernet).unwrap();
    for frame in &records {
        pcap.write(Duration::from_millis(1500), frame).unwrap();
    }
    let written = pcap.into_inner();
    assert_eq!(crate::common::records(&written), records);
    assert_eq!(written[20..24], 1u32.to_le_bytes(), "Ethernet");
    assert_eq!(written[24..28], 1u32.to_le_bytes(), "seconds");
    assert_eq!(written[28..32], 500_000_000u32.to_le_bytes(), "nanoseconds");
}

#[test]
fn they_print_as_one_line() {
    let frames = frames();
    let line = |opcode| {
        let of = frames.iter().find(|(_, f)| f.packet.opcode() == opcode);
        of.expect("it is among them").1.to_string()
    };
    assert_eq!(
        line(Opcode::RcAck),
        "IP 10.77.0.2.49441 > 10.77.0.1.4791: RC ACK, qp 0x000011 psn 0xb9ee34 ack msn 1, length 0"
    );
    assert_eq!(
        line(Opcode::RcReadRequest),
        "IP 10.77.0.1.49441 > 10.77.0.2.4791: RC READ request, qp 0x000011 psn 0x046493 ackreq \
         to 0x55aafa4cd000 rkey 0x00000289 dmalen 2503, length 0"
    );
}
