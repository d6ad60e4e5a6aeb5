//! The conformance suite on the first RDMA device that libibverbs offers; skipped, saying why, where there is none.
//!
//! `tests/vm/conformance` runs it on soft-RoCE in a virtual machine. Settings as for the command line, by environment
//! (`DUNLIN_IBV_DEVICE` and so on).

use dunlin_ibv::{IbvConfig, IbvDevice};
use dunlin_verbs::conformance::Harness;

struct Ibv;

impl Harness for Ibv {
    type Device = IbvDevice;

    fn name(&self) -> String {
        "ibv".into()
    }

    fn open(&self) -> Result<IbvDevice, String> {
        let config = IbvConfig::from_environment().map_err(|error| error.to_string())?;
        IbvDevice::open(config).map_err(|error| error.to_string())
    }
}

dunlin_verbs::conformance_suite!(Ibv);
