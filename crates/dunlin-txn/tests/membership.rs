//! What every membership owes: one of two proposals wins, who has a lease is not left out, and who was left out gets
//! none any more.
#[cfg(feature = "etcd")]
#[path = "common/etcd.rs"]
mod etcd;

use std::time::{Duration, Instant};

use dunlin_txn::membership::file::FileMembership;
use dunlin_txn::membership::memory::MemoryMembership;
use dunlin_txn::membership::{plan, Membership, Observed, Registration, Role};
use dunlin_txn::MachineId;

/// No lease lasts so long.
const BOUND: Duration = Duration::from_secs(60);

fn registration(machine: u16) -> Registration {
    Registration {
        machine: MachineId(machine),
        incarnation: 7 + u64::from(machine),
        address: format!("dunlin://host:{machine}"),
        whole: true,
        succeeds: None,
    }
}

fn keeps_its_promises<M: Membership>(lease: Duration, open: impl Fn() -> M) {
    let (mut one, mut two) = (open(), open());
    one.beat(&registration(0), lease).unwrap();
    let observed = two.beat(&registration(1), lease).unwrap();
    assert_eq!(observed.alive, [registration(0), registration(1)]);
    assert_eq!(observed.configuration, None);
    let first = plan::first(&observed, 3, MachineId(0), 2, 2).unwrap();
    assert!(one.replace(0, &first.next, &[]).unwrap());
    assert!(!two.replace(0, &first.next, &[]).unwrap());

    // What a machine says of itself may change.
    let moved = Registration {
        whole: false,
        succeeds: Some(u64::MAX),
        ..registration(1)
    };
    let observed = two.beat(&moved, lease).unwrap();
    assert_eq!(observed.alive, [registration(0), moved.clone()]);
    assert_eq!(one.look().unwrap(), observed);
    let (revision, now) = observed.configuration.clone().unwrap();
    assert_eq!(now, first.next);

    // It is left out when its lease is over, and gets no other.
    let without = Observed {
        alive: vec![registration(0)],
        ..observed
    };
    let next = plan::next(&without, MachineId(0), false).unwrap();
    assert_eq!(next.absent, [(MachineId(1), 8)]);
    let renewed = Instant::now();
    two.beat(&moved, lease).unwrap();
    while !one.replace(revision, &next.next, &next.absent).unwrap() {
        one.beat(&registration(0), lease).unwrap();
        assert!(renewed.elapsed() < BOUND, "its lease has no end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(renewed.elapsed() >= lease, "the lease was not awaited");
    assert!(two.beat(&moved, lease).is_err_and(|error| error.is_final));
    let observed = one.look().unwrap();
    let (later, of) = observed.configuration.unwrap();
    assert!(later > revision);
    assert_eq!(of, next.next);
    assert!(!observed.alive.contains(&moved));

    // Who was left out proposes the same of the other, too late: that one stays.
    let late = [(MachineId(0), registration(0).incarnation)];
    assert!(!two.replace(revision, &next.next, &late).unwrap());
    one.beat(&registration(0), lease).unwrap();
}

#[test]
fn a_folder_keeps_its_promises() {
    let name = format!("dunlin-membership-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    keeps_its_promises(Duration::from_secs(3), || {
        FileMembership::open(&path).unwrap()
    });
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn memory_keeps_its_promises() {
    let shared = MemoryMembership::default();
    keeps_its_promises(Duration::from_secs(3), || shared.clone());
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_keeps_its_promises() {
    use dunlin_txn::membership::etcd::EtcdMembership;
    let Some(etcd) = etcd::Etcd::start("promises", 1) else {
        return;
    };
    keeps_its_promises(Duration::from_secs(3), || {
        EtcdMembership::open(etcd.members(), "bank").unwrap()
    });
    // Nobody answers: said, and not for ever.
    let mut gone = EtcdMembership::open(etcd.members(), "bank").unwrap();
    drop(etcd);
    let error = gone.look().unwrap_err();
    assert!(
        !error.is_final && error.why.contains("no response from any member of etcd"),
        "{error}"
    );
}

#[test]
fn a_life_that_goes_on_from_its_disk_takes_the_place_of_a_whole_member_alone() {
    let successor = |machine: u16| Registration {
        incarnation: 100 + u64::from(machine),
        succeeds: Some(registration(machine).incarnation),
        ..registration(machine)
    };
    let mut observed = Observed {
        configuration: None,
        alive: (0..3).map(registration).collect(),
    };
    let first = plan::first(&observed, 3, MachineId(0), 3, 3).unwrap().next;
    let lives = |of: &plan::Proposal| -> Vec<(u64, Role)> {
        let members = of.next.members.iter();
        members.map(|one| (one.incarnation, one.role)).collect()
    };
    // All were gone, and two are back; nobody serves yet, and another comes back in the same way.
    observed.configuration = Some((1, first));
    observed.alive = vec![successor(0), successor(2)];
    let next = plan::next(&observed, MachineId(0), false).unwrap();
    let (out, back) = ((8, Role::Out), [(100, Role::Whole), (102, Role::Whole)]);
    assert_eq!(lives(&next), [back[0], out, back[1]]);
    let absent = [7, 8, 9].map(|life| (MachineId(life as u16 - 7), life));
    assert_eq!(next.absent, absent);
    observed.configuration = Some((2, next.next.clone()));
    observed.alive[1].incarnation = 202;
    observed.alive[1].succeeds = Some(102);
    let next = plan::next(&observed, MachineId(0), false).unwrap();
    assert!(!next.next.serving);
    assert_eq!(lives(&next), [back[0], out, (202, Role::Whole)]);

    // One that was left out is behind: it has to begin anew before it is taken in.
    observed.configuration = Some((3, next.next));
    observed.configuration.as_mut().unwrap().1.serving = true;
    observed.alive[0].succeeds = None;
    observed.alive.push(successor(1));
    assert_eq!(plan::next(&observed, MachineId(0), false), None);
    observed.alive[2].succeeds = None;
    observed.alive[2].whole = false;
    let next = plan::next(&observed, MachineId(0), false).unwrap();
    assert_eq!(lives(&next)[1], (101, Role::Learner));
}
