//! Queue pairs of the dynamically connected transport.

use adverb_verbs::{
    AccessFlags, ModifyQpError, PathMtu, PortNum, Psn, QpAttr, QpState, QueuePair, RnrTimer,
};

/// Access key of all targets.
pub(crate) const KEY: u32 = 0x0dc7_0001;

/// Moves an initiator to RTS; it needs no peer.
pub(crate) fn ready_initiator<Q: QueuePair>(
    qp: &Q,
    (port, mtu): (PortNum, PathMtu),
    first: Psn,
    rd_atomic: u8,
) -> Result<(), ModifyQpError> {
    let mut init = QpAttr::to_init(port, AccessFlags::empty());
    init.access = None;
    let mut path = QpAttr::to(QpState::Rtr);
    path.path_mtu = Some(mtu);
    let mut live = QpAttr::to_rts(first);
    live.max_rd_atomic = Some(rd_atomic);
    [init, path, live]
        .iter()
        .try_for_each(|attr| qp.modify(attr))
}

/// Moves a target to RTR, its last state.
pub(crate) fn ready_target<Q: QueuePair>(
    qp: &Q,
    (port, mtu): (PortNum, PathMtu),
) -> Result<(), ModifyQpError> {
    let mut init = QpAttr::to_init(port, AccessFlags::all());
    init.qkey = Some(KEY);
    let mut path = QpAttr::to(QpState::Rtr);
    path.path_mtu = Some(mtu);
    path.min_rnr_timer = RnrTimer::new(1);
    [init, path].iter().try_for_each(|attr| qp.modify(attr))
}
