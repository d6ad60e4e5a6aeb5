//! The figures, one file each: a program, or an experiment as users write them (`files`).

mod auto;
mod fasst;
mod files;
mod flock_16;
mod flock_rpc;
mod flock_tx;
// Its sources are frozen as they were when they first ran.
#[allow(clippy::type_complexity)]
mod flor;
mod raw_limits;
mod rb2;
mod scalerpc;
mod system;

use std::sync::LazyLock;

use crate::figure::Figure;

pub use files::{file, file_names, FigureFile};

/// All figures.
pub static ALL: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let files = files::FIGURES.iter().copied();
    let before = BEFORE_FILES.iter().copied();
    before
        .chain(files)
        .chain(BEHIND_FILES.iter().copied())
        .collect()
});

const BEFORE_FILES: &[Figure] = &[
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
];

const BEHIND_FILES: &[Figure] = &[
    flock_tx::TATP,
    flock_tx::SMALL_BANK,
    flock_16::FIGURE,
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
    flor::INCAST,
    flor::PODS,
    flor::SHARED_ACKS,
    flor::SHUFFLE,
    flor::STORAGE,
    flor::RULES,
    flor::CLOCK,
    flor::VENDORS,
    flor::MIXED,
    flor::UPGRADE,
];
