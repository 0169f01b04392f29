//! What the model is known to lack, and where it is known to depart from the rules.

use adverb_conformance::known::{Kind, Known};

const NO_GROUPS: &str = "the model has no switch that makes copies, and no subnet manager";

/// Of all presets.
pub(crate) const KNOWN: &[Known] = &[
    Kind::Lacks.of("multicast::every_member_of_a_group_gets_a_copy", NO_GROUPS),
    Kind::Lacks.of("multicast::who_left_a_group_gets_nothing_more", NO_GROUPS),
    Kind::Lacks.of(
        "multicast::a_copy_under_another_queue_key_is_dropped",
        NO_GROUPS,
    ),
    Kind::Lacks.of(
        "multicast::what_is_no_group_or_no_datagram_is_refused",
        NO_GROUPS,
    ),
];
