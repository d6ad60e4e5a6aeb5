//! A life of a machine that the others left out, and that a later epoch takes for one that comes: it has missed what
//! the epochs between have done, so it has no part in the new one, and ends. Seed 3891 of scaletx-o came to it: a late
//! message had put an older life in its place, and so its number was free.
use crate::machine::{Machine, Start};
use dunlin_txn::membership::peer::{PeerAnswer, PeerRequest};
use dunlin_txn::membership::{Configuration, Epoch, Member, Observed, Registration, Role};
use dunlin_txn::recovery::{Begins, Condition};
use dunlin_txn::{MachineId, Mistakes};
use std::time::Duration;

const ME: u64 = 102;

fn configuration(epoch: u64, base: u64, serving: bool, (life, role): (u64, Role)) -> Configuration {
    let member = |incarnation, role| Member {
        incarnation,
        address: String::new(),
        role,
    };
    Configuration {
        database: 9,
        epoch: Epoch(epoch),
        base: Epoch(base),
        serving,
        manager: MachineId(0),
        replicas: 3,
        members: vec![
            member(1, Role::Whole),
            member(life, role),
            member(101, Role::Whole),
        ],
    }
}

struct Life {
    machine: Machine,
    revision: u64,
}

impl Life {
    fn begin() -> Life {
        let start = Start {
            incarnation: ME,
            begins: Begins::Empty,
            load: None,
            disk: None,
        };
        let machine = Machine::new(1, start, (7, Mistakes::NONE), (0, 0));
        Life {
            machine,
            revision: 0,
        }
    }

    fn observes(&mut self, of: Configuration) -> Condition {
        self.revision += 1;
        let me = self.machine.agent.registration().clone();
        let manager = Registration {
            machine: MachineId(0),
            incarnation: 1,
            ..me.clone()
        };
        let observed = Observed {
            configuration: Some((self.revision, of)),
            alive: vec![manager, me],
        };
        let condition = self.machine.agent.observed(Duration::ZERO, observed);
        let machine = &mut self.machine;
        machine.agent.poll(Duration::ZERO, &mut machine.local);
        condition
    }

    fn asked(&mut self, request: &PeerRequest) -> PeerAnswer {
        self.machine.agent.answer(&mut self.machine.local, request)
    }

    /// Goes through an epoch to its service.
    fn serves(&mut self, epoch: u64, base: u64) {
        let (now, before) = (Epoch(epoch), Epoch(base));
        let begins = configuration(epoch, base, false, (ME, Role::Learner));
        assert_eq!(self.observes(begins), Condition::Well);
        let seal = PeerRequest::Seal {
            epoch: now,
            base: before,
            cursor: 0,
        };
        assert_eq!(self.asked(&seal), PeerAnswer::Report(Vec::new(), None));
        let install = PeerRequest::Install {
            epoch: now,
            cursor: 0,
            records: Vec::new(),
            more: false,
        };
        assert_eq!(self.asked(&install), PeerAnswer::Done);
        let serves = configuration(epoch, base, true, (ME, Role::Learner));
        assert_eq!(self.observes(serves), Condition::Well);
        let standing = &self.machine.local.participant;
        assert_eq!((standing.epoch(), standing.is_serving()), (now, true));
    }
}

#[test]
fn a_life_that_missed_an_epoch_ends_when_it_is_taken_for_one_that_comes() {
    let mut life = Life::begin();
    life.serves(5, 4);
    // Epoch 7 goes on without it, and 8 has an older life in its place; nothing of that reaches it.
    let back = configuration(10, 9, false, (ME, Role::Learner));
    assert_eq!(life.observes(back.clone()), Condition::Well);
    let seal = PeerRequest::Seal {
        epoch: Epoch(10),
        base: Epoch(9),
        cursor: 0,
    };
    assert_eq!(life.asked(&seal), PeerAnswer::No);
    assert_eq!(life.observes(back), Condition::Fenced);
}

#[test]
fn a_late_request_of_an_epoch_that_is_over_ends_nobody() {
    let mut life = Life::begin();
    life.serves(5, 4);
    life.serves(6, 5);
    let late = PeerRequest::Seal {
        epoch: Epoch(5),
        base: Epoch(4),
        cursor: 0,
    };
    assert_eq!(life.asked(&late), PeerAnswer::No);
    let serves = configuration(6, 5, true, (ME, Role::Learner));
    assert_eq!(life.observes(serves), Condition::Well);
}
