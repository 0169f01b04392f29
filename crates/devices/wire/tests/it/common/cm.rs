//! Strategies for messages of the communication manager.
#![allow(unreachable_pub)]

use adverb_verbs::{AckTimeout, Gid, PathMtu, Psn, Qpn};
use adverb_wire::cm::{
    CmMessage, Drep, Dreq, Mra, MsgType, Path, Rej, RejectReason, Rep, Req, Rtu, ServiceId,
    ServiceType, SidrRep, SidrReq, SidrStatus,
};
use proptest::prelude::*;

fn timeout() -> impl Strategy<Value = AckTimeout> {
    (0u8..32).prop_map(|code| AckTimeout::new(code).unwrap())
}

fn qpn() -> impl Strategy<Value = Qpn> {
    (0..1u32 << 24).prop_map(|n| Qpn::new(n).unwrap())
}

fn psn() -> impl Strategy<Value = Psn> {
    (0..1u32 << 24).prop_map(Psn::new)
}

/// Private data of any contents.
fn private<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    proptest::collection::vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().unwrap())
}

fn path() -> impl Strategy<Value = Path> {
    let ends = (any::<[u16; 2]>(), any::<[[u8; 16]; 2]>());
    let rest = (
        0..1u32 << 20,
        0u8..64,
        any::<[u8; 2]>(),
        0u8..16,
        any::<bool>(),
    );
    (ends, rest, timeout()).prop_map(|((lids, gids), rest, ack_timeout)| Path {
        local_lid: lids[0],
        remote_lid: lids[1],
        local_gid: Gid(gids[0]),
        remote_gid: Gid(gids[1]),
        flow_label: rest.0,
        rate: rest.1,
        traffic_class: rest.2[0],
        hop_limit: rest.2[1],
        sl: rest.3,
        is_subnet_local: rest.4,
        ack_timeout,
    })
}

fn service_type() -> impl Strategy<Value = ServiceType> {
    prop_oneof![
        Just(ServiceType::Rc),
        Just(ServiceType::Uc),
        Just(ServiceType::Rd),
        (0u8..8).prop_map(ServiceType::Extended),
    ]
}

pub fn req() -> impl Strategy<Value = Req> {
    let names = (
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        qpn(),
        psn(),
    );
    let depths = (any::<[u8; 2]>(), timeout(), timeout(), any::<u16>());
    let bits = (any::<[bool; 2]>(), 0u8..8, 0u8..8, 0u8..16);
    let mtu = proptest::sample::select(&PathMtu::ALL[..]);
    (names, depths, bits, mtu, service_type(), path(), private()).prop_map(
        |(names, depths, bits, path_mtu, service_type, primary, private_data)| Req {
            local_id: names.0,
            service: ServiceId(names.1),
            ca_guid: names.2,
            qkey: names.3,
            qpn: names.4,
            responder_resources: depths.0[0],
            initiator_depth: depths.0[1],
            remote_response_timeout: depths.1,
            service_type,
            has_flow_control: bits.0[0],
            starting_psn: names.5,
            local_response_timeout: depths.2,
            retry_count: bits.1,
            pkey: depths.3,
            path_mtu,
            rnr_retry_count: bits.2,
            max_cm_retries: bits.3,
            has_srq: bits.0[1],
            primary,
            private_data,
        },
    )
}

pub fn rep() -> impl Strategy<Value = Rep> {
    let names = (any::<[u32; 3]>(), qpn(), psn(), any::<u64>());
    let bits = (
        any::<[bool; 2]>(),
        0u8..4,
        0u8..8,
        timeout(),
        any::<[u8; 2]>(),
    );
    (names, bits, private()).prop_map(|(names, bits, private_data)| Rep {
        local_id: names.0[0],
        remote_id: names.0[1],
        qkey: names.0[2],
        qpn: names.1,
        starting_psn: names.2,
        responder_resources: bits.4[0],
        initiator_depth: bits.4[1],
        target_ack_delay: bits.3,
        failover: bits.1,
        has_flow_control: bits.0[0],
        rnr_retry_count: bits.2,
        has_srq: bits.0[1],
        ca_guid: names.3,
        private_data,
    })
}

fn msg_type() -> impl Strategy<Value = MsgType> {
    prop_oneof![Just(MsgType::Req), Just(MsgType::Rep), Just(MsgType::Other)]
}

pub fn rej() -> impl Strategy<Value = Rej> {
    let bits = (msg_type(), 0u8..128, any::<u16>());
    (any::<[u32; 2]>(), bits, private(), private()).prop_map(
        |([local_id, remote_id], (of, additional_length, reason), additional, private_data)| Rej {
            local_id,
            remote_id,
            of,
            additional_length,
            reason: RejectReason(reason),
            additional,
            private_data,
        },
    )
}

fn control() -> impl Strategy<Value = CmMessage> {
    let ids = any::<[u32; 2]>();
    prop_oneof![
        (ids, msg_type(), timeout(), private()).prop_map(|(ids, of, service_timeout, data)| {
            CmMessage::Mra(Mra {
                local_id: ids[0],
                remote_id: ids[1],
                of,
                service_timeout,
                private_data: data,
            })
        }),
        (ids, private()).prop_map(|([local_id, remote_id], private_data)| {
            CmMessage::Rtu(Rtu {
                local_id,
                remote_id,
                private_data,
            })
        }),
        (ids, qpn(), private()).prop_map(|(ids, remote_qpn, private_data)| {
            CmMessage::Dreq(Dreq {
                local_id: ids[0],
                remote_id: ids[1],
                remote_qpn,
                private_data,
            })
        }),
        (ids, private()).prop_map(|([local_id, remote_id], private_data)| {
            CmMessage::Drep(Drep {
                local_id,
                remote_id,
                private_data,
            })
        }),
    ]
}

fn sidr() -> impl Strategy<Value = CmMessage> {
    let request = (any::<u32>(), any::<u16>(), any::<u64>(), private());
    let request = request.prop_map(|(request_id, pkey, service, private_data)| {
        CmMessage::SidrReq(SidrReq {
            request_id,
            pkey,
            service: ServiceId(service),
            private_data,
        })
    });
    let names = (any::<[u32; 2]>(), any::<u64>(), qpn(), any::<[u8; 2]>());
    let reply = (names, private(), private()).prop_map(|(names, additional, private_data)| {
        CmMessage::SidrRep(SidrRep {
            request_id: names.0[0],
            status: SidrStatus(names.3[0]),
            additional_length: names.3[1],
            qpn: names.2,
            service: ServiceId(names.1),
            qkey: names.0[1],
            additional,
            private_data,
        })
    });
    prop_oneof![request, reply]
}

/// Any message.
pub fn message() -> impl Strategy<Value = CmMessage> {
    prop_oneof![
        req().prop_map(CmMessage::Req),
        rep().prop_map(CmMessage::Rep),
        rej().prop_map(CmMessage::Rej),
        control(),
        sidr(),
    ]
}
