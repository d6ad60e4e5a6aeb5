//! The conformance suite on the shared-memory device.

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::conformance::Harness;

struct Shm;

impl Harness for Shm {
    type Device = ShmDevice;

    fn name(&self) -> String {
        "shm".into()
    }

    fn open(&self) -> Result<ShmDevice, String> {
        let mut config = ShmConfig::default();
        (config.max_regions, config.max_queue_pairs) = (256, 256);
        ShmDevice::open(config).map_err(|error| error.to_string())
    }
}

dunlin_verbs::conformance_suite!(Shm);
