//! What drivers are known to lack, and where they are known to depart from the rules.

use adverb_conformance::known::{Kind, Known};
use adverb_ibverbs::Interface;

use crate::args::{Peer, Subject};
use crate::mixed::First;

const fn departs(case: &'static str, reason: &'static str) -> Known {
    Kind::Departs.of(case, reason)
}

const fn unsteady(case: &'static str, reason: &'static str) -> Known {
    Kind::Unsteady.of(case, reason)
}

const fn stalls(case: &'static str, reason: &'static str) -> Known {
    Kind::Stalls.of(case, reason)
}

const SLOTS: &str = "slots are freed when requests are done, not when completions are polled";
const NO_DOORBELL: &str =
    "posting a receive does not enter the kernel, which does not look for new ones in ERR";
const LOCAL_KEY: &str = "a wrong local key is LOC_QP_OP_ERR (rxe copy_data: EINVAL, not EFAULT)";
const RECV_KEY: &str =
    "a wrong local key of a receive is LOC_QP_OP_ERR (rxe_resp.c: RESPST_ERR_MALFORMED_WQE)";
const TOO_SMALL: &str = "a receive that is too small ends with LOC_QP_OP_ERR";
const NO_COPY: &str = "what a device sends to a group does not come to members of its own \
                       (rxe_mcast.c adds an Ethernet address and joins no group of IP), and \
                       the process that sent it takes a minute to end";
const SQD: &str = "going from SQD to RTS does not set the requester going; the next post does";

/// Soft-RoCE: the kernel's `drivers/infiniband/sw/rxe` (Linux 6.1), rdma-core's `providers/rxe`
/// (44).
const RXE: &[Known] = &[
    unsteady(
        "sharing::threads_share_a_queue_pair",
        "with several threads posting, requests are sometimes never carried out, or fail (why is not \
         known)",
    ),
    departs("signaling::unsignaled_requests_take_slots", SLOTS),
    departs(
        "signaling::slots_come_back_when_a_later_completion_is_polled",
        SLOTS,
    ),
    departs(
        "signaling::a_full_receive_queue_refuses",
        "more receives fit than max_recv_wr",
    ),
    departs(
        "signaling::a_list_is_posted_up_to_the_request_that_does_not_fit",
        "more requests fit than max_send_wr and max_recv_wr: rings are rounded up",
    ),
    departs(
        "access::receives_posted_after_a_refused_request_are_flushed",
        NO_DOORBELL,
    ),
    departs("local::a_wrong_lkey_is_a_local_protection_error", LOCAL_KEY),
    departs(
        "local::the_lkey_of_a_deregistered_region_is_a_local_protection_error",
        LOCAL_KEY,
    ),
    departs(
        "local::a_region_of_another_domain_is_a_local_protection_error",
        LOCAL_KEY,
    ),
    departs(
        "local::a_receive_with_a_wrong_lkey_fails_both_sides",
        RECV_KEY,
    ),
    departs(
        "local::a_receive_without_local_write_access_fails_both_sides",
        RECV_KEY,
    ),
    departs(
        "unreliable::uc_may_be_connected_to_a_peer_that_is_gone",
        LOCAL_KEY,
    ),
    departs(
        "unreliable::a_local_error_of_uc_stops_sending_only",
        LOCAL_KEY,
    ),
    departs(
        "datagram::a_local_error_of_ud_stops_sending_only",
        LOCAL_KEY,
    ),
    departs(
        "unreliable::a_message_of_uc_longer_than_its_receive_fails_the_receiver_alone",
        TOO_SMALL,
    ),
    departs(
        "dropped_datagram::a_receive_too_small_for_its_datagram_fails_the_receiver_alone",
        TOO_SMALL,
    ),
    departs(
        "dropped_datagram::a_queue_key_with_the_high_bit_is_the_senders_own",
        "the high bit of a request's queue key is not looked at",
    ),
    departs("datagram::unsignaled_datagrams_take_slots", SLOTS),
    stalls("multicast::every_member_of_a_group_gets_a_copy", NO_COPY),
    stalls(
        "multicast::members_that_left_a_group_receive_nothing",
        NO_COPY,
    ),
    stalls(
        "multicast::a_copy_under_another_queue_key_is_dropped",
        NO_COPY,
    ),
    departs("datagram::ud_is_flushed_and_begins_anew", NO_DOORBELL),
    departs(
        "local::a_message_longer_than_its_receive_fails_both_sides",
        "the sender gets REM_OP_ERR if the message does not fit its receive",
    ),
    departs(
        "shared_receive::a_message_too_long_for_its_shared_receive_fails_alone",
        "the sender gets REM_OP_ERR if the message does not fit its receive",
    ),
    departs(
        "shared_datagram::a_shared_receive_too_small_for_its_datagram_fails_its_queue_pair_alone",
        TOO_SMALL,
    ),
    departs(
        "shared_receive::a_shared_receive_in_another_domain_is_a_fault",
        RECV_KEY,
    ),
    departs(
        "shared_receive::the_last_receive_of_a_failing_queue_pair_is_told",
        "LAST_WQE_REACHED is never raised",
    ),
    departs(
        "events::an_error_raises_a_solicited_event",
        "a completion in error counts as solicited on the receiving side only",
    ),
    departs("states::posting_in_the_error_state_is_flushed", NO_DOORBELL),
    departs(
        "refused_modify::a_refused_change_in_rts_changes_nothing",
        "a change counts from the state that the program names (rxe_qp.c: cur_qp_state)",
    ),
    departs(
        "states::receives_posted_while_the_error_strikes_complete_once",
        NO_DOORBELL,
    ),
    departs(
        "states::reset_forgets_completions",
        "completions of before RESET stay in the completion queue",
    ),
    departs(
        "states::drained_holds_requests_back_until_ready_to_send",
        SQD,
    ),
    departs(
        "states::drained_finishes_the_request_that_has_begun",
        "in SQD a request that waits for its receive is not tried again",
    ),
    departs(
        "lost_peer::other_packet_sequence_numbers_exceed_the_retries",
        "the requester takes an acknowledgement of packets that it has not sent",
    ),
    departs(
        "lost_peer::seven_retries_come_to_an_end",
        "seven retries are without end (rxe_comp.c: retry_cnt != 7)",
    ),
    departs(
        "objects::objects_are_dropped_in_any_order_while_requests_wait",
        LOCAL_KEY,
    ),
];

/// The user-space NIC's C interface, as `adverb run` loads it.
const PRELOADED: &[Known] = &[
    departs(
        "dropped_datagram::a_datagram_beyond_the_mtu_never_arrives",
        "it is refused when it is posted, with EINVAL, which does not say why",
    ),
    departs(
        "events::a_completion_before_arming_raises_nothing",
        "it raises the event, as on NICs of mlx4 and mlx5, for programs that do not poll after arming",
    ),
];

const PIECES: &str = "wr_set_sge_list counts the first piece's length for all \
                      (linux-rdma/rdma-core pull request 1744)";

/// Of the classic interface alone.
const RXE_CLASSIC: &[Known] = &[departs(
    "atomics::an_unaligned_atomic_is_an_invalid_request",
    "it is refused when it is posted (providers/rxe: EINVAL)",
)];

/// Of the extended interface alone.
const RXE_EXTENDED: &[Known] = &[
    departs("datagram::datagrams_are_gathered_and_scattered", PIECES),
    departs("data::lists_are_gathered_and_scattered_by_sends", PIECES),
    departs("data::lists_are_gathered_by_writes", PIECES),
    departs("data::lists_are_scattered_to_by_reads", PIECES),
    departs("local::an_empty_piece_needs_no_key", PIECES),
    departs(
        "inline::inline_pieces_are_gathered",
        "wr_set_inline_data_list leaves the length at 0",
    ),
];

const SLOW: &str = "retries on an emulated processor take longer than the rules' time";
const ON_ITS_WAY: &str =
    "a message that is on its way still may find the receive that is posted after it was sent";

/// Of the two devices as each other's peers.
const MIXED: &[Known] = &[
    unsteady(
        "unreliable::a_message_of_uc_without_a_receive_is_dropped",
        ON_ITS_WAY,
    ),
    unsteady(
        "dropped_datagram::a_datagram_without_a_receive_is_dropped",
        ON_ITS_WAY,
    ),
    unsteady("states::the_error_state_flushes_both_queues", ON_ITS_WAY),
    unsteady("lost_peer::a_peer_in_error_exceeds_the_retries", SLOW),
    unsteady("lost_peer::a_destroyed_peer_exceeds_the_retries", SLOW),
    unsteady(
        "lost_peer::a_peer_of_a_queue_pair_that_was_reset_exceeds_its_retries",
        SLOW,
    ),
];

/// The user-space NIC is the first end: departures of Soft-RoCE as the second end.
const AS_SECOND: [&str; 7] = [
    "access::receives_posted_after_a_refused_request_are_flushed",
    "atomics::an_unaligned_atomic_is_an_invalid_request",
    "unreliable::a_message_of_uc_longer_than_its_receive_fails_the_receiver_alone",
    "dropped_datagram::a_receive_too_small_for_its_datagram_fails_the_receiver_alone",
    "datagram::ud_is_flushed_and_begins_anew",
    "states::receives_posted_while_the_error_strikes_complete_once",
    "states::reset_forgets_completions",
];

/// Soft-RoCE is the first end.
const AS_FIRST: [&str; 12] = [
    "atomics::an_unaligned_atomic_is_an_invalid_request",
    "unreliable::uc_may_be_connected_to_a_peer_that_is_gone",
    "unreliable::a_local_error_of_uc_stops_sending_only",
    "dropped_datagram::a_queue_key_with_the_high_bit_is_the_senders_own",
    "datagram::unsignaled_datagrams_take_slots",
    "datagram::a_local_error_of_ud_stops_sending_only",
    "states::posting_in_the_error_state_is_flushed",
    "states::drained_holds_requests_back_until_ready_to_send",
    "states::drained_finishes_the_request_that_has_begun",
    "lost_peer::other_packet_sequence_numbers_exceed_the_retries",
    "lost_peer::seven_retries_come_to_an_end",
    "objects::objects_are_dropped_in_any_order_while_requests_wait",
];

/// The cases that depart with the user-space NIC at the other end.
fn departing(first: First) -> &'static [&'static str] {
    match first {
        First::Soft => &AS_SECOND,
        First::Verbs => &AS_FIRST,
    }
}

/// What is known of a driver, used so; nothing of drivers not named here.
pub(crate) fn known(driver: &str, subject: &Subject) -> Vec<Known> {
    if driver.starts_with("adverb") {
        return PRELOADED.to_vec();
    }
    if driver != "rdma_rxe" {
        return Vec::new();
    }
    let of_interface = match subject.interface {
        Interface::Classic => RXE_CLASSIC,
        Interface::Extended => RXE_EXTENDED,
    };
    let departures = RXE.iter().chain(of_interface).copied();
    match subject.peer {
        Peer::Itself => departures.collect(),
        // One end alone is Soft-RoCE's: a case that looks at the other one passes.
        Peer::Soft(first) => departures
            .filter(|known| departing(first).contains(&known.case))
            .chain(MIXED.iter().copied())
            .collect(),
    }
}
