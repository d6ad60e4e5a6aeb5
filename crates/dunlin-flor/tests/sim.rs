//! Behaviours of the conformance suite on logical queue pairs between two simulated hosts, in virtual time. All but two
//! (`atomics::contention_sums_up`, `events::arrival_wakes`) that drive the cluster by several threads: one with a
//! simulated thread, as each Flor device has, is driven by one.

use std::sync::{Mutex, PoisonError};

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorConfig, FlorDevice};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, RuleGuard, SimDevice,
    SwitchParameters,
};
use dunlin_verbs::conformance::{self, Harness, Mode};

/// Two hosts in a network that loses so great a share of its packets.
struct Sim {
    deployment: Deployment,
    seed: u64,
    lost: f64,
    rules: Mutex<Vec<RuleGuard>>,
}

impl Sim {
    fn new(deployment: Deployment, seed: u64, lost: f64) -> Self {
        Self {
            deployment,
            seed,
            lost,
            rules: Mutex::default(),
        }
    }
}

impl Harness for Sim {
    type Device = FlorDevice<SimDevice>;

    fn name(&self) -> String {
        let Self {
            deployment,
            seed,
            lost,
            ..
        } = self;
        format!("{deployment:?} on sim, {lost} lost by seed {seed}")
    }

    fn open(&self) -> Result<Self::Device, String> {
        Ok(self.open_two()?.0)
    }

    fn open_two(&self) -> Result<(Self::Device, Self::Device), String> {
        let host = HostParameters::xeon_e5_v4();
        let nic = NicParameters::connectx_5();
        let cluster = Cluster::star(self.seed, 2, &host, &nic, &SwitchParameters::sx6036());
        let hosts = cluster.hosts();
        if self.lost > 0.0 {
            let rule = cluster.fault(FaultRule::new(Fault::Drop, self.lost));
            let rules = self.rules.lock();
            rules.unwrap_or_else(PoisonError::into_inner).push(rule);
        }
        let flor = |at: usize| {
            let below = cluster.device(hosts[at]);
            FlorDevice::new(below, FlorConfig::new(self.deployment))
                .map_err(|error| error.to_string())
        };
        Ok((flor(0)?, flor(1)?))
    }
}

macro_rules! behaviours {
    ($($module:ident { $($name:ident),* })*) => {
        $(mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    for deployment in [Deployment::CrossPod, Deployment::HybridReliable] {
                        let name = concat!(stringify!($module), "::", stringify!($name));
                        let behaviour = conformance::$module::$name;
                        let sim = Sim::new(deployment, 1, 0.0);
                        conformance::run(&sim, Mode::InProcess, "", name, behaviour);
                    }
                }
            )*
        })*
    };
}

/// What is cut into pieces and repeated piece by piece is put together again, and its answers, which are messages of
/// their own, come in any order.
macro_rules! behaviours_with_loss {
    ($($module:ident { $($name:ident),* })*) => {
        mod lossy {
            use super::*;
            $($(
                #[test]
                fn $name() {
                    for seed in 1..=8 {
                        let name = concat!(stringify!($module), "::", stringify!($name));
                        let sim = Sim::new(Deployment::CrossPod, seed, 0.1);
                        let behaviour = conformance::$module::$name;
                        conformance::run(&sim, Mode::InProcess, "", name, behaviour);
                    }
                }
            )*)*
        }
    };
}

behaviours_with_loss! {
    send { large_message }
    one_sided { large_messages, many_reads_at_once, many_long_reads_at_once }
    ordering { sends_arrive_in_order, read_after_write, placement_in_order }
    atomics { fetch_and_add }
}

behaviours! {
    send { message_arrives, immediate_arrives, gather_and_scatter, zero_length, large_message, list_with_one_doorbell, both_directions, connections_are_separate }
    one_sided { write_lands, write_with_immediate, read_fetches, gather_and_scatter, zero_length, large_messages, list_with_one_doorbell, single_grants_suffice, many_reads_at_once, many_long_reads_at_once }
    lengths { sends, sends_of_the_peer, writes, reads }
    ordering { sends_arrive_in_order, write_then_send, mixed_immediates_in_order, write_then_write, placement_in_order, read_after_write, fence_waits_for_read }
    atomics { fetch_and_add, compare_and_swap, misaligned_is_refused }
    inline { copied_when_posted, kept_while_waiting, refusals }
    protection { unknown_key, out_of_bounds, last_bytes_are_inside, missing_region_access, missing_queue_pair_access, foreign_protection_domain, revoked_region }
    local_protection { segment_outside_region, read_into_constant_region, local_region_of_another_domain, region_dropped_while_posted, receive_into_wrong_memory, receive_region_dropped_while_posted }
    errors { failure_flushes_all, posts_in_error_are_flushed, to_error_flushes, unsignaled_failures_complete, failure_in_the_middle, failures_do_not_spread, dropped_peer_is_noticed, peer_in_error_is_noticed, killed_peer_is_noticed }
    receive { waits_for_a_receive, immediate_waits_for_a_receive, gives_up_without_a_receive, message_too_long, message_fits_exactly, receives_posted_in_init, uc_drops_without_a_receive, uc_write_is_refused_in_silence, full_receive_queue }
    shared_receive { drained_in_order_of_arrival, empty_queue_makes_wait, outlives_one_of_its_queue_pairs, refusals }
    state { transitions, connecting_needs_an_address, posts_in_early_states, drained_queue_holds_back, reset_forgets, reconnects_after_error, resets_right_after_connecting }
    completion { selective_signaling, slots_come_back_by_polling, list_is_taken_in_part, overrun, full_queue_is_no_overrun, queues_are_freely_assigned, timestamps }
    events { no_wake_up_is_lost, own_completion_wakes, solicited_only, wake_by_hand, channel_serves_several_queues, arming_needs_a_channel }
    limits { registered_bytes, impossible_region, fresh_memory_is_zeroed, regions_are_given_back, queue_pairs_are_given_back, queue_sizes, segments_of_a_request, refusal_in_the_middle, verbs_of_a_transport, room_for_an_atomic, message_length }
}
