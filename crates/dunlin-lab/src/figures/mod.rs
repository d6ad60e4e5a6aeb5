//! The figures, one file each.

mod auto;
mod fasst;
mod flock_10;
mod flock_11;
mod flock_12;
mod flock_16;
mod flock_2a;
mod flock_2b;
mod flock_6;
mod flock_9;
mod flock_rpc;
mod flock_tx;
// Its sources are frozen as they were when they first ran.
#[allow(clippy::type_complexity)]
mod flor;
mod raw_limits;
mod rb2;
mod scalerpc;

use crate::figure::Figure;

/// All figures.
pub const ALL: &[Figure] = &[
    fasst::CONNECTX_3,
    fasst::CONNECT_IB,
    fasst::CORES,
    fasst::BUILD_UP,
    fasst::SMALL,
    fasst::MEDIUM,
    fasst::SINGLE_KEY,
    fasst::LATENCY,
    fasst::LIMITS,
    fasst::LOSS,
    fasst::TRANSACTIONS,
    raw_limits::FIGURE,
    flock_2a::FIGURE,
    flock_2b::FIGURE,
    flock_6::FIGURE,
    flock_9::FIGURE,
    flock_10::FIGURE,
    flock_11::FIGURE,
    flock_12::FIGURE,
    flock_tx::TATP,
    flock_tx::SMALL_BANK,
    flock_16::FIGURE,
    scalerpc::WRITES,
    scalerpc::BLOCKS,
    scalerpc::CLIENTS,
    scalerpc::MACHINES,
    scalerpc::LATENCY,
    scalerpc::SLICES,
    scalerpc::TRANSACTIONS,
    scalerpc::METADATA,
    scalerpc::PRIORITY,
    rb2::POINTERS,
    rb2::THROUGHPUT,
    rb2::LATENCY,
    rb2::THREADS,
    rb2::SWITCHED_OFF,
    rb2::NETWORK_FUNCTION,
    rb2::DATABASE,
    rb2::HTTP,
    flor::CALIBRATION,
    flor::THREAD,
    flor::XRDMA,
    flor::LOSS,
    flor::ACKS,
    flor::SWITCHING,
];
