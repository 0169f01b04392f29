//! The table of legal state transitions.
//!
//! Devices decide with [`check_transition`]; the libibverbs device uses it to explain an `EINVAL`.
//! Source: IBTA volume 1, 10.3.1 (states), 11.2.5.2 (the attributes of each transition).

use crate::error::ModifyQpError;
use crate::qp::QpAttrMask as M;
use crate::qp::QpState::{self, Init, Rtr, Rts, Sqd, Sqe};
use crate::qp::QpType::{self, Dci, Dct, Rc, Uc, Ud, XrcRecv, XrcSend};
use crate::qp::{QpAttr, QpAttrMask};

/// A legal transition with its required and optional attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Type of the queue pair.
    pub qp_type: QpType,
    /// Old state.
    pub from: QpState,
    /// New state.
    pub to: QpState,
    /// Required attributes other than `STATE`.
    pub required: QpAttrMask,
    /// Optional attributes. `CUR_STATE` is allowed, too, in RTR, RTS, SQD and SQE.
    pub optional: QpAttrMask,
}

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

/// All transitions except those to RESET and ERR, which are possible from every state and have no
/// attribute but the state.
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
    // DC as in Linux (drivers/infiniband/hw/mlx5/qp.c): initiators have no peer, targets no RTS.
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
    // XRC as in Linux (drivers/infiniband/core/verbs.c): each end requires the attributes of its half of RC. Those of the
    // other half are optional, and have no effect: perftest gives all of them to both ends.
    edge(XrcSend, QpState::Reset, Init, ADDRESSING, NONE),
    edge(XrcSend, Init, Init, NONE, ADDRESSING),
    edge(
        XrcSend,
        Init,
        Rtr,
        PATH,
        M::ALT_PATH
            .union(M::ACCESS_FLAGS)
            .union(M::PKEY_INDEX)
            .union(M::MAX_DEST_RD_ATOMIC)
            .union(M::MIN_RNR_TIMER),
    ),
    edge(
        XrcSend,
        Rtr,
        Rts,
        RETRIES.union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC),
        UC_LIVE,
    ),
    edge(XrcSend, Rts, Rts, NONE, UC_LIVE),
    edge(XrcSend, Rts, Sqd, NONE, M::EN_SQD_ASYNC_NOTIFY),
    edge(XrcSend, Sqd, Rts, NONE, UC_LIVE),
    edge(
        XrcSend,
        Sqd,
        Sqd,
        NONE,
        UC_DRAINED
            .union(RETRIES)
            .union(M::PORT)
            .union(M::MAX_QP_RD_ATOMIC),
    ),
    edge(XrcRecv, QpState::Reset, Init, ADDRESSING, NONE),
    edge(XrcRecv, Init, Init, NONE, ADDRESSING),
    edge(
        XrcRecv,
        Init,
        Rtr,
        PATH.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER),
        M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX),
    ),
    edge(
        XrcRecv,
        Rtr,
        Rts,
        M::TIMEOUT.union(M::SQ_PSN),
        RC_LIVE
            .union(M::RETRY_CNT)
            .union(M::RNR_RETRY)
            .union(M::MAX_QP_RD_ATOMIC),
    ),
    edge(XrcRecv, Rts, Rts, NONE, RC_LIVE),
    edge(XrcRecv, Rts, Sqd, NONE, M::EN_SQD_ASYNC_NOTIFY),
    edge(XrcRecv, Sqd, Rts, NONE, RC_LIVE),
    edge(
        XrcRecv,
        Sqd,
        Sqd,
        NONE,
        RC_LIVE
            .union(M::TIMEOUT)
            .union(M::PORT)
            .union(M::PKEY_INDEX)
            .union(M::AV)
            .union(M::MAX_DEST_RD_ATOMIC),
    ),
];

/// Returns the transition from `from` to `to`, if it is legal.
pub fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    if matches!(to, QpState::Reset | QpState::Err) {
        return Some(edge(qp_type, from, to, NONE, NONE));
    }
    TRANSITIONS
        .iter()
        .find(|t| t.qp_type == qp_type && t.from == from && t.to == to)
        .copied()
}

/// Checks that a queue pair in `from` may be modified by `attr` and returns the new state.
///
/// # Errors
/// As for [`check_mask`].
pub fn check_transition(
    qp_type: QpType,
    from: QpState,
    attr: &QpAttr,
) -> Result<QpState, ModifyQpError> {
    check_mask(qp_type, from, (attr.state, attr.cur_state), attr.mask())
}

/// Checks that a queue pair in `from` may be modified by the attributes `given`, of which `state` and `current` are
/// the values of `STATE` and `CUR_STATE`; returns the new state.
///
/// Without a new state it stays in `from`, which needs a transition from `from` to itself.
///
/// # Errors
/// There is no such transition, a required attribute is missing, or one is not allowed.
pub fn check_mask(
    qp_type: QpType,
    from: QpState,
    (state, current): (Option<QpState>, Option<QpState>),
    given: QpAttrMask,
) -> Result<QpState, ModifyQpError> {
    if let Some(named) = current.filter(|named| *named != from) {
        return Err(ModifyQpError::CurrentState {
            actual: from,
            named,
        });
    }
    let to = state.unwrap_or(from);
    let edge = transition(qp_type, from, to).ok_or_else(|| ModifyQpError::IllegalTransition {
        qp_type,
        from,
        to,
        legal: legal_targets(qp_type, from),
    })?;
    let given = given - M::STATE;
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
    use crate::access::AccessFlags;
    use crate::caps::PathMtu;
    use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};
    use crate::qp::AddressVector;

    use super::*;

    fn rtr() -> QpAttr {
        let address = AddressVector::new(Gid::default(), Lid(0), PortNum::ONE);
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
            "invalid transition of a queue pair (RC) from RESET to RTS: from RESET it can change to RESET, INIT, ERR"
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
            "invalid transition of a queue pair (DC target) from RTR to RTS: from RTR it can change to RESET, ERR"
        );
    }

    #[test]
    fn each_end_of_xrc_has_its_half_of_the_attributes_of_rc() {
        let half = |qp_type| {
            let of = |from, to| transition(qp_type, from, to).unwrap().required;
            of(Init, Rtr) | of(Rtr, Rts)
        };
        assert_eq!(half(XrcSend) | half(XrcRecv), half(Rc));
        let responder = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let requester = M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        assert_eq!(half(Rc) - half(XrcSend), responder);
        assert_eq!(half(Rc) - half(XrcRecv), requester);
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
}
