//! Machines crash, are stopped, cut off and come back, and coordinators die, in virtual time and by seeds: what was
//! acknowledged stays, histories are serializable, all machines come back and no lock stays; and deliberate mistakes
//! are found. In some runs machines have disks, and all may be gone at once. `DUNLIN_TXN_SEEDS` says how many seeds,
//! `DUNLIN_TXN_SEED` with which to begin.
mod cluster;
mod disk;
mod left_out;
mod machine;
mod membership;
mod network;
mod returning;
#[path = "../common/simulation.rs"]
mod simulation;

use cluster::{Cluster, Fault, Run};
use dunlin_txn::{Mistake, Mistakes, Protocol};
use simulation::{again, finds, seeds, shape};

fn one(seed: u64, protocol: Protocol, mistakes: Mistakes, faults: Option<&[Fault]>) -> Run {
    let (headers, mut load) = shape(seed);
    Cluster::new(seed, protocol, mistakes, headers, &*load, faults).run(&mut *load)
}

fn bears(protocol: Protocol) {
    let seeds = seeds(60);
    let (mut committed, mut aborted, mut superseded, mut settled) = (0, 0, 0, 0);
    let (mut epochs, mut faults) = (0, 0);
    for seed in seeds.clone() {
        let run = one(seed, protocol, Mistakes::NONE, None);
        let again = again(protocol, seed);
        assert!(run.violations.is_empty(), "{again}: {}", run.violations[0]);
        assert_eq!(run.wrong, None, "{again}");
        committed += run.history.committed.len();
        aborted += run.aborted;
        superseded += run.superseded;
        settled += run.settled;
        epochs += run.epochs;
        faults += run.faults;
    }
    println!(
        "{}: {faults} faults, {epochs} epochs; {committed} committed, {aborted} aborted, \
         {superseded} ended with their epoch, {settled} unknown for a while",
        protocol.name
    );
    assert!(seeds.count() < 20 || (committed > 0 && aborted > 0 && superseded > 0 && settled > 0));
}

#[test]
fn fasst_bears_failures() {
    bears(Protocol::FASST);
}

#[test]
fn flocktx_bears_failures() {
    bears(Protocol::FLOCKTX);
}

#[test]
fn scaletx_o_bears_failures() {
    bears(Protocol::SCALETX_O);
}

/// Here a machine comes back alone, from a disk that lacks a change which others had on theirs. Nobody was told of
/// that, but a key that shares its header was read by the version that it made: no other change may make this one
/// again.
#[test]
fn versions_of_shared_headers_are_not_made_twice() {
    let run = one(2940, Protocol::FLOCKTX, Mistakes::NONE, None);
    assert_eq!((run.violations, run.wrong), (Vec::new(), None));
}

/// Searches with the faults that show the mistake.
fn found(mistake: Mistake, protocol: Protocol, faults: &[Fault]) {
    let is_wrong = |seed: u64, mistakes| {
        let run = one(seed, protocol, mistakes, Some(faults));
        run.wrong.is_some() || !run.violations.is_empty()
    };
    let is_found = |seed: &u64| is_wrong(*seed, Mistakes::of(mistake));
    let seed = finds(mistake, protocol, 400, is_found);
    assert!(
        !is_wrong(seed, Mistakes::NONE),
        "seed {seed} with {faults:?}: wrong also without the mistake"
    );
}

macro_rules! mistakes {
    ($($name:ident: $mistake:ident in $protocol:ident by $($fault:ident)*;)*) => {$(
        #[test]
        fn $name() {
            found(Mistake::$mistake, Protocol::$protocol, &[$(Fault::$fault),*]);
        }
    )*};
}

mistakes! {
    old_epoch_served_is_found: OldEpochServed in FLOCKTX by Crash;
    seal_left_out_is_found: SealLeftOut in FLOCKTX by Crash;
    decided_forgotten_is_found: DecidedForgotten in FASST by Crash;
    record_wanted_everywhere_is_found: RecordWantedEverywhere in FASST by Crash;
    installed_twice_is_found: InstalledTwice in FLOCKTX by Crash;
    locks_kept_is_found: LocksKept in SCALETX_O by Client;
    served_early_is_found: ServedEarly in FLOCKTX by Crash;
    records_of_parts_is_found: RecordsOfParts in FLOCKTX by Crash;
    outcome_assumed_is_found: OutcomeAssumed in FLOCKTX by Crash;
    lease_ignored_is_found: LeaseIgnored in FASST by Partition;
    copy_left_out_is_found: CopyLeftOut in FLOCKTX by Crash;
    absence_not_awaited_is_found: AbsenceNotAwaited in FASST by Flapping LateProposals;
    answered_before_disk_is_found: AnsweredBeforeDisk in FLOCKTX by Blackout;
    behind_taken_for_whole_is_found: BehindTakenForWhole in FLOCKTX by Blackout;
}
