//! Each protocol in a simulated cluster, by seeds: histories are serializable, nothing hangs, no money is made; and the
//! checker finds deliberate mistakes. `DUNLIN_TXN_SEEDS` says how many seeds, `DUNLIN_TXN_SEED` with which to begin.
mod cluster;
#[path = "../common/simulation.rs"]
mod simulation;

use cluster::{Cluster, Run};
use dunlin_txn::{Mistake, Mistakes, Protocol};
use simulation::{again, finds, seeds, shape};

fn one(seed: u64, protocol: Protocol, mistakes: Mistakes) -> Run {
    let (headers, mut load) = shape(seed);
    Cluster::new(seed, protocol, mistakes, headers, &*load).run(&mut *load)
}

fn bears(protocol: Protocol) {
    let seeds = seeds(200);
    let (mut committed, mut aborted, mut locks) = (0, 0, 0);
    for seed in seeds.clone() {
        let run = one(seed, protocol, Mistakes::NONE);
        let again = again(protocol, seed);
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
    assert!(seeds.count() < 20 || (committed > 0 && aborted > 0 && locks > 0));
}

#[test]
fn fasst_is_serializable() {
    bears(Protocol::FASST);
}

#[test]
fn flocktx_is_serializable() {
    bears(Protocol::FLOCKTX);
}

#[test]
fn scaletx_is_serializable() {
    bears(Protocol::SCALETX);
}

#[test]
fn scaletx_o_is_serializable() {
    bears(Protocol::SCALETX_O);
}

fn found(mistake: Mistake, protocol: Protocol) {
    let is_found = |seed: &u64| {
        let run = one(*seed, protocol, Mistakes::of(mistake));
        !run.violations.is_empty()
    };
    finds(mistake, protocol, 1000, is_found);
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
