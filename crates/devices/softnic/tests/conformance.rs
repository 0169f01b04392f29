//! The conformance suite on the user-space NIC, both ends in one process. A case is a test of its
//! own; what the device lacks is listed here.

use adverb_conformance::threads::Subject;
use adverb_conformance::{case, judge};
use adverb_softnic::{PrivateReach, SoftDevice};
use adverb_verbs::Device;

/// Without a network there are no groups; with one there are (`udp_conformance`).
const LACKING: [&str; 4] = [
    "multicast::every_member_of_a_group_gets_a_copy",
    "multicast::members_that_left_a_group_receive_nothing",
    "multicast::a_copy_under_another_queue_key_is_dropped",
    "multicast::invalid_groups_and_queue_pairs_are_refused",
];

fn run_on(device: SoftDevice, name: &str) {
    let open = || device.open();
    let subject = Subject {
        open: &open,
        station: &open,
    };
    judge(name, &LACKING, subject.run(&case(name)));
}

fn run(name: &str) {
    run_on(SoftDevice::new(), name);
}

adverb_conformance::conformance_tests!(super::run);

/// With regions in private memory, as programs register it, which is reached as the other process of a connection reaches it.
fn run_privately(reach: PrivateReach, name: &str) {
    run_on(SoftDevice::new().with_private_memory(reach), name);
}

mod private_memory_by_system_calls {
    fn run(name: &str) {
        super::run_privately(super::PrivateReach::BySystemCall, name);
    }

    adverb_conformance::conformance_tests!(super::run);
}

mod private_memory_by_owner_requests {
    fn run(name: &str) {
        super::run_privately(super::PrivateReach::ByOwner, name);
    }

    adverb_conformance::conformance_tests!(super::run);
}
