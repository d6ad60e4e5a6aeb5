//! The protocol of machines that replace each other (`docs/transactions.md`), explored to the end: every state that
//! three machines and one or two transactions can come to, whatever the order of messages, when machines die, lose
//! their lease or come back, messages come twice, or a client dies. No rule is written here a second time: coordinator,
//! participant, agent and the function that plans configurations are the crate's own. What stands in for the rest is a
//! register, a set of messages and clocks that stand still.
//!
//! What a state is judged by is in [`invariants`]. Deliberate mistakes must each be found. What takes minutes is
//! explored with `DUNLIN_TXN_MODEL=all`.
mod client;
mod invariants;
mod machine;
mod part;
mod scenario;
mod state;

use client::Work;
use dunlin_txn::{Mistake, Mistakes, Protocol};
use scenario::{Action, Faults, Scenario};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores everything, and says how much that is.
fn holds(name: &str, scenario: Scenario) {
    let checker = scenario.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} steps, {} deep",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let model = checker.model();
        let steps = path.into_vec();
        for (state, action) in &steps {
            println!("{state:?}");
            match action {
                Some(Action::Deliver(at)) => println!("  {:?} arrives", state.mail[*at]),
                Some(Action::Late(at)) => println!("  {:?} arrives late", state.mail[*at]),
                Some(other) => println!("  {other:?}"),
                None => {}
            }
        }
        let why = steps
            .last()
            .and_then(|(state, _)| invariants::wrong_at_the_end(model, state));
        panic!("{name}: not \"{property}\" ({why:?}), after the steps above");
    }
    assert!(checker.is_done());
}

/// Explores until the mistake is found.
fn finds(mistake: Mistake, mut scenario: Scenario) {
    scenario.mistakes = Mistakes::of(mistake);
    let checker = scenario.checker().threads(2);
    let checker = checker
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let states = checker.unique_state_count();
    let (property, path) = found.into_iter().next().unwrap_or_else(|| {
        panic!("{mistake:?} is not found in {states} states");
    });
    println!(
        "{mistake:?}: not \"{property}\", after {} steps, among {states} states",
        path.into_actions().len()
    );
}

const TRANSFER: Work = Work {
    reads: &[],
    writes: &[0, 1],
    adds: 1,
};
const CHANGE: Work = Work {
    reads: &[],
    writes: &[0],
    adds: 4,
};
const READS_FIRST: Work = Work {
    reads: &[0],
    writes: &[1],
    adds: 2,
};
const READS_SECOND: Work = Work {
    reads: &[1],
    writes: &[0],
    adds: 3,
};
const LOOKS: Work = Work {
    reads: &[0, 1],
    writes: &[],
    adds: 0,
};
/// Each reads what the other changes.
const SKEW: &[Work] = &[READS_FIRST, READS_SECOND];

macro_rules! scenarios {
    ($($name:ident: $protocol:ident, $replicas:literal, $works:expr $(, $count:literal $fault:ident)*;)*) => {$(
        #[test]
        fn $name() {
            let faults = Faults { $($fault: $count,)* ..Faults::default() };
            holds(stringify!($name), Scenario::new(Protocol::$protocol, $replicas, $works, faults));
        }
    )*};
}

scenarios! {
    nothing_happens: FLOCKTX, 3, &[TRANSFER, READS_FIRST];
    messages_come_twice: FLOCKTX, 3, SKEW, 1 doubles;
    a_lease_ends: FLOCKTX, 3, &[TRANSFER], 1 cuts;
    a_client_dies: FLOCKTX, 3, &[TRANSFER], 1 kills;
    two_machines_die: FLOCKTX, 3, &[TRANSFER], 2 crashes;
    two_machines_die_in_scaletx_o: SCALETX_O, 3, &[TRANSFER], 2 crashes;
    two_machines_die_in_fasst: FASST, 3, &[TRANSFER], 2 crashes;
    machine_and_client_die: FLOCKTX, 3, &[CHANGE], 1 crashes, 1 kills;
    messages_come_twice_after_a_death: FLOCKTX, 3, &[CHANGE], 1 crashes, 1 doubles;
    two_transactions_and_a_death: FLOCKTX, 2, SKEW, 1 crashes;
}

macro_rules! mistakes {
    ($($name:ident: $mistake:ident in $protocol:ident, $replicas:literal, $works:expr $(, $fault:ident)*;)*) => {$(
        #[test]
        fn $name() {
            let faults = Faults { $($fault: 1,)* ..Faults::default() };
            finds(Mistake::$mistake, Scenario::new(Protocol::$protocol, $replicas, $works, faults));
        }
    )*};
}

mistakes! {
    old_epoch_served_is_found: OldEpochServed in FLOCKTX, 3, &[TRANSFER, LOOKS], crashes;
    seal_left_out_is_found: SealLeftOut in FLOCKTX, 3, &[TRANSFER], crashes;
    decided_forgotten_is_found: DecidedForgotten in FLOCKTX, 3, &[TRANSFER], crashes;
    record_wanted_everywhere_is_found: RecordWantedEverywhere in FASST, 3, &[TRANSFER], crashes;
    records_of_parts_is_found: RecordsOfParts in FLOCKTX, 2, &[TRANSFER], crashes;
    locks_kept_is_found: LocksKept in FLOCKTX, 3, &[TRANSFER], kills;
    served_early_is_found: ServedEarly in FLOCKTX, 3, &[TRANSFER], crashes;
    outcome_assumed_is_found: OutcomeAssumed in FLOCKTX, 3, &[TRANSFER], crashes;
    lease_ignored_is_found: LeaseIgnored in FLOCKTX, 3, &[TRANSFER, LOOKS], cuts;
    absence_not_awaited_is_found: AbsenceNotAwaited in FLOCKTX, 3, &[TRANSFER], cuts;
    copy_left_out_is_found: CopyLeftOut in FLOCKTX, 2, &[CHANGE], crashes, returns;
    reported_early_is_found: ReportedEarly in FLOCKTX, 3, &[TRANSFER], crashes;
    unlocked_at_log_is_found: UnlockedAtLog in SCALETX_O, 3, &[TRANSFER, READS_FIRST];
    lock_left_out_is_found: LockLeftOut in FLOCKTX, 3, &[TRANSFER, READS_FIRST];
    validation_left_out_is_found: ValidationLeftOut in FLOCKTX, 3, SKEW;
    late_request_executed_is_found: LateRequestExecuted in FLOCKTX, 3, SKEW, doubles;
}

/// What takes minutes each.
#[test]
fn the_long_ones() {
    if std::env::var("DUNLIN_TXN_MODEL").as_deref() != Ok("all") {
        return println!("skipped: DUNLIN_TXN_MODEL=all explores them");
    }
    let scenario = |protocol, works, faults| Scenario::new(protocol, 3, works, faults);
    let none = Faults::default();
    for protocol in [Protocol::FLOCKTX, Protocol::FASST, Protocol::SCALETX_O] {
        let crashes = Faults { crashes: 1, ..none };
        let cuts = Faults { cuts: 1, ..none };
        let both = Faults {
            crashes: 1,
            cuts: 1,
            ..none
        };
        let returns = Faults {
            crashes: 1,
            returns: 1,
            ..none
        };
        let name = |what: &str| format!("{}: {what}", protocol.name);
        holds(&name("skew, a death"), scenario(protocol, SKEW, crashes));
        holds(
            &name("who reads both, a death"),
            scenario(protocol, &[TRANSFER, LOOKS], crashes),
        );
        holds(
            &name("who reads both, a lease ends"),
            scenario(protocol, &[TRANSFER, LOOKS], cuts),
        );
        holds(
            &name("a lease ends, a death"),
            scenario(protocol, &[TRANSFER], both),
        );
        holds(&name("a return"), scenario(protocol, &[TRANSFER], returns));
    }
}
