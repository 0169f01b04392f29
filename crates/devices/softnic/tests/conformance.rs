//! The conformance suite on the user-space NIC, both ends in one process. A case is a test of its
//! own; what the device lacks is listed here.

use adverb_conformance::threads::Subject;
use adverb_conformance::{case, judge};
use adverb_softnic::SoftDevice;
use adverb_verbs::Device;

/// Without a network there are no groups; with one there are (`udp_conformance`).
const LACKING: [&str; 4] = [
    "multicast::every_member_of_a_group_gets_a_copy",
    "multicast::members_that_left_a_group_receive_nothing",
    "multicast::a_copy_under_another_queue_key_is_dropped",
    "multicast::invalid_groups_and_queue_pairs_are_refused",
];

fn run(name: &str) {
    let open = || SoftDevice::new().open();
    let subject = Subject {
        open: &open,
        station: &open,
    };
    judge(name, &LACKING, subject.run(&case(name)));
}

adverb_conformance::conformance_tests!(super::run);
