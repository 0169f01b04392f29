//! The conformance suite: what verbs mean, written once over the seam, run on every device.
//!
//! A case is a function over a [`Fixture`]: the [`Station`] of its role and the device. It opens
//! two contexts, connects queue pairs between them ([`pair`]) and panics where the device breaks
//! the rule that its documentation names. What a device cannot do is a verdict of its own,
//! [`NotSupported`], which the runner lists: a case is never passed silently.
//!
//! Rules are cited by section of the InfiniBand specification (IBTA volume 1) or by man page of
//! `libibverbs`. Most cases hold both ends of their connections in one role; where two parties act
//! at the same time, helpers are further roles. All waits use the station, so that the suite
//! runs in virtual time, too, and all are bounded ([`pair::TIMEOUT`]).
//!
//! [`for_each_case`] holds the list of all cases. A device's crate makes tests of it by
//! [`conformance_tests`], which run the roles as [`threads`]; [`cases`] is the same list for
//! programs.

pub mod access;
pub mod atomics;
pub mod data;
pub mod datagram;
pub mod dropped_datagram;
mod end;
pub mod events;
mod fixture;
pub mod inline;
pub mod known;
pub mod limits;
pub mod local;
pub mod lost_peer;
pub mod multicast;
mod node;
pub mod objects;
pub mod order;
pub mod pair;
pub mod refused_modify;
pub mod rnr;
pub mod shared_datagram;
pub mod shared_receive;
pub mod sharing;
pub mod signaling;
mod srq_ends;
pub mod states;
pub mod threads;
pub mod unreliable;

use adverb_verbs::Station;

pub use fixture::{Board, Fixture, Open};

/// The device lacks what a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSupported(pub &'static str);

/// What a case returns; it panics where the rule is broken.
pub type Verdict = Result<(), NotSupported>;

/// One case.
pub struct Case<S: Station> {
    /// `module::function`.
    pub name: &'static str,
    /// Runs one of its roles.
    pub run: fn(Fixture<'_, S>) -> Verdict,
}

/// Returns how many helpers the case of that name needs next to its main role.
pub fn helpers(name: &str) -> u32 {
    match name {
        "order::a_write_that_is_visible_implies_the_earlier_ones"
        | "order::a_receive_completion_implies_the_earlier_writes"
        | "order::a_completed_read_has_been_placed"
        | "rnr::a_send_waits_for_its_receive_while_the_sender_sleeps"
        | "events::a_sleeper_is_woken"
        | "events::no_event_is_lost_between_arming_and_polling"
        | "states::receives_posted_while_the_error_strikes_complete_once" => 1,
        "atomics::additions_of_many_requesters_all_count"
        | "datagram::many_senders_share_a_queue_pair"
        | "shared_receive::senders_at_a_time_take_each_receive_once"
        | "shared_datagram::datagram_senders_at_a_time_take_each_receive_once" => 4,
        "sharing::threads_share_a_queue_pair" => 5,
        _ => 0,
    }
}

/// Hands the list of all cases, as `module: [case, …];` groups, to the macro named in brackets,
/// after further tokens.
#[macro_export]
macro_rules! for_each_case {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)*! { $($args)*
            data: [
                send_moves_the_bytes,
                send_with_imm_moves_the_bytes_and_the_value,
                write_moves_the_bytes,
                write_with_imm_moves_the_bytes_and_completes_a_receive,
                read_moves_the_bytes,
                lists_are_gathered_and_scattered_by_sends,
                lists_are_gathered_by_writes,
                lists_are_scattered_to_by_reads,
                a_receive_longer_than_the_message_keeps_its_rest,
                two_queue_pairs_of_one_context_reach_each_other,
                both_directions_work_at_once,
            ];
            order: [
                completions_come_in_post_order,
                a_write_that_is_visible_implies_the_earlier_ones,
                a_receive_completion_implies_the_earlier_writes,
                a_read_sees_the_earlier_write,
                a_completed_read_has_been_placed,
            ];
            signaling: [
                an_unsignaled_success_gives_no_completion,
                unsignaled_requests_take_slots,
                slots_come_back_when_a_later_completion_is_polled,
                an_unsignaled_error_completes,
                a_full_receive_queue_refuses,
                a_list_is_posted_up_to_the_request_that_does_not_fit,
                a_list_is_posted_up_to_the_request_that_is_wrong,
                a_receive_list_is_posted_up_to_the_request_that_is_wrong,
            ];
            rnr: [
                a_send_waits_for_its_receive_while_polled,
                a_send_waits_for_its_receive_while_the_sender_sleeps,
                a_send_waits_for_its_receive_while_nobody_polls,
                a_write_with_imm_waits_for_its_receive,
                requests_behind_a_waiting_one_wait,
                waiting_requests_are_served_one_receive_each,
                rnr_retries_without_end_outlast_the_timer,
                rnr_retries_exceeded_end_in_an_error,
                no_rnr_retries_fail_at_once,
            ];
            access: [
                a_wrong_rkey_is_refused,
                the_key_of_a_deregistered_region_is_refused,
                a_range_before_the_region_is_refused,
                a_range_beyond_the_region_is_refused,
                a_range_that_wraps_around_is_refused,
                access_missing_on_the_region_is_refused,
                access_missing_on_the_queue_pair_is_refused,
                access_taken_from_the_queue_pair_is_refused,
                access_given_to_the_queue_pair_later_is_granted,
                a_region_of_another_protection_domain_is_refused,
                a_write_without_payload_needs_no_key,
                receives_posted_after_a_refused_request_are_flushed,
                requests_behind_a_refused_one_that_waited_are_flushed,
            ];
            atomics: [
                fetch_add_adds_and_gives_back_what_was_there,
                compare_swap_replaces_what_is_as_expected,
                an_atomic_touches_eight_bytes_on_each_side,
                an_atomic_sees_the_earlier_write,
                an_atomic_waits_behind_a_waiting_send,
                an_unaligned_atomic_is_an_invalid_request,
                an_atomic_outside_a_region_is_refused,
                atomics_need_the_right_on_the_region,
                atomics_need_the_right_on_the_queue_pair,
                the_result_needs_local_write_access,
                a_result_needs_eight_bytes,
                additions_of_many_requesters_all_count,
            ];
            unreliable: [
                every_operation_of_uc_arrives,
                messages_of_uc_arrive_in_order,
                a_message_of_uc_without_a_receive_is_dropped,
                uc_refuses_what_needs_an_answer,
                a_refused_write_of_uc_vanishes,
                a_write_of_uc_without_the_right_vanishes,
                a_message_of_uc_longer_than_its_receive_fails_the_receiver_alone,
                uc_does_not_miss_a_peer_that_is_gone,
                uc_may_be_connected_to_a_peer_that_is_gone,
                a_side_of_uc_may_begin_anew_alone,
                a_local_error_of_uc_stops_sending_only,
                uc_refuses_the_attributes_of_rc,
            ];
            datagram: [
                datagrams_arrive_behind_forty_bytes_and_tell_their_source,
                the_header_before_a_datagram_names_both_ports,
                datagrams_are_gathered_and_scattered,
                a_port_opened_again_gets_the_first_datagram,
                ud_refuses_all_but_sends,
                a_destination_belongs_to_datagrams_alone,
                a_queue_pair_reaches_itself,
                one_queue_pair_reaches_many,
                an_inline_datagrams_buffer_is_free_at_once,
                unsignaled_datagrams_take_slots,
                a_datagram_raises_an_event,
                a_local_error_of_ud_stops_sending_only,
                ud_is_flushed_and_begins_anew,
                many_senders_share_a_queue_pair,
            ];
            dropped_datagram: [
                a_datagram_without_a_receive_is_dropped,
                a_datagram_with_another_queue_key_is_dropped,
                a_queue_key_with_the_high_bit_is_the_senders_own,
                a_datagram_to_no_queue_pair_is_dropped,
                a_datagram_to_a_port_that_is_gone_is_dropped,
                a_datagram_beyond_the_mtu_never_arrives,
                a_receive_too_small_for_its_datagram_fails_the_receiver_alone,
            ];
            multicast: [
                every_member_of_a_group_gets_a_copy,
                members_that_left_a_group_receive_nothing,
                a_copy_under_another_queue_key_is_dropped,
                invalid_groups_and_queue_pairs_are_refused,
            ];
            local: [
                a_wrong_lkey_is_a_local_protection_error,
                the_lkey_of_a_deregistered_region_is_a_local_protection_error,
                a_piece_outside_its_region_is_a_local_protection_error,
                a_region_of_another_domain_is_a_local_protection_error,
                a_read_needs_local_write_access,
                a_receive_with_a_wrong_lkey_fails_both_sides,
                a_receive_without_local_write_access_fails_both_sides,
                a_message_longer_than_its_receive_fails_both_sides,
                an_empty_piece_needs_no_key,
            ];
            inline: [
                an_inline_buffer_is_free_when_the_post_returns,
                an_inline_buffer_is_free_while_the_request_waits,
                inline_pieces_are_gathered,
                inline_needs_no_key,
                an_inline_read_is_refused,
                inline_beyond_the_maximum_is_refused,
                inline_receives_are_made_or_refused_by_name,
            ];
            events: [
                an_armed_queue_raises_one_event_that_names_it,
                a_completion_before_arming_raises_nothing,
                an_unarmed_queue_raises_nothing,
                send_completions_raise_events,
                a_solicited_arming_waits_for_a_solicited_completion,
                an_error_raises_a_solicited_event,
                a_flushed_receive_raises_a_solicited_event,
                queue_pairs_of_one_queue_share_its_event,
                a_channel_serves_several_queues,
                a_wait_without_event_ends,
                a_sleeper_is_woken,
                no_event_is_lost_between_arming_and_polling,
            ];
            sharing: [
                sends_and_receives_share_a_completion_queue,
                many_queue_pairs_complete_into_one_queue,
                threads_share_a_queue_pair,
                an_overrun_is_reported,
            ];
            states: [
                posting_in_the_wrong_state_is_refused_by_name,
                receives_posted_in_init_count,
                the_error_state_flushes_both_queues,
                posting_in_the_error_state_is_flushed,
                arrivals_before_the_error_stay_successes,
                receives_posted_while_the_error_strikes_complete_once,
                a_failed_pair_works_again_after_reset_on_both_sides,
                reset_forgets_completions,
                drained_holds_requests_back_until_ready_to_send,
                drained_finishes_the_request_that_has_begun,
                drained_takes_new_retries,
                an_illegal_transition_is_refused_by_name,
            ];
            refused_modify: [
                a_refused_rtr_changes_nothing,
                a_refused_address_changes_nothing,
                a_refused_marking_changes_nothing,
                a_refused_rts_changes_nothing,
                a_refused_change_in_rts_changes_nothing,
            ];
            lost_peer: [
                a_peer_of_a_queue_pair_that_was_reset_exceeds_its_retries,
                other_packet_sequence_numbers_exceed_the_retries,
                seven_retries_come_to_an_end,
                a_destroyed_peer_exceeds_the_retries,
                a_destroyed_peer_ends_a_wait_for_a_receive,
                a_peer_in_error_exceeds_the_retries,
                sides_may_reconnect_one_after_the_other,
            ];
            objects: [
                objects_are_dropped_in_any_order_while_requests_wait,
                a_context_is_dropped_before_its_objects,
                a_device_opened_again_is_reached,
            ];
            shared_receive: [
                several_queue_pairs_take_in_posting_order,
                receives_complete_where_their_queue_pair_does,
                a_message_waits_for_a_shared_receive,
                an_empty_shared_queue_exceeds_rnr_retries,
                the_limit_raises_one_event,
                a_limit_beyond_the_queue_is_refused,
                a_queue_pair_with_a_shared_queue_refuses_receives,
                a_failing_queue_pair_leaves_the_receives,
                the_last_receive_of_a_failing_queue_pair_is_told,
                a_queue_pair_that_was_reset_takes_again,
                a_message_too_long_for_its_shared_receive_fails_alone,
                a_shared_receive_in_another_domain_is_a_fault,
                shared_queue_sizes_are_checked,
                a_shared_list_is_posted_up_to_the_wrong_request,
                a_shared_queue_lives_as_long_as_its_queue_pairs,
                taken_receives_have_room_again_however_they_end,
                a_shared_queue_of_another_context_is_refused,
                uc_takes_shared_receives,
                senders_at_a_time_take_each_receive_once,
            ];
            shared_datagram: [
                datagrams_take_shared_receives_in_posting_order,
                all_services_take_from_one_queue,
                a_datagram_without_a_shared_receive_is_dropped,
                a_datagram_takes_no_receive_that_was_posted_after_it,
                the_limit_counts_what_datagrams_take,
                a_shared_receive_too_small_for_its_datagram_fails_its_queue_pair_alone,
                a_failing_datagram_queue_pair_leaves_the_receives,
                datagram_senders_at_a_time_take_each_receive_once,
            ];
            limits: [
                completion_queue_sizes_are_checked,
                queue_pair_sizes_are_checked,
                region_sizes_are_checked,
                inconsistent_access_is_refused,
                a_queue_pair_has_at_least_what_was_asked,
                more_pieces_than_asked_are_refused,
                empty_queues_take_nothing,
                objects_of_another_context_are_refused,
                another_port_is_refused,
                a_region_is_zeroed_and_bounded,
            ];
        }
    };
}

/// The list of all cases, for programs.
pub fn cases<S: Station>() -> Vec<Case<S>> {
    macro_rules! list {
        ($($module:ident: [$($case:ident,)*];)*) => {
            vec![$($(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                run: $crate::$module::$case::<S>,
            },)*)*]
        };
    }
    for_each_case!([list])
}

/// Makes a `#[test]` of every case, which the function `$run` runs by its name, in modules named as
/// here.
#[macro_export]
macro_rules! conformance_tests {
    ($run:path) => {
        $crate::for_each_case!([$crate::__tests] $run;);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    ($run:path; $($module:ident: $cases:tt;)*) => {
        $($crate::__module!($run; $module $cases);)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __module {
    ($run:path; $module:ident [$($case:ident,)*]) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    $run(concat!(stringify!($module), "::", stringify!($case)));
                }
            )*
        }
    };
}

/// The names of all cases.
pub fn names() -> Vec<&'static str> {
    macro_rules! list {
        ($($module:ident: [$($case:ident,)*];)*) => {
            vec![$($(concat!(stringify!($module), "::", stringify!($case)),)*)*]
        };
    }
    for_each_case!([list])
}

/// The case of that name.
///
/// # Panics
/// If there is none.
pub fn case<S: Station>(name: &str) -> Case<S> {
    let found = cases().into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("unknown case {name}"))
}

/// Compares a verdict with what the device is known to lack.
///
/// # Panics
/// If they differ.
pub fn judge(name: &str, lacking: &[&str], verdict: Verdict) {
    match (verdict, lacking.contains(&name)) {
        (Ok(()), false) => {}
        #[allow(
            clippy::print_stderr,
            reason = "what is not supported is listed, even on success"
        )]
        (Err(NotSupported(what)), true) => eprintln!("not supported: {name} ({what})"),
        (Ok(()), true) => panic!("{name} is listed as lacking, but the device supports it"),
        (Err(NotSupported(what)), false) => panic!("not supported: {name} ({what})"),
    }
}
