//! The list of all behaviours.

/// Generates the tests of one mode; part of [`crate::conformance_suite`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_behaviours {
    ($harness:expr, $mode:ident) => {
        $crate::conformance_behaviours! { @ $harness, $mode,
            send {
                message_arrives,
                immediate_arrives,
                gather_and_scatter,
                zero_length,
                large_message,
                list_with_one_doorbell,
                both_directions,
                connections_are_separate,
            }
            one_sided {
                write_lands,
                write_with_immediate,
                read_fetches,
                gather_and_scatter,
                zero_length,
                large_messages,
                list_with_one_doorbell,
                single_grants_suffice,
                many_reads_at_once,
                many_long_reads_at_once,
            }
            lengths {
                sends,
                sends_of_the_peer,
                writes,
                reads,
            }
            ordering {
                sends_arrive_in_order,
                write_then_send,
                mixed_immediates_in_order,
                write_then_write,
                placement_in_order,
                read_after_write,
                fence_waits_for_read,
            }
            mapped {
                stores_land,
                loads_see_what_stands_there,
                only_what_is_granted,
                closed_with_its_region,
                closed_with_its_queue_pair,
                closed_with_its_peer,
            }
            atomics {
                fetch_and_add,
                compare_and_swap,
                contention_sums_up,
                misaligned_is_refused,
            }
            inline {
                copied_when_posted,
                kept_while_waiting,
                refusals,
            }
            protection {
                unknown_key,
                out_of_bounds,
                last_bytes_are_inside,
                missing_region_access,
                missing_queue_pair_access,
                foreign_protection_domain,
                revoked_region,
            }
            local_protection {
                segment_outside_region,
                read_into_constant_region,
                local_region_of_another_domain,
                region_dropped_while_posted,
                receive_into_wrong_memory,
                receive_region_dropped_while_posted,
            }
            errors {
                failure_flushes_all,
                posts_in_error_are_flushed,
                to_error_flushes,
                unsignaled_failures_complete,
                failure_in_the_middle,
                failures_do_not_spread,
                dropped_peer_is_noticed,
                peer_in_error_is_noticed,
                killed_peer_is_noticed,
            }
            receive {
                waits_for_a_receive,
                immediate_waits_for_a_receive,
                gives_up_without_a_receive,
                message_too_long,
                message_fits_exactly,
                receives_posted_in_init,
                uc_drops_without_a_receive,
                uc_write_is_refused_in_silence,
                full_receive_queue,
            }
            shared_receive {
                drained_in_order_of_arrival,
                empty_queue_makes_wait,
                outlives_one_of_its_queue_pairs,
                refusals,
            }
            state {
                transitions,
                connecting_needs_an_address,
                posts_in_early_states,
                drained_queue_holds_back,
                reset_forgets,
                reconnects_after_error,
                resets_right_after_connecting,
            }
            datagram {
                arrives_behind_header,
                scattered_header,
                mtu_is_the_limit,
                undeliverable_vanishes,
                many_senders,
                destination_must_fit,
                inline_datagram,
                stream_of_datagrams,
            }
            completion {
                selective_signaling,
                slots_come_back_by_polling,
                list_is_taken_in_part,
                overrun,
                full_queue_is_no_overrun,
                queues_are_freely_assigned,
                queue_pair_after_queue_pair,
                timestamps,
            }
            events {
                arrival_wakes,
                no_wake_up_is_lost,
                own_completion_wakes,
                solicited_only,
                wake_by_hand,
                channel_serves_several_queues,
                arming_needs_a_channel,
            }
            limits {
                registered_bytes,
                impossible_region,
                fresh_memory_is_zeroed,
                regions_are_given_back,
                queue_pairs_are_given_back,
                queue_sizes,
                segments_of_a_request,
                refusal_in_the_middle,
                verbs_of_a_transport,
                room_for_an_atomic,
                message_length,
            }
        }
    };
    (@ $harness:expr, $mode:ident, $($module:ident { $($name:ident,)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[test]
                    fn $name() {
                        $crate::conformance::run(
                            &$harness,
                            $crate::conformance::Mode::$mode,
                            conformance_peer_module(),
                            concat!(stringify!($module), "::", stringify!($name)),
                            $crate::conformance::$module::$name,
                        );
                    }
                )*
            }
        )*
    };
}
