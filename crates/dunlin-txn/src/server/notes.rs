//! What the thread of a member is told, by handlers and by those who ask other machines.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::Waker;
use std::time::Duration;

use dunlin_verbs::thread;

use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::types::MachineId;

/// A note.
#[derive(Debug)]
pub(super) enum Note {
    /// Another machine has answered.
    Answer(MachineId, PeerRequest, PeerAnswer),
    /// The membership has changed, or what it waits for is on the disk.
    Changed,
}

/// Notes in order, of which one thread takes the next.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Of each question that is out there is at most one answer.
    answers: VecDeque<Note>,
    /// However often it was said.
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

    /// The next one; none when there is none within that time, and now and then for no reason.
    pub(super) fn next(&self, within: Duration) -> Option<Note> {
        if let Some(note) = self.take(Some(&thread::waker())) {
            return Some(note);
        }
        thread::park(within);
        self.take(None)
    }

    /// The next, if there is one; else who is to be woken when there is.
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
