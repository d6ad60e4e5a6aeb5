//! The conformance suite of verbs on logical queue pairs: over UC and over RC, on `shm` and on `roce` over loopback.

use std::net::Ipv4Addr;

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorConfig, FlorDevice};
use dunlin_roce::{RoceConfig, RoceDevice};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::conformance::Harness;

/// Flor with its own chunks, repetitions and congestion control over UC.
const UC: Deployment = Deployment::CrossPod;
/// Flor over RC, which repeats for itself.
const RC: Deployment = Deployment::HybridReliable;

struct Shm(Deployment);

impl Harness for Shm {
    type Device = FlorDevice<ShmDevice>;

    fn name(&self) -> String {
        format!("{:?} on shm", self.0)
    }

    fn open(&self) -> Result<Self::Device, String> {
        let mut config = ShmConfig::default();
        (config.max_regions, config.max_queue_pairs) = (512, 192);
        let below = ShmDevice::open(config).map_err(|error| error.to_string())?;
        FlorDevice::new(below, FlorConfig::new(self.0)).map_err(|error| error.to_string())
    }
}

struct Roce(Deployment);

impl Harness for Roce {
    type Device = FlorDevice<RoceDevice>;

    fn name(&self) -> String {
        format!("{:?} on roce", self.0)
    }

    fn open(&self) -> Result<Self::Device, String> {
        let mut config = RoceConfig::from_environment().map_err(|error| error.to_string())?;
        let loopback = Ipv4Addr::LOCALHOST.into();
        config.local_address.get_or_insert(loopback);
        (config.max_regions, config.max_queue_pairs) = (512, 192);
        let below = RoceDevice::open(config).map_err(|error| error.to_string())?;
        FlorDevice::new(below, FlorConfig::new(self.0)).map_err(|error| error.to_string())
    }
}

mod shm_uc {
    use super::*;
    dunlin_verbs::conformance_suite!(Shm(UC));
}

mod shm_rc {
    use super::*;
    dunlin_verbs::conformance_suite!(Shm(RC));
}

mod shm_lossless {
    use super::*;
    dunlin_verbs::conformance_suite!(Shm(Deployment::IntraPodLossless));
}

mod roce_uc {
    use super::*;
    dunlin_verbs::conformance_suite!(Roce(UC));
}

mod roce_rc {
    use super::*;
    dunlin_verbs::conformance_suite!(Roce(RC));
}
