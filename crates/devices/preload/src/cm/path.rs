//! The path record of a route.

use std::ffi::c_int;
use std::net::IpAddr;

use adverb_abi::ibv_gid;
use adverb_verbs::PathMtu;

use super::address;
use crate::convert::mtu_code;

/// `struct ibv_sa_path_rec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PathRecord {
    dgid: ibv_gid,
    sgid: ibv_gid,
    dlid: u16,
    slid: u16,
    raw_traffic: c_int,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: c_int,
    numb_path: u8,
    pkey: u16,
    mtu_selector: u8,
    sl: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

impl std::fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathRecord")
    }
}

/// Selector of an exact value.
const EXACTLY: u8 = 2;
/// `IBV_RATE_10_GBPS`: the device has no rate of its own.
pub(super) const RATE: u8 = 3;
/// 4.096 µs × 2^14.
const LIFE_TIME: u8 = 14;

impl PathRecord {
    pub(super) const fn new(
        (own, remote): (IpAddr, IpAddr),
        (mtu, traffic_class): (PathMtu, u8),
    ) -> Self {
        PathRecord {
            dgid: address::gid(remote),
            sgid: address::gid(own),
            dlid: 0,
            slid: 0,
            raw_traffic: 0,
            flow_label: 0,
            hop_limit: 64,
            traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: 0xffff,
            mtu_selector: EXACTLY,
            sl: 0,
            mtu: mtu_code(mtu) as u8,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: LIFE_TIME,
            preference: 0,
        }
    }
}
