//! Notifications for the thread of a member, from handlers and from threads that send requests to other machines.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::Waker;
use std::time::Duration;

use dunlin_verbs::thread;

use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::types::MachineId;

/// A notification.
#[derive(Debug)]
pub(super) enum Note {
    /// Another machine has answered.
    Answer(MachineId, PeerRequest, PeerAnswer),
    /// The membership has changed, or what the thread waits for is on the disk.
    Changed,
}

/// A queue of notifications, for one receiving thread.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// At most one answer for each outstanding request.
    answers: VecDeque<Note>,
    /// Set, however often it was notified.
    changed: bool,
    sleeper: Option<Waker>,
}

impl Notes {
    pub(super) fn push(&self, note: Note) {
        let mut waiting = thread::lock(&self.0);
        match note {
            Note::Changed => waiting.changed = true,
            answer => waiting.answers.push_back(answer),
        }
        let sleeper = waiting.sleeper.take();
        drop(waiting);
        sleeper.into_iter().for_each(Waker::wake);
    }

    /// Returns the next one; `None` if there is none within that time, and occasionally without a reason.
    pub(super) fn next(&self, within: Duration) -> Option<Note> {
        if let Some(note) = self.take(Some(&thread::waker())) {
            return Some(note);
        }
        thread::park(within);
        self.take(None)
    }

    /// Takes the next one, if there is one; otherwise registers the waker to be woken by the next.
    fn take(&self, sleeper: Option<&Waker>) -> Option<Note> {
        let mut waiting = thread::lock(&self.0);
        if std::mem::take(&mut waiting.changed) {
            return Some(Note::Changed);
        }
        let next = waiting.answers.pop_front();
        waiting.sleeper = sleeper.filter(|_| next.is_none()).cloned();
        next
    }
}
