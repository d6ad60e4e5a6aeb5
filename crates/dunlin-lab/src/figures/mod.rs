//! The figures, one file each: a program, or an experiment in the users' format (`files`).

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::id_of;
    use crate::figure::{Effort, Findings};

    fn quick(name: &str) -> Findings {
        let figure = ALL.iter().find(|figure| figure.name == name);
        (figure.expect("a figure").run)(Effort::new(true, 2))
    }

    #[test]
    fn a_quick_run_judges_nothing_that_it_does_not_measure() {
        for (name, not_measured) in [
            ("rb2-latency", &["RB-003", "RB-016", "RB-018"][..]),
            ("rb2-throughput", &["RB-002", "RB-010", "RB-012", "RB-014"]),
            ("rb2-pointers", &["RB-008"]),
            (
                "rb2-breakdown",
                &["RB-024", "RB-026", "RB-027", "RB-028", "RB-029"],
            ),
            ("rb2-http", &["RB-037", "RB-038"]),
            ("fasst-reads-cx3", &["FS-009"]),
            ("fasst-reads-cib", &["FS-010"]),
        ] {
            let answers = quick(name).answers;
            assert!(!answers.is_empty(), "{name}");
            for answer in answers {
                assert!(
                    !not_measured.contains(&id_of(&answer.id)),
                    "{name}: {}",
                    answer.id
                );
            }
        }
    }

    #[test]
    fn no_rate_of_a_quick_run_exceeds_the_link() {
        for name in ["rb2-throughput", "rb2-pointers"] {
            for series in quick(name).series {
                for (bytes, gbit_s) in series.points {
                    assert!(
                        gbit_s <= 100.0,
                        "{name}: {}, {bytes} B: {gbit_s}",
                        series.name
                    );
                }
            }
        }
    }
}
