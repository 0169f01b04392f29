//! The queue pair's life: states, attributes, and the one table of legal transitions.
//!
//! Devices decide by [`check_transition`]; the libibverbs device uses it to explain an `EINVAL`.
//! Source: IBTA volume 1, 10.3.1 (states), 11.2.5.2 (Modify QP attributes), table 45 (RNR timers).

use std::fmt;

use adverb_units::Span;

use crate::access::AccessFlags;
use crate::caps::PathMtu;
use crate::error::ModifyQpError;
use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};

/// Transport service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Initiator of the dynamically connected transport: each request says which target it goes to,
    /// and the device connects it (`MLX5DV_DCTYPE_DCI`).
    Dci,
    /// Target of the dynamically connected transport (`MLX5DV_DCTYPE_DCT`): it never goes beyond RTR.
    Dct,
}

impl QpType {
    /// Whether requests are acknowledged, and sent again until they are.
    pub const fn is_reliable(self) -> bool {
        matches!(self, QpType::Rc | QpType::Dci | QpType::Dct)
    }

    /// Whether each request names its destination.
    pub const fn is_addressed(self) -> bool {
        matches!(self, QpType::Ud | QpType::Dci)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            QpType::Rc => "RC",
            QpType::Uc => "UC",
            QpType::Ud => "UD",
            QpType::Dci => "DC initiator",
            QpType::Dct => "DC target",
        })
    }
}

/// State of a queue pair (`ibv_qp_state`, same numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QpState {
    /// Just made, or taken back: both queues are empty.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained.
    Sqd = 4,
    /// Send queue error (UC, UD).
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states, by number.
    pub const ALL: [QpState; 7] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Sqe,
        QpState::Err,
    ];

    /// The state numbered `code` in `ibv_qp_state`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Whether the peer's requests are carried out in this state.
    pub fn receives(self) -> bool {
        matches!(
            self,
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            QpState::Reset => "RESET",
            QpState::Init => "INIT",
            QpState::Rtr => "RTR",
            QpState::Rts => "RTS",
            QpState::Sqd => "SQD",
            QpState::Sqe => "SQE",
            QpState::Err => "ERR",
        })
    }
}

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
}

/// Local ACK timeout, 5 bits: 4.096 µs × 2^n; 0 is for ever (IBTA vol. 1, 9.7.6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(AckTimeout(n)) } else { None }
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time; none for code 0, which waits for ever.
    pub const fn span(self) -> Option<Span> {
        if self.0 == 0 {
            None
        } else {
            Some(Span::from_ps(4_096_000 << self.0))
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

/// A retry counter, 3 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryCount(u8);

impl RetryCount {
    /// The highest count; for RNR retries it means without end.
    pub const MAX: RetryCount = RetryCount(7);

    /// `n` retries, 0 to 7.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 8 { Some(RetryCount(n)) } else { None }
    }

    /// How many.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// How many RNR retries: none where they never end (IBTA vol. 1, 9.7.5.2.8).
    pub const fn as_rnr(self) -> Option<u8> {
        if self.0 == 7 { None } else { Some(self.0) }
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

    /// An RC queue pair to RTS, its first packet being `sq_psn`. Timeout 4.096 µs × 2^14 = 67 ms,
    /// 7 retries, RNR retries without end, one READ at a time; change the fields for others.
    pub fn to_rts(sq_psn: Psn) -> Self {
        QpAttr {
            sq_psn: Some(sq_psn),
            timeout: AckTimeout::new(14),
            retry_cnt: Some(RetryCount::MAX),
            rnr_retry: Some(RetryCount::MAX),
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

/// One legal edge: the attributes it needs and those it takes beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Kind of queue pair.
    pub qp_type: QpType,
    /// From.
    pub from: QpState,
    /// To.
    pub to: QpState,
    /// Attributes that must be present, beside `STATE`.
    pub required: QpAttrMask,
    /// Attributes that may be present, beside `CUR_STATE` out of RTR, RTS, SQD and SQE.
    pub optional: QpAttrMask,
}

use QpAttrMask as M;
use QpState::{Init, Rtr, Rts, Sqd, Sqe};
use QpType::{Dci, Dct, Rc, Uc, Ud};

const NONE: M = M::empty();
const ADDRESSING: M = M::PKEY_INDEX.union(M::PORT).union(M::ACCESS_FLAGS);
const DATAGRAM_ADDRESSING: M = M::PKEY_INDEX.union(M::PORT).union(M::QKEY);
const PATH: M = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
const MIGRATION: M = M::ALT_PATH.union(M::PATH_MIG_STATE);
const RETRIES: M = M::TIMEOUT.union(M::RETRY_CNT).union(M::RNR_RETRY);
const RC_LIVE: M = M::ACCESS_FLAGS.union(M::MIN_RNR_TIMER).union(MIGRATION);
const RC_DRAINED: M = RC_LIVE
    .union(RETRIES)
    .union(M::PORT)
    .union(M::PKEY_INDEX)
    .union(M::AV)
    .union(M::MAX_QP_RD_ATOMIC)
    .union(M::MAX_DEST_RD_ATOMIC);
const UC_LIVE: M = M::ACCESS_FLAGS.union(MIGRATION);
const UC_DRAINED: M = UC_LIVE.union(M::AV).union(M::PKEY_INDEX);

const fn edge(qp_type: QpType, from: QpState, to: QpState, required: M, optional: M) -> Transition {
    Transition {
        qp_type,
        from,
        to,
        required,
        optional,
    }
}

/// The edges that need or take attributes. From every state a queue pair can also go to RESET and
/// to ERR, with no attribute but the state.
pub const TRANSITIONS: &[Transition] = &[
    edge(Rc, QpState::Reset, Init, ADDRESSING, NONE),
    edge(Rc, Init, Init, NONE, ADDRESSING),
    edge(
        Rc,
        Init,
        Rtr,
        PATH.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER),
        M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX),
    ),
    edge(
        Rc,
        Rtr,
        Rts,
        RETRIES.union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC),
        RC_LIVE,
    ),
    edge(Rc, Rts, Rts, NONE, RC_LIVE),
    edge(Rc, Rts, Sqd, NONE, M::EN_SQD_ASYNC_NOTIFY),
    edge(Rc, Sqd, Rts, NONE, RC_LIVE),
    edge(Rc, Sqd, Sqd, NONE, RC_DRAINED),
    edge(Uc, QpState::Reset, Init, ADDRESSING, NONE),
    edge(Uc, Init, Init, NONE, ADDRESSING),
    edge(
        Uc,
        Init,
        Rtr,
        PATH,
        M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX),
    ),
    edge(Uc, Rtr, Rts, M::SQ_PSN, UC_LIVE),
    edge(Uc, Rts, Rts, NONE, UC_LIVE),
    edge(Uc, Rts, Sqd, NONE, M::EN_SQD_ASYNC_NOTIFY),
    edge(Uc, Sqd, Rts, NONE, UC_LIVE),
    edge(Uc, Sqd, Sqd, NONE, UC_DRAINED),
    edge(Uc, Sqe, Rts, NONE, M::ACCESS_FLAGS),
    edge(Ud, QpState::Reset, Init, DATAGRAM_ADDRESSING, NONE),
    edge(Ud, Init, Init, NONE, DATAGRAM_ADDRESSING),
    edge(Ud, Init, Rtr, NONE, M::PKEY_INDEX.union(M::QKEY)),
    edge(Ud, Rtr, Rts, M::SQ_PSN, M::QKEY),
    edge(Ud, Rts, Rts, NONE, M::QKEY),
    edge(Ud, Rts, Sqd, NONE, M::EN_SQD_ASYNC_NOTIFY),
    edge(Ud, Sqd, Rts, NONE, M::QKEY),
    edge(Ud, Sqd, Sqd, NONE, M::PKEY_INDEX.union(M::QKEY)),
    edge(Ud, Sqe, Rts, NONE, M::QKEY),
    // DC as in Linux (drivers/infiniband/hw/mlx5/qp.c): an initiator has no peer, a target no RTS.
    edge(
        Dci,
        QpState::Reset,
        Init,
        M::PKEY_INDEX.union(M::PORT),
        NONE,
    ),
    edge(Dci, Init, Init, NONE, M::PKEY_INDEX.union(M::PORT)),
    edge(Dci, Init, Rtr, M::PATH_MTU, M::PKEY_INDEX.union(M::AV)),
    edge(
        Dci,
        Rtr,
        Rts,
        RETRIES.union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC),
        M::MIN_RNR_TIMER,
    ),
    edge(Dci, Rts, Rts, NONE, M::MIN_RNR_TIMER),
    edge(Dct, QpState::Reset, Init, ADDRESSING.union(M::QKEY), NONE),
    edge(Dct, Init, Rtr, M::PATH_MTU.union(M::MIN_RNR_TIMER), M::AV),
];

/// The edge from `from` to `to`, if there is one.
pub fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Err) {
        return Some(edge(qp_type, from, to, NONE, NONE));
    }
    TRANSITIONS
        .iter()
        .find(|t| t.qp_type == qp_type && t.from == from && t.to == to)
        .copied()
}

/// Whether a queue pair in `from` may be modified by `attr`; returns the state it then is in.
///
/// Without `STATE` in the mask the queue pair stays in `from` (an edge to itself is needed).
pub fn check_transition(
    qp_type: QpType,
    from: QpState,
    attr: &QpAttr,
) -> Result<QpState, ModifyQpError> {
    if let Some(named) = attr.cur_state.filter(|named| *named != from) {
        return Err(ModifyQpError::CurrentState {
            actual: from,
            named,
        });
    }
    let to = attr.state.unwrap_or(from);
    let edge = transition(qp_type, from, to).ok_or_else(|| ModifyQpError::IllegalTransition {
        qp_type,
        from,
        to,
        legal: legal_targets(qp_type, from),
    })?;
    let given = attr.mask() - M::STATE;
    let missing = edge.required - given;
    let names_current = matches!(from, Rtr | Rts | Sqd | Sqe).then_some(M::CUR_STATE);
    let invalid = given - edge.required - edge.optional - names_current.unwrap_or(NONE);
    if missing.is_empty() && invalid.is_empty() {
        Ok(to)
    } else {
        Err(ModifyQpError::InvalidAttributeMask {
            from,
            to,
            missing,
            invalid,
        })
    }
}

fn legal_targets(qp_type: QpType, from: QpState) -> String {
    QpState::ALL
        .iter()
        .filter(|to| transition(qp_type, from, **to).is_some())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtr() -> QpAttr {
        let address = AddressVector {
            dgid: Gid::default(),
            dlid: Lid(0),
            port: PortNum::ONE,
        };
        QpAttr::to_rtr(address, Qpn::default(), Psn::new(0), PathMtu::B1024)
    }

    #[test]
    fn the_constructors_walk_an_rc_queue_pair_to_rts() {
        let init = QpAttr::to_init(PortNum::ONE, AccessFlags::empty());
        assert_eq!(check_transition(Rc, QpState::Reset, &init), Ok(Init));
        assert_eq!(check_transition(Rc, Init, &rtr()), Ok(Rtr));
        assert_eq!(
            check_transition(Rc, Rtr, &QpAttr::to_rts(Psn::new(0))),
            Ok(Rts)
        );
    }

    #[test]
    fn a_refusal_names_what_is_missing_and_what_is_too_much() {
        let attr = QpAttr {
            qkey: Some(1),
            min_rnr_timer: None,
            ..rtr()
        };
        let error = check_transition(Rc, Init, &attr).unwrap_err();
        assert_eq!(
            error.to_string(),
            "INIT to RTR: missing MIN_RNR_TIMER; not allowed QKEY"
        );
        let error = check_transition(Rc, QpState::Reset, &QpAttr::to_rts(Psn::new(0))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a RC queue pair cannot go from RESET to RTS; from RESET it can go to RESET, INIT, ERR"
        );
    }

    #[test]
    fn every_state_leads_to_reset_and_to_err_without_attributes() {
        for from in QpState::ALL {
            for to in [QpState::Reset, QpState::Err] {
                assert_eq!(check_transition(Rc, from, &QpAttr::to(to)), Ok(to));
                let burdened = QpAttr {
                    port: Some(PortNum::ONE),
                    ..QpAttr::to(to)
                };
                assert!(check_transition(Rc, from, &burdened).is_err());
            }
        }
    }

    #[test]
    fn dc_initiators_need_no_peer_and_targets_never_send() {
        let port = QpAttr {
            access: None,
            ..QpAttr::to_init(PortNum::ONE, AccessFlags::empty())
        };
        assert_eq!(check_transition(Dci, QpState::Reset, &port), Ok(Init));
        let path = QpAttr {
            path_mtu: Some(PathMtu::B4096),
            ..QpAttr::to(Rtr)
        };
        assert_eq!(check_transition(Dci, Init, &path), Ok(Rtr));
        assert_eq!(
            check_transition(Dci, Rtr, &QpAttr::to_rts(Psn::new(0))),
            Ok(Rts)
        );
        let error = check_transition(Dct, Rtr, &QpAttr::to_rts(Psn::new(0))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a DC target queue pair cannot go from RTR to RTS; from RTR it can go to RESET, ERR"
        );
    }

    #[test]
    fn a_wrong_current_state_is_refused() {
        let attr = QpAttr {
            cur_state: Some(Sqd),
            ..QpAttr::to(Rts)
        };
        let error = check_transition(Rc, Rts, &attr).unwrap_err();
        assert_eq!(
            error,
            ModifyQpError::CurrentState {
                actual: Rts,
                named: Sqd
            }
        );
    }

    #[test]
    fn no_edge_requires_what_it_also_takes_as_optional_and_none_stands_twice() {
        for (i, t) in TRANSITIONS.iter().enumerate() {
            assert!((t.required & t.optional).is_empty(), "{t:?}");
            let twin = |u: &Transition| (u.qp_type, u.from, u.to) == (t.qp_type, t.from, t.to);
            assert!(!TRANSITIONS[i + 1..].iter().any(twin), "{t:?}");
        }
    }

    #[test]
    fn timers_have_the_values_of_the_specification() {
        assert_eq!(
            AckTimeout::new(14).and_then(AckTimeout::span),
            Some(Span::from_ps(67_108_864_000))
        );
        assert_eq!(AckTimeout::new(0).and_then(AckTimeout::span), None);
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
