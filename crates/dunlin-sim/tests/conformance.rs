//! The conformance suite on the simulated cluster: loopback on one host, and between two hosts on a switch.

use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::conformance::Harness;

fn devices(nic: &NicParameters) -> (SimDevice, SimDevice) {
    let host = HostParameters::xeon_e5_v4();
    let cluster = Cluster::star(1, 2, &host, nic, &SwitchParameters::sx6036());
    let hosts = cluster.hosts();
    (cluster.device(hosts[0]), cluster.device(hosts[1]))
}

/// NICs that place in order, with one engine.
mod connectx_3 {
    use super::*;

    struct Sim;

    impl Harness for Sim {
        type Device = SimDevice;

        fn name(&self) -> String {
            "sim, ConnectX-3".into()
        }

        fn open(&self) -> Result<SimDevice, String> {
            Ok(devices(&NicParameters::connectx_3()).0)
        }

        fn open_two(&self) -> Result<(SimDevice, SimDevice), String> {
            Ok(devices(&NicParameters::connectx_3()))
        }

        fn between_processes(&self) -> Result<(), String> {
            Err("a simulated cluster lives in one process".into())
        }
    }

    dunlin_verbs::conformance_suite!(Sim);
}

/// NICs that place out of order, with two engines.
mod connectx_5 {
    use super::*;

    struct Sim;

    impl Harness for Sim {
        type Device = SimDevice;

        fn name(&self) -> String {
            "sim, ConnectX-5".into()
        }

        fn open(&self) -> Result<SimDevice, String> {
            Ok(devices(&NicParameters::connectx_5()).0)
        }

        fn open_two(&self) -> Result<(SimDevice, SimDevice), String> {
            Ok(devices(&NicParameters::connectx_5()))
        }

        fn between_processes(&self) -> Result<(), String> {
            Err("a simulated cluster lives in one process".into())
        }
    }

    dunlin_verbs::conformance_suite!(Sim);
}
