//! Machines that were all ended and come back from their disks, some of which read for long: who has read first waits
//! for those that say that they read, and for two leases for those of which nothing is heard.
use crate::disk::Disk;
use crate::machine::{Machine, Start, LEASE};
use dunlin_txn::membership::{Configuration, Epoch, Member, Observed, Registration, Role};
use dunlin_txn::recovery::{Begins, Order};
use dunlin_txn::{MachineId, Mistakes};
use std::time::Duration;

/// The life of a machine that was a member, and the one that comes back.
const fn before(number: u16) -> u64 {
    1 + number as u64
}
const fn back(number: u16) -> u64 {
    101 + number as u64
}

fn configuration() -> Configuration {
    let member = |number| Member {
        incarnation: before(number),
        address: String::new(),
        role: Role::Whole,
    };
    Configuration {
        database: 9,
        epoch: Epoch(5),
        base: Epoch(4),
        serving: true,
        manager: MachineId(0),
        replicas: 3,
        members: (0..3).map(member).collect(),
    }
}

/// The machine that has read its log first, and what it hears of the others.
struct First(Machine);

impl First {
    fn begin() -> First {
        let disk = Disk::default();
        disk.go_on(before(0));
        let start = Start {
            incarnation: back(0),
            begins: Begins::Continues(Some(before(0))),
            load: None,
            disk: Some(disk),
        };
        First(Machine::new(0, start, (7, Mistakes::NONE), (0, 0)))
    }

    /// The members of the epoch that it proposes so many leases after its beginning.
    fn proposes(&mut self, leases: u32, others: &[(u16, bool)]) -> Option<Vec<(u64, Role)>> {
        let Machine { agent, local, .. } = &mut self.0;
        let me = agent.registration().clone();
        let other = |(number, whole): &(u16, bool)| Registration {
            machine: MachineId(*number),
            incarnation: back(*number),
            address: String::new(),
            whole: *whole,
            succeeds: Some(before(*number)),
        };
        let observed = Observed {
            configuration: Some((1, configuration())),
            alive: [me].into_iter().chain(others.iter().map(other)).collect(),
        };
        let now = Duration::from_micros(LEASE) * leases;
        agent.observed(now, observed);
        let proposal = agent
            .poll(now, local)
            .into_iter()
            .find_map(|order| match order {
                Order::Replace(proposal) => Some(proposal.next),
                Order::Ask { .. } => None,
            });
        let members = proposal?.members.into_iter();
        Some(members.map(|one| (one.incarnation, one.role)).collect())
    }
}

const READS: bool = false;
const HAS_READ: bool = true;

#[test]
fn who_has_read_first_waits_for_those_that_read() {
    let mut first = First::begin();
    for leases in 0..50 {
        assert_eq!(first.proposes(leases, &[(1, READS), (2, READS)]), None);
    }
    for leases in 50..100 {
        assert_eq!(first.proposes(leases, &[(1, HAS_READ), (2, READS)]), None);
    }
    let all = [0, 1, 2].map(|number| (back(number), Role::Whole));
    let others = [(1, HAS_READ), (2, HAS_READ)];
    assert_eq!(first.proposes(100, &others), Some(all.into()));
}

#[test]
fn it_goes_on_two_leases_after_the_last_word_of_one_that_read() {
    let mut first = First::begin();
    for leases in 0..50 {
        assert_eq!(first.proposes(leases, &[(1, READS), (2, READS)]), None);
    }
    let (whole, out) = (Role::Whole, Role::Out);
    for leases in 50..51 {
        assert_eq!(first.proposes(leases, &[(1, HAS_READ)]), None);
    }
    let two = [(back(0), whole), (back(1), whole), (before(2), out)];
    assert_eq!(first.proposes(51, &[(1, HAS_READ)]), Some(two.into()));
}

#[test]
fn it_waits_two_leases_for_those_of_which_nothing_is_heard() {
    let mut first = First::begin();
    for leases in 0..2 {
        assert_eq!(first.proposes(leases, &[]), None);
    }
    let (whole, out) = (Role::Whole, Role::Out);
    let alone = [(back(0), whole), (before(1), out), (before(2), out)];
    assert_eq!(first.proposes(2, &[]), Some(alone.into()));
}
