//! Attributes of Modify QP.
//!
//! Source: IBTA volume 1, 11.2.5.2 (Modify QP attributes), table 45 (RNR timers).

use adverb_units::Span;

use super::QpState;
use super::retry::{AckTimeout, RetryCount, RetryParams};
use crate::access::AccessFlags;
use crate::caps::PathMtu;
use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};
use crate::priority::{ServiceLevel, TrafficClass};
use crate::rate::LinkRate;

bitflags::bitflags! {
    /// Which attributes of a Modify QP are present (`ibv_qp_attr_mask`, same bits).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// The new state.
        const STATE = 1;
        /// The state that the caller expects the queue pair to be in.
        const CUR_STATE = 1 << 1;
        /// Notify when drained.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// Access rights of the peer.
        const ACCESS_FLAGS = 1 << 3;
        /// Partition.
        const PKEY_INDEX = 1 << 4;
        /// Port.
        const PORT = 1 << 5;
        /// Queue key (UD), or access key (DC target).
        const QKEY = 1 << 6;
        /// Address of the peer.
        const AV = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Local acknowledgement timeout.
        const TIMEOUT = 1 << 9;
        /// Retries after a timeout.
        const RETRY_CNT = 1 << 10;
        /// Retries after receive-not-ready.
        const RNR_RETRY = 1 << 11;
        /// PSN of the first packet to receive.
        const RQ_PSN = 1 << 12;
        /// Outstanding READs and atomics as the requester.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// Time that the peer waits after an RNR NAK.
        const MIN_RNR_TIMER = 1 << 15;
        /// PSN of the first packet to send.
        const SQ_PSN = 1 << 16;
        /// Outstanding READs and atomics as the responder.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// Queue sizes.
        const CAP = 1 << 19;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
    }
}

/// Address of a peer's port (`ibv_ah_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// GID.
    pub dgid: Gid,
    /// LID; 0 if the link layer has none.
    pub dlid: Lid,
    /// The local port.
    pub port: PortNum,
    /// Traffic class of packets to the peer.
    pub traffic_class: TrafficClass,
    /// Service level of packets to the peer.
    pub service_level: ServiceLevel,
    /// Rate that packets to the peer are limited to; `None` for the link's rate.
    pub static_rate: Option<LinkRate>,
}

impl AddressVector {
    /// Returns an address reached through local port `port`, with traffic class and service level 0.
    pub fn new(dgid: Gid, dlid: Lid, port: PortNum) -> Self {
        AddressVector {
            dgid,
            dlid,
            port,
            traffic_class: TrafficClass::default(),
            service_level: ServiceLevel::default(),
            static_rate: None,
        }
    }
}

/// Minimum RNR NAK timer, 5 bits (IBTA vol. 1, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// 655 ms (code 0).
    pub const LONGEST: RnrTimer = RnrTimer(0);

    const MICROSECONDS: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];

    /// Returns the timer with code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(RnrTimer(n)) } else { None }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time.
    pub const fn span(self) -> Span {
        Span::from_us(Self::MICROSECONDS[self.0 as usize])
    }
}

/// Attributes of a Modify QP (`ibv_qp_attr`). The mask follows from those that are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpAttr {
    /// The new state.
    pub state: Option<QpState>,
    /// The state that the caller expects the queue pair to be in.
    pub cur_state: Option<QpState>,
    /// Access rights of the peer.
    pub access: Option<AccessFlags>,
    /// Partition index.
    pub pkey_index: Option<u16>,
    /// Port.
    pub port: Option<PortNum>,
    /// Queue key (UD), or access key of a DC target, which mlx5 needs when it creates one.
    pub qkey: Option<u32>,
    /// Address of the peer.
    pub address: Option<AddressVector>,
    /// Path MTU.
    pub path_mtu: Option<PathMtu>,
    /// Local ACK timeout.
    pub timeout: Option<AckTimeout>,
    /// Retries after a timeout.
    pub retry_cnt: Option<RetryCount>,
    /// Retries after receive-not-ready.
    pub rnr_retry: Option<RetryCount>,
    /// PSN of the first packet to receive.
    pub rq_psn: Option<Psn>,
    /// PSN of the first packet to send.
    pub sq_psn: Option<Psn>,
    /// Outstanding READs and atomics as the requester.
    pub max_rd_atomic: Option<u8>,
    /// Outstanding READs and atomics as the responder.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR timer sent to the peer.
    pub min_rnr_timer: Option<RnrTimer>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
}

impl QpAttr {
    /// Returns the change to `state` without further attributes: for `Reset`, `Err`, `Sqd`.
    pub fn to(state: QpState) -> Self {
        QpAttr {
            state: Some(state),
            ..QpAttr::default()
        }
    }

    /// Returns the change of a connected queue pair to INIT on `port`, with access rights for the peer.
    pub fn to_init(port: PortNum, access: AccessFlags) -> Self {
        QpAttr {
            pkey_index: Some(0),
            port: Some(port),
            access: Some(access),
            ..QpAttr::to(QpState::Init)
        }
    }

    /// Returns the change of an RC queue pair to RTR, connected with queue pair `dest` at `address`, whose
    /// first packet has the PSN `rq_psn`. RNR timer 10 µs, one outstanding READ; change the fields for others.
    pub fn to_rtr(address: AddressVector, dest: Qpn, rq_psn: Psn, path_mtu: PathMtu) -> Self {
        QpAttr {
            address: Some(address),
            dest_qpn: Some(dest),
            rq_psn: Some(rq_psn),
            path_mtu: Some(path_mtu),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: RnrTimer::new(1),
            ..QpAttr::to(QpState::Rtr)
        }
    }

    /// Returns the change of an RC queue pair to RTS, whose first packet has the PSN `sq_psn`, with the
    /// default [`RetryParams`] and one outstanding READ; change the fields for others.
    pub fn to_rts(sq_psn: Psn) -> Self {
        let usual = RetryParams::default();
        QpAttr {
            sq_psn: Some(sq_psn),
            timeout: Some(usual.timeout),
            retry_cnt: Some(usual.retry_cnt),
            rnr_retry: Some(usual.rnr_retry),
            max_rd_atomic: Some(1),
            ..QpAttr::to(QpState::Rts)
        }
    }

    /// Returns which attributes are present.
    pub fn mask(&self) -> QpAttrMask {
        let all = [
            self.state.map(|_| QpAttrMask::STATE),
            self.cur_state.map(|_| QpAttrMask::CUR_STATE),
            self.access.map(|_| QpAttrMask::ACCESS_FLAGS),
            self.pkey_index.map(|_| QpAttrMask::PKEY_INDEX),
            self.port.map(|_| QpAttrMask::PORT),
            self.qkey.map(|_| QpAttrMask::QKEY),
            self.address.map(|_| QpAttrMask::AV),
            self.path_mtu.map(|_| QpAttrMask::PATH_MTU),
            self.timeout.map(|_| QpAttrMask::TIMEOUT),
            self.retry_cnt.map(|_| QpAttrMask::RETRY_CNT),
            self.rnr_retry.map(|_| QpAttrMask::RNR_RETRY),
            self.rq_psn.map(|_| QpAttrMask::RQ_PSN),
            self.sq_psn.map(|_| QpAttrMask::SQ_PSN),
            self.max_rd_atomic.map(|_| QpAttrMask::MAX_QP_RD_ATOMIC),
            self.max_dest_rd_atomic
                .map(|_| QpAttrMask::MAX_DEST_RD_ATOMIC),
            self.min_rnr_timer.map(|_| QpAttrMask::MIN_RNR_TIMER),
            self.dest_qpn.map(|_| QpAttrMask::DEST_QPN),
        ];
        all.into_iter().flatten().collect()
    }
}

impl RetryParams {
    /// Returns the values in `attr`, with absent ones taken from `old`; `None` if one is in neither.
    pub fn merged(old: Option<Self>, attr: &QpAttr) -> Option<Self> {
        Some(RetryParams {
            timeout: attr.timeout.or(old.map(|old| old.timeout))?,
            retry_cnt: attr.retry_cnt.or(old.map(|old| old.retry_cnt))?,
            rnr_retry: attr.rnr_retry.or(old.map(|old| old.rnr_retry))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_have_the_values_of_the_specification() {
        assert_eq!(
            RnrTimer::new(0).map(RnrTimer::span),
            Some(Span::from_us(655_360))
        );
        assert_eq!(
            RnrTimer::new(12).map(RnrTimer::span),
            Some(Span::from_us(640))
        );
        assert_eq!(
            RnrTimer::new(31).map(RnrTimer::span),
            Some(Span::from_us(491_520))
        );
    }
}
