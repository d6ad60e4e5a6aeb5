//! Tests sleep and wake-ups with the steps of all parties in any order: no end sleeps through a notification.

use std::collections::VecDeque;

use dunlin_verbs::{Completion, CompletionOpcode, CompletionStatus, Operation, RemoteAddress};
use dunlin_verbs::{RemoteKey, SendFlags};
use proptest::prelude::*;

use crate::{Ended, SendQueue, SleepWord};

/// The party whose step is next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Sleeper,
    /// The oldest announcement in flight arrives.
    Network,
    /// The peer publishes something, and will then check whether to wake this end.
    Tell,
    /// The peer reads its sleep word, whether or not it has published something.
    Look,
}

/// The sleeper's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Announce,
    Arm,
    TakeMore,
    Look,
    LookAgain,
    Sleep,
}

struct World {
    sends: SendQueue,
    sleeper: SleepWord,
    step: Step,
    /// Announcements in flight, and the last that has arrived.
    under_way: VecDeque<u64>,
    word: u64,
    completions: VecDeque<CompletionOpcode>,
    armed: bool,
    event: bool,
    peer: SleepWord,
    told: usize,
    taken: usize,
    /// The peer has published something and has not read its sleep word since.
    looks: bool,
}

fn word() -> SleepWord {
    let remote = RemoteAddress {
        address: 0,
        key: RemoteKey(0),
    };
    SleepWord::new(0, remote)
}

impl World {
    fn new() -> Self {
        Self {
            sends: SendQueue::new(16, 4),
            sleeper: word(),
            step: Step::Announce,
            under_way: VecDeque::new(),
            word: 0,
            completions: VecDeque::new(),
            armed: false,
            event: false,
            peer: word(),
            told: 0,
            taken: 0,
            looks: false,
        }
    }

    fn act(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        match turn {
            Turn::Sleeper => self.step = self.go_on()?,
            Turn::Network => {
                if let Some(number) = self.under_way.pop_front() {
                    self.word = number;
                    self.completed(CompletionOpcode::Write);
                }
            }
            Turn::Tell => {
                self.told += 1;
                self.looks = true;
            }
            Turn::Look => {
                if self.peer.is_unanswered_number(self.word) {
                    self.peer.answer(self.word);
                    self.completed(CompletionOpcode::ReceiveWriteWithImmediate);
                }
                self.looks = false;
            }
        }
        let sleeps = self.step == Step::Sleep && !self.event;
        prop_assert!(
            !sleeps || self.taken == self.told || self.looks,
            "a wake-up is lost"
        );
        Ok(())
    }

    fn completed(&mut self, opcode: CompletionOpcode) {
        self.completions.push_back(opcode);
        self.event |= std::mem::take(&mut self.armed);
    }

    fn take_completions(&mut self) -> Result<(), TestCaseError> {
        for opcode in self.completions.drain(..) {
            let completion = Completion {
                opcode,
                status: CompletionStatus::Success,
                ..Completion::EMPTY
            };
            match self.sends.complete(&completion) {
                Ok(Ended::Receive) => self.sleeper.woken(),
                ended => prop_assert_eq!(ended, Ok(Ended::Requests(1))),
            }
        }
        Ok(())
    }

    /// One step of the sleeper, as `SleepWord` requires; returns the next one.
    fn go_on(&mut self) -> Result<Step, TestCaseError> {
        let heard_then = |world: &Self, next| {
            let heard = world.sleeper.is_heard(&world.sends);
            if heard {
                next
            } else {
                Step::Announce
            }
        };
        Ok(match self.step {
            Step::Announce => {
                self.take_completions()?;
                self.taken = self.told;
                if !self.sleeper.is_unanswered() {
                    let (write, number) = self.sleeper.announce();
                    let is_silent = matches!(
                        write,
                        Operation::Write {
                            immediate: None,
                            ..
                        }
                    );
                    prop_assert!(is_silent);
                    self.under_way.push_back(u64::from_le_bytes(number));
                    self.sleeper
                        .announced(self.sends.post_one(SendFlags::SIGNALED));
                }
                heard_then(self, Step::Arm)
            }
            Step::Arm => {
                self.armed = true;
                Step::TakeMore
            }
            Step::TakeMore => {
                self.take_completions()?;
                heard_then(self, Step::Look)
            }
            Step::Look | Step::LookAgain if self.taken < self.told => {
                self.taken = self.told;
                Step::Announce
            }
            Step::Look => {
                // A failure check takes completions.
                self.take_completions()?;
                Step::LookAgain
            }
            Step::LookAgain => Step::Sleep,
            Step::Sleep if std::mem::take(&mut self.event) => Step::Announce,
            Step::Sleep => Step::Sleep,
        })
    }
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        6 => Just(Turn::Sleeper),
        3 => Just(Turn::Network),
        1 => Just(Turn::Tell),
        2 => Just(Turn::Look),
    ];
    proptest::collection::vec(turn, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn nobody_sleeps_through_what_it_was_told(turns in turns()) {
        let mut world = World::new();
        for turn in turns {
            world.act(turn)?;
        }
        // What was published last is found, whoever sleeps now.
        world.act(Turn::Tell)?;
        world.act(Turn::Look)?;
        for _ in 0..20 {
            world.act(Turn::Network)?;
            world.act(Turn::Sleeper)?;
        }
        prop_assert_eq!(world.taken, world.told);
    }
}

#[test]
fn a_sleep_is_answered_once_and_then_has_a_new_number() {
    let (mut sends, mut sleeper, mut peer) = (SendQueue::new(4, 4), word(), word());
    assert!(!sleeper.is_heard(&sends));
    let (_, first) = sleeper.announce();
    sleeper.announced(sends.post(1, true));
    assert!(!sleeper.is_heard(&sends));
    let written = Completion {
        status: CompletionStatus::Success,
        ..Completion::EMPTY
    };
    assert_eq!(sends.complete(&written), Ok(Ended::Requests(1)));
    assert!(sleeper.is_heard(&sends));
    // Until it is answered it is the same sleep.
    assert_eq!(sleeper.announce().1, first);
    let number = u64::from_le_bytes(first);
    assert!(peer.is_unanswered_number(number));
    peer.answer(number);
    assert!(!peer.is_unanswered_number(number));
    sleeper.woken();
    assert!(!sleeper.is_heard(&sends));
    assert_ne!(sleeper.announce().1, first);
}
