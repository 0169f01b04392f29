//! Messages of the communication manager: what was written is read again, and what the kernel sent is written again
//! byte for byte.

use std::net::IpAddr;

use crate::common::cm::message;
use adverb_wire::cm::{CmMessage, IpCmHeader, PortSpace, RejectReason, ServiceId};
use adverb_wire::mad::{GSI_QKEY, GSI_QPN, LEN};
use adverb_wire::{Extension, Frame, WireError};
use proptest::prelude::*;

/// What the kernel's communication manager sent (see `data/README.md`).
const CAPTURE: &[u8] = include_bytes!("../data/cm.pcap");

/// The management datagrams of the capture.
fn mads() -> Vec<Vec<u8>> {
    let records = crate::common::records(CAPTURE).into_iter();
    let frames =
        records.map(|bytes| Frame::parse_ethernet(bytes).unwrap_or_else(|e| panic!("{e}")));
    let mads = frames.filter(|frame| frame.packet.headers.bth.dest_qp == GSI_QPN);
    mads.map(|frame| {
        let Extension::Datagram(deth) = frame.packet.headers.extension else {
            panic!("{frame} has no DETH");
        };
        assert_eq!((deth.qkey, deth.src_qp), (GSI_QKEY, GSI_QPN));
        frame.packet.payload.to_vec()
    })
    .collect()
}

#[test]
fn messages_of_the_kernel_are_written_again_byte_for_byte() {
    let mut kinds = std::collections::BTreeSet::new();
    for mad in mads() {
        let (transaction, message) = CmMessage::parse(&mad).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(message.to_mad(transaction)[..], mad[..], "{message:?}");
        kinds.insert(mad[17]);
    }
    // REQ, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP. The kernel sends a MRA only for a repeated message.
    let all = [0x10, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn requests_of_the_kernel_name_addresses_and_port() {
    let mut seen = Vec::new();
    for mad in mads() {
        let (service, private) = match CmMessage::parse(&mad).unwrap().1 {
            CmMessage::Req(req) => (req.service, req.private_data.to_vec()),
            CmMessage::SidrReq(req) => (req.service, req.private_data.to_vec()),
            _ => continue,
        };
        let (header, rest) = IpCmHeader::parse(&private).unwrap();
        assert_eq!(header.source, IpAddr::from([10, 77, 0, 1]));
        assert_eq!(header.destination, IpAddr::from([10, 77, 0, 2]));
        assert_eq!([&header.to_bytes()[..], rest].concat(), private);
        seen.extend(service.port());
    }
    for wanted in [
        (PortSpace::Tcp, 7174),
        (PortSpace::Udp, 7174),
        (PortSpace::Tcp, 9999),
    ] {
        assert!(seen.contains(&wanted), "no {wanted:?} in {seen:?}");
    }
}

#[test]
fn the_kernel_refuses_a_port_without_listener_with_reason_8() {
    let reasons = mads()
        .into_iter()
        .filter_map(|mad| match CmMessage::parse(&mad) {
            Ok((_, CmMessage::Rej(rej))) => Some(rej.reason),
            _ => None,
        });
    assert!(
        reasons
            .clone()
            .any(|reason| reason == RejectReason::INVALID_SERVICE_ID)
    );
    assert!(reasons.clone().all(|reason| reason.name().is_some()));
}

#[test]
fn service_ids_name_port_space_and_port() {
    assert_eq!(ServiceId::of(PortSpace::Tcp, 0x1234).0, 0x0106_1234);
    assert_eq!(ServiceId::of(PortSpace::Udp, 7174).0, 0x0111_1c06);
    assert_eq!(ServiceId::of(PortSpace::Ib, 1).0, 0x013f_0001);
    for space in PortSpace::ALL {
        assert_eq!(ServiceId::of(space, 77).port(), Some((space, 77)));
        assert_eq!(PortSpace::from_code(space.code()), Some(space));
    }
    for other in [0, 0x0107_0001, 1 << 40 | 0x0106_0001] {
        assert_eq!(ServiceId(other).port(), None);
    }
}

#[test]
fn other_datagrams_are_refused_by_name() {
    let mut mad = [0; LEN];
    assert_eq!(
        CmMessage::parse(&mad[1..]),
        Err(WireError::MadLength { have: 255 })
    );
    assert_eq!(CmMessage::parse(&mad), Err(WireError::MadVersion(0)));
    mad[0] = 1;
    let wrong = WireError::MadClass {
        class: 0,
        version: 0,
        method: 0,
    };
    assert_eq!(CmMessage::parse(&mad), Err(wrong));
    mad[1..4].copy_from_slice(&[7, 2, 3]);
    // LAP: alternate paths are not supported.
    mad[17] = 0x19;
    assert_eq!(CmMessage::parse(&mad), Err(WireError::CmAttribute(0x19)));
    mad[17] = 0x10;
    assert_eq!(CmMessage::parse(&mad), Err(WireError::CmPathMtu(0)));
    mad[17] = 0x12;
    mad[24 + 8] = 0xc0;
    assert_eq!(CmMessage::parse(&mad), Err(WireError::CmMsgType(3)));
}

proptest! {
    #[test]
    fn messages_come_back(message in message(), transaction in any::<u64>()) {
        let mad = message.to_mad(transaction);
        prop_assert_eq!(CmMessage::parse(&mad), Ok((transaction, message)));
    }

    #[test]
    fn addresses_come_back(a in any::<[u8; 16]>(), b in any::<[u8; 16]>(), port in any::<u16>(), four in any::<bool>()) {
        let [source, destination] = [a, b].map(|ip| match four {
            true => IpAddr::from([ip[0], ip[1], ip[2], ip[3]]),
            false => IpAddr::from(ip),
        });
        let header = IpCmHeader { source, source_port: port, destination };
        let bytes = header.to_bytes();
        prop_assert_eq!(IpCmHeader::parse(&bytes), Ok((header, &[][..])));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 256), attribute in 0x0f_u8..0x1b) {
        let _ = CmMessage::parse(&bytes);
        let _ = IpCmHeader::parse(&bytes);
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        if let Ok((transaction, message)) = CmMessage::parse(&bytes) {
            let again = CmMessage::parse(&message.to_mad(transaction));
            prop_assert_eq!(again, Ok((transaction, message)));
        }
    }
}
