//! Flor's cluster A (Table 2): ConnectX-4 Lx at 50 Gb/s.
//!
//! Declared before the first run, since the paper names no switch: shared buffers have 32 MB, which is what HPCC's
//! authors take "from real device configurations" of the same network (Alibaba; SIGCOMM '19 §5.1, recalled), and a
//! queue that is not paused may take eight times what is free (`dynamic_th` 3 of SONiC's profile
//! `egress_lossy_profile`). Everything else is the Z9264F of the parameter file, with marks at 100 to 400 KB for each
//! 25 Gb/s, as the file says.

use dunlin_flor::connection::Deployment;
use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

use super::{flor, MTU_BYTES};
use crate::figure::Effort;
use crate::load::Flor;

/// Rate of a host's port.
pub(super) const LINE_GBIT_S: f64 = 50.0;
/// Bytes of an answer (§7.2, §7.4).
const ANSWER_BYTES: u32 = 128;
const BUFFER_BYTES: f64 = 32e6;
const LOSSY_ALPHA: f64 = 8.0;

/// A switch with ports at 50 Gb/s, lossless or not.
pub(super) fn switch(lossless: bool, effort: Effort) -> SwitchParameters {
    let mut switch = SwitchParameters::z9264f();
    switch.buffer_bytes = BUFFER_BYTES;
    switch.ecn_min_bytes *= LINE_GBIT_S / 100.0;
    switch.ecn_max_bytes *= LINE_GBIT_S / 100.0;
    if !lossless {
        drops(&mut switch);
    }
    effort.switch(switch)
}

/// Makes a switch drop what has no room instead of pausing.
pub(super) fn drops(switch: &mut SwitchParameters) {
    switch.lossless = 0.0;
    switch.buffer_alpha = LOSSY_ALPHA;
}

/// A NIC with or without DCQCN; in a quick run, which is not an experiment of the paper, a ConnectX-5 at the same rate.
pub(super) fn nic(dcqcn: bool, effort: Effort) -> NicParameters {
    let nic = match effort.quick {
        true => NicParameters::connectx_5(),
        false => NicParameters::connectx_4_lx(),
    };
    let mut nic = effort.nic(nic);
    nic.link_gbit_s = LINE_GBIT_S;
    nic.mtu_bytes = MTU_BYTES;
    if !dcqcn {
        nic.congestion_control = 0.0;
    }
    nic
}

/// Parameters of all hosts.
pub(super) fn host(effort: Effort) -> HostParameters {
    effort.host(HostParameters::xeon_gold_5118())
}

/// The load of its hosts.
pub(super) fn plan(deployment: Deployment, bytes: u32) -> Flor {
    Flor {
        answer_bytes: ANSWER_BYTES,
        line_gbit_s: LINE_GBIT_S as u64,
        ..flor(deployment, bytes)
    }
}
