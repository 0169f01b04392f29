//! What a Modify QP carries.
//!
//! Source: IBTA volume 1, 11.2.5.2 (Modify QP attributes), table 45 (RNR timers).

use adverb_units::Span;

use super::{AckTimeout, QpState, RetryCount, RetryParams};
use crate::access::AccessFlags;
use crate::caps::PathMtu;
use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};
use crate::path::{ServiceLevel, TrafficClass};

bitflags::bitflags! {
    /// Which attributes a Modify QP carries (`ibv_qp_attr_mask`, same bits).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// The state to go to.
        const STATE = 1;
        /// The state that the caller believes it in.
        const CUR_STATE = 1 << 1;
        /// Notify when drained.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// What the peer may do.
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
        /// First packet expected.
        const RQ_PSN = 1 << 12;
        /// READs and atomics this side may have under way.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// Time a peer is told to wait when no receive is posted.
        const MIN_RNR_TIMER = 1 << 15;
        /// First packet sent.
        const SQ_PSN = 1 << 16;
        /// READs and atomics taken from the peer at a time.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration.
        const PATH_MIG_STATE = 1 << 18;
        /// Queue sizes.
        const CAP = 1 << 19;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
    }
}

/// Where the peer is (`ibv_ah_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// Its GID.
    pub dgid: Gid,
    /// Its LID; 0 where the link layer has none.
    pub dlid: Lid,
    /// The local port to leave by.
    pub port: PortNum,
    /// Traffic class of the packets to it.
    pub traffic_class: TrafficClass,
    /// Service level of the packets to it.
    pub service_level: ServiceLevel,
}

impl AddressVector {
    /// The address of a peer's port, reached by local port `port` with traffic class and service level 0.
    pub fn new(dgid: Gid, dlid: Lid, port: PortNum) -> Self {
        AddressVector {
            dgid,
            dlid,
            port,
            traffic_class: TrafficClass::default(),
            service_level: ServiceLevel::default(),
        }
    }
}

/// Minimum RNR NAK timer, 5 bits (IBTA vol. 1, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    const MICROSECONDS: [u64; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];

    /// Code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(RnrTimer(n)) } else { None }
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time.
    pub const fn span(self) -> Span {
        Span::from_us(Self::MICROSECONDS[self.0 as usize])
    }
}

/// Attributes of a Modify QP (`ibv_qp_attr`); those that are present make the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpAttr {
    /// The state to go to.
    pub state: Option<QpState>,
    /// The state the caller believes it in.
    pub cur_state: Option<QpState>,
    /// What the peer may do.
    pub access: Option<AccessFlags>,
    /// Partition index.
    pub pkey_index: Option<u16>,
    /// Port.
    pub port: Option<PortNum>,
    /// Queue key (UD), or access key of a DC target, which mlx5 takes when it makes one.
    pub qkey: Option<u32>,
    /// The peer's address.
    pub address: Option<AddressVector>,
    /// Path MTU.
    pub path_mtu: Option<PathMtu>,
    /// Local ACK timeout.
    pub timeout: Option<AckTimeout>,
    /// Retries after a timeout.
    pub retry_cnt: Option<RetryCount>,
    /// Retries after receive-not-ready.
    pub rnr_retry: Option<RetryCount>,
    /// First packet expected.
    pub rq_psn: Option<Psn>,
    /// First packet sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomics under way from this side.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics taken from the peer at a time.
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR timer told to the peer.
    pub min_rnr_timer: Option<RnrTimer>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
}

impl QpAttr {
    /// To `state`, without further attributes: for `Reset`, `Err`, `Sqd`.
    pub fn to(state: QpState) -> Self {
        QpAttr {
            state: Some(state),
            ..QpAttr::default()
        }
    }

    /// A connected queue pair to INIT, on `port`, letting the peer do `access`.
    pub fn to_init(port: PortNum, access: AccessFlags) -> Self {
        QpAttr {
            pkey_index: Some(0),
            port: Some(port),
            access: Some(access),
            ..QpAttr::to(QpState::Init)
        }
    }

    /// An RC queue pair to RTR, listening to queue pair `dest` at `address`, whose first packet
    /// will be `rq_psn`. RNR timer 10 µs, one READ at a time; change the fields for others.
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

    /// An RC queue pair to RTS, its first packet being `sq_psn`. The default [`RetryParams`], one READ at
    /// a time; change the fields for others.
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

    /// Which attributes are present.
    pub fn mask(&self) -> QpAttrMask {
        let present = [
            (self.state.is_some(), QpAttrMask::STATE),
            (self.cur_state.is_some(), QpAttrMask::CUR_STATE),
            (self.access.is_some(), QpAttrMask::ACCESS_FLAGS),
            (self.pkey_index.is_some(), QpAttrMask::PKEY_INDEX),
            (self.port.is_some(), QpAttrMask::PORT),
            (self.qkey.is_some(), QpAttrMask::QKEY),
            (self.address.is_some(), QpAttrMask::AV),
            (self.path_mtu.is_some(), QpAttrMask::PATH_MTU),
            (self.timeout.is_some(), QpAttrMask::TIMEOUT),
            (self.retry_cnt.is_some(), QpAttrMask::RETRY_CNT),
            (self.rnr_retry.is_some(), QpAttrMask::RNR_RETRY),
            (self.rq_psn.is_some(), QpAttrMask::RQ_PSN),
            (self.sq_psn.is_some(), QpAttrMask::SQ_PSN),
            (self.max_rd_atomic.is_some(), QpAttrMask::MAX_QP_RD_ATOMIC),
            (
                self.max_dest_rd_atomic.is_some(),
                QpAttrMask::MAX_DEST_RD_ATOMIC,
            ),
            (self.min_rnr_timer.is_some(), QpAttrMask::MIN_RNR_TIMER),
            (self.dest_qpn.is_some(), QpAttrMask::DEST_QPN),
        ];
        present
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, bit)| bit)
            .collect()
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
