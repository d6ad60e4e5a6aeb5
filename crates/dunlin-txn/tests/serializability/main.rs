//! Each protocol in a simulated cluster, by seeds: histories are serializable, nothing hangs, no money is made; and the
//! checker finds deliberate mistakes. `DUNLIN_TXN_SEEDS` says how many seeds, `DUNLIN_TXN_SEED` with which to begin.
mod cluster;

use cluster::{Cluster, Run};
use dunlin_txn::workload::{Random, SmallBank, Workload};
use dunlin_txn::{Mistake, Mistakes, Protocol};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn one(seed: u64, protocol: Protocol, mistakes: Mistakes) -> Run {
    // Every other run has fewer headers than keys.
    let headers = if seed % 4 < 2 { 7 } else { 4096 };
    let mut load: Box<dyn Workload> = if seed % 2 == 0 {
        Box::new(Random::new(16))
    } else {
        Box::new(SmallBank::new(8))
    };
    Cluster::new(seed, protocol, mistakes, headers, &*load).run(&mut *load)
}

fn seeds(protocol: Protocol) {
    let (first, count) = (
        number("DUNLIN_TXN_SEED", 0),
        number("DUNLIN_TXN_SEEDS", 200),
    );
    let (mut committed, mut aborted, mut locks) = (0, 0, 0);
    for seed in first..first + count {
        let run = one(seed, protocol, Mistakes::NONE);
        let again = format!(
            "{}, DUNLIN_TXN_SEED={seed} DUNLIN_TXN_SEEDS=1",
            protocol.name
        );
        assert!(run.violations.is_empty(), "{again}: {}", run.violations[0]);
        assert!(
            !run.backups_differ,
            "{again}: a backup differs from its primary"
        );
        assert_eq!(
            run.unfinished, 0,
            "{again}: a transaction of a living coordinator has no end"
        );
        assert_eq!(
            run.foreign_locks, 0,
            "{again}: a living coordinator has left a lock"
        );
        if let Some((total, expected)) = run.money {
            assert_eq!(total, expected, "{again}: money was made or lost");
        }
        committed += run.history.committed.len();
        aborted += run.aborted;
        locks += run.locks_of_dead;
    }
    println!(
        "{}: {committed} committed, {aborted} aborted, {locks} locks of the dead",
        protocol.name
    );
    assert!(count < 20 || (committed > 0 && aborted > 0 && locks > 0));
}

#[test]
fn fasst_is_serializable() {
    seeds(Protocol::FASST);
}

#[test]
fn flocktx_is_serializable() {
    seeds(Protocol::FLOCKTX);
}

#[test]
fn scaletx_is_serializable() {
    seeds(Protocol::SCALETX);
}

#[test]
fn scaletx_o_is_serializable() {
    seeds(Protocol::SCALETX_O);
}

fn found(mistake: Mistake, protocol: Protocol) {
    let found = (0..1000).find(|seed| {
        !one(*seed, protocol, Mistakes::of(mistake))
            .violations
            .is_empty()
    });
    assert!(
        found.is_some(),
        "{mistake:?} in {} was not found",
        protocol.name
    );
}

macro_rules! mistakes {
    ($($name:ident: $mistake:ident in $protocol:ident;)*) => {$(
        #[test]
        fn $name() {
            found(Mistake::$mistake, Protocol::$protocol);
        }
    )*};
}

mistakes! {
    validation_left_out_is_found: ValidationLeftOut in FLOCKTX;
    lock_ignored_at_validation_is_found: LockIgnoredAtValidation in FLOCKTX;
    version_ignored_at_validation_is_found: VersionIgnoredAtValidation in FASST;
    version_not_raised_is_found: VersionNotRaised in FASST;
    lock_left_out_is_found: LockLeftOut in FASST;
    lock_taken_is_found: LockTaken in FLOCKTX;
    part_of_commit_lost_is_found: PartOfCommitLost in SCALETX_O;
    late_request_executed_is_found: LateRequestExecuted in FASST;
    write_repeated_is_found: WriteRepeated in SCALETX;
    header_before_item_is_found: HeaderBeforeItem in SCALETX;
}
