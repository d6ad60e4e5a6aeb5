//! Flor's messages between simulated hosts: requests of one size and short answers, over unchanged logical connections
//! (`dunlin-flor`), driven by simulated threads that poll; between two hosts or any pairs of hosts.

mod ends;
mod plan;
mod run;
mod switching;

pub use plan::Flor;
pub use run::{mesh, FlorBench, FlorResult};
pub use switching::time_to_switch;

/// Time for all threads to end.
const END_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::super::Window;
    use super::*;
    use dunlin_flor::connection::Deployment;
    use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

    /// With another NIC than the figures.
    fn cluster(hosts: usize) -> Cluster {
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
        Cluster::star(1, hosts, &host, &nic, &SwitchParameters::sx1012())
    }

    const WINDOW: Window = Window {
        warm_ns: 200_000,
        measured_ns: 2_000_000,
    };

    #[test]
    fn requests_are_answered_by_every_deployment_also_when_packets_get_lost() {
        for deployment in [Deployment::IntraPodLossless, Deployment::CrossPod] {
            for (bytes, lost) in [(500, 0.0), (100_000, 0.001)] {
                let plan = Flor {
                    threads: 2,
                    connections: 2,
                    depth: 3,
                    lost,
                    ..Flor::new(deployment, bytes)
                };
                let found = plan.run(&cluster(2), WINDOW);
                assert_eq!(found.failed, 0, "{plan:?}");
                assert!(found.mops > 0.0 && found.chunks > 0.0, "{found:?}");
            }
        }
    }

    #[test]
    fn every_host_of_a_mesh_has_its_requests_answered() {
        for (bytes, one_landing) in [(2_000, false), (100_000, true)] {
            let plan = Flor {
                one_landing,
                starting_ns: 100_000,
                ..Flor::new(Deployment::IntraPodUnreliable, bytes)
            };
            let cluster = cluster(3);
            let bench = plan.start(&cluster, &mesh(&cluster.hosts()));
            assert_eq!(bench.connections(), 6);
            let found = bench.measure(WINDOW);
            let (answered, in_pairs) = (bench.answered(), bench.answered_in_pairs());
            bench.stop();
            assert_eq!(found.failed, 0, "{plan:?}");
            assert!(in_pairs.iter().all(|&calls| calls > 5), "{in_pairs:?}");
            let of_first: u64 = in_pairs[..2].iter().sum();
            assert_eq!(answered[0], of_first, "{answered:?} {in_pairs:?}");
        }
    }

    #[test]
    fn acknowledgements_can_share_the_queue_pair() {
        let plan = Flor {
            answer_bytes: 100_000,
            shares_acks: true,
            ..Flor::new(Deployment::IntraPodUnreliable, 100_000)
        };
        let found = plan.run(&cluster(2), WINDOW);
        assert_eq!(found.failed, 0, "{found:?}");
        assert!(found.mops > 0.0 && found.rtt_us > 0.0, "{found:?}");
    }

    #[test]
    fn a_backup_takes_over() {
        let plan = Flor::new(Deployment::HybridReliable, 10_000);
        assert!(time_to_switch(&plan, &cluster(2)) > 0.0);
    }
}
