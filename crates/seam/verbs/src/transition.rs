//! The table of legal state transitions.
//!
//! Devices decide with [`check_transition`]; the libibverbs device uses it to explain an `EINVAL`.
//! Source: IBTA volume 1, 10.3.1 (states), 11.2.5.2 (the attributes of each transition).

use crate::error::ModifyQpError;
use crate::qp::QpAttrMask as M;
use crate::qp::QpState::{self, Init, Rtr, Rts, Sqd, Sqe};
use crate::qp::QpType::{self, Dci, Dct, Rc, Uc, Ud, XrcRecv, XrcSend};
use crate::qp::{QpAttr, QpAttrMask};

/// The attributes of a legal transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
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
/// What a queue pair that sends needs, and one that answers.
const REQUESTER: M = RETRIES.union(M::SQ_PSN).union(M::MAX_QP_RD_ATOMIC);
const RESPONDER: M = M::MAX_DEST_RD_ATOMIC.union(M::MIN_RNR_TIMER);
const MORE_PATH: M = M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX);
const RC_LIVE: M = M::ACCESS_FLAGS.union(M::MIN_RNR_TIMER).union(MIGRATION);
const UC_LIVE: M = M::ACCESS_FLAGS.union(MIGRATION);
const UC_DRAINED: M = UC_LIVE.union(M::AV).union(M::PKEY_INDEX);
const RC_DRAINED: M = UC_DRAINED
    .union(RETRIES)
    .union(RESPONDER)
    .union(M::PORT)
    .union(M::MAX_QP_RD_ATOMIC);

/// The attributes of the transitions of one type of queue pair. Of two, the first are required, the others optional.
struct Rules {
    /// Required from RESET to INIT, and optional in INIT.
    addressing: M,
    /// From INIT to RTR.
    to_rtr: (M, M),
    /// From RTR to RTS.
    to_rts: (M, M),
    /// Optional in RTS, and from SQD to RTS.
    live: M,
    /// Optional in SQD.
    drained: M,
}

impl Rules {
    const fn of(qp_type: QpType) -> Self {
        match qp_type {
            Rc => Rules {
                addressing: ADDRESSING,
                to_rtr: (PATH.union(RESPONDER), MORE_PATH),
                to_rts: (REQUESTER, RC_LIVE),
                live: RC_LIVE,
                drained: RC_DRAINED,
            },
            Uc => Rules {
                addressing: ADDRESSING,
                to_rtr: (PATH, MORE_PATH),
                to_rts: (M::SQ_PSN, UC_LIVE),
                live: UC_LIVE,
                drained: UC_DRAINED,
            },
            Ud => Rules {
                addressing: DATAGRAM_ADDRESSING,
                to_rtr: (NONE, M::PKEY_INDEX.union(M::QKEY)),
                to_rts: (M::SQ_PSN, M::QKEY),
                live: M::QKEY,
                drained: M::PKEY_INDEX.union(M::QKEY),
            },
            // DC as in Linux (drivers/infiniband/hw/mlx5/qp.c): initiators have no peer, targets no RTS.
            Dci => Rules {
                addressing: M::PKEY_INDEX.union(M::PORT),
                to_rtr: (M::PATH_MTU, M::PKEY_INDEX.union(M::AV)),
                to_rts: (REQUESTER, M::MIN_RNR_TIMER),
                live: M::MIN_RNR_TIMER,
                drained: NONE,
            },
            Dct => Rules {
                addressing: ADDRESSING.union(M::QKEY),
                to_rtr: (M::PATH_MTU.union(M::MIN_RNR_TIMER), M::AV),
                to_rts: (NONE, NONE),
                live: NONE,
                drained: NONE,
            },
            // XRC as in Linux (drivers/infiniband/core/verbs.c): each end requires the attributes of its half of RC. The
            // attributes of the other half are optional, and have no effect: perftest gives all of them to both ends.
            XrcSend => Rules {
                addressing: ADDRESSING,
                to_rtr: (PATH, MORE_PATH.union(RESPONDER)),
                to_rts: (REQUESTER, UC_LIVE),
                live: UC_LIVE,
                drained: UC_DRAINED
                    .union(RETRIES)
                    .union(M::PORT)
                    .union(M::MAX_QP_RD_ATOMIC),
            },
            XrcRecv => Rules {
                addressing: ADDRESSING,
                to_rtr: (PATH.union(RESPONDER), MORE_PATH),
                to_rts: (
                    M::TIMEOUT.union(M::SQ_PSN),
                    RC_LIVE
                        .union(M::RETRY_CNT)
                        .union(M::RNR_RETRY)
                        .union(M::MAX_QP_RD_ATOMIC),
                ),
                live: RC_LIVE,
                drained: UC_DRAINED.union(RESPONDER).union(M::TIMEOUT).union(M::PORT),
            },
        }
    }
}

/// Returns the transition from `from` to `to`, if it is legal. Transitions to RESET and ERR are possible from every state
/// and have no attribute but the state.
pub fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<Transition> {
    let rules = Rules::of(qp_type);
    let (required, optional) = match (qp_type, from, to) {
        (_, _, QpState::Reset | QpState::Err) => (NONE, NONE),
        (Dct, Init, Init) | (Dct, Rtr, Rts) => return None,
        (Dct | Dci, Rts, Sqd) | (Dct | Dci, Sqd, _) | (Dct, Rts, Rts) => return None,
        (_, QpState::Reset, Init) => (rules.addressing, NONE),
        (_, Init, Init) => (NONE, rules.addressing),
        (_, Init, Rtr) => rules.to_rtr,
        (_, Rtr, Rts) => rules.to_rts,
        (_, Rts | Sqd, Rts) => (NONE, rules.live),
        (_, Rts, Sqd) => (NONE, M::EN_SQD_ASYNC_NOTIFY),
        (_, Sqd, Sqd) => (NONE, rules.drained),
        (Uc, Sqe, Rts) => (NONE, M::ACCESS_FLAGS),
        (Ud, Sqe, Rts) => (NONE, M::QKEY),
        _ => return None,
    };
    Some(Transition { required, optional })
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

/// Checks that a queue pair in `from` may be modified by the attributes `given`; returns the new state. `state` and
/// `current` are the values of the attributes `STATE` and `CUR_STATE`.
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
    fn no_attribute_is_both_required_and_optional() {
        for qp_type in [Rc, Uc, Ud, Dci, Dct, XrcSend, XrcRecv] {
            for (from, to) in QpState::ALL
                .into_iter()
                .flat_map(|from| QpState::ALL.map(|to| (from, to)))
            {
                let Some(t) = transition(qp_type, from, to) else {
                    continue;
                };
                assert!(
                    (t.required & t.optional).is_empty(),
                    "{qp_type} {from} {to}: {t:?}"
                );
            }
        }
    }
}
