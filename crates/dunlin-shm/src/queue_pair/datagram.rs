//! UD: datagrams to any queue pair, each through a port of its own.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Generation;
use dunlin_verbs::Operation;

use crate::control::Command;
use crate::port::{Outbound, Record};

use super::executor::{Executor, Reason, Step};
use super::notices::Notices;
use super::shared::Shared;
use super::work::{Target, Work};

/// Destinations that one queue pair keeps open.
const DESTINATIONS_MAX: usize = 4096;
/// A destination that refused is asked again after this.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Entries of the table from a destination's number to its place.
const HINTS: usize = 256;

/// The destinations of a queue pair.
#[derive(Debug)]
pub(crate) struct Datagrams {
    made_in: Generation,
    destinations: Vec<(Target, Way)>,
    hints: Vec<u16>,
}

/// The way to a destination.
#[derive(Debug)]
enum Way {
    Asked,
    Open(Outbound),
    Refused(Instant),
}

impl Default for Datagrams {
    fn default() -> Self {
        Self {
            made_in: Generation::current(),
            destinations: Vec::new(),
            hints: Vec::new(),
        }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        if !self.made_in.is_current() {
            return;
        }
        for (_, way) in &self.destinations {
            if let Way::Open(outbound) = way {
                outbound.leave();
            }
        }
    }
}

impl Datagrams {
    #[inline]
    fn find(&mut self, target: Target) -> Option<usize> {
        let hint = target.number as usize % HINTS;
        if let Some(&place) = self.hints.get(hint) {
            if matches!(self.destinations.get(usize::from(place)), Some((known, _)) if *known == target)
            {
                return Some(place.into());
            }
        }
        let place = self
            .destinations
            .iter()
            .position(|(known, _)| *known == target)?;
        if self.hints.is_empty() {
            self.hints = vec![0; HINTS];
        }
        self.hints[hint] = place as u16;
        Some(place)
    }

    /// Takes in the answer about a destination.
    pub(crate) fn answered(&mut self, target: Target, outbound: Option<Outbound>) {
        if let Some(place) = self.find(target) {
            self.destinations[place].1 = match outbound {
                Some(outbound) => Way::Open(outbound),
                None => Way::Refused(Instant::now()),
            };
        }
    }

    /// Lets go of the ports of a device that is no more, or of one of its queue pairs.
    pub(crate) fn forget(&mut self, uid: [u8; 16], number: Option<u32>) {
        let is_gone =
            |target: &Target| target.gid == uid && number.is_none_or(|one| one == target.number);
        self.destinations.retain(|(target, way)| {
            // An answer that is waited for comes, and says so.
            !is_gone(target) || (number.is_some() && matches!(way, Way::Asked))
        });
    }
}

impl Executor {
    /// Sends one datagram. What cannot be delivered is lost, and that is success.
    pub(crate) fn execute_datagram(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let done = Step::Done(work.length);
        let (Some(target), &Operation::Send { immediate }) = (work.target(), work.operation) else {
            return done;
        };
        if pair.has_gone.load(Ordering::Relaxed) {
            pair.has_gone.store(false, Ordering::Relaxed);
            self.read_mail(pair);
        }
        let mut place = self.datagrams.find(target);
        if !matches!(place, Some(at) if matches!(self.datagrams.destinations[at].1, Way::Open(_))) {
            self.read_mail(pair);
            place = self.datagrams.find(target);
        }
        let Some(place) = place else {
            if self.datagrams.destinations.len() >= DESTINATIONS_MAX {
                return done;
            }
            self.datagrams.destinations.push((target, Way::Asked));
            return ask(&mut self.notices, pair, target);
        };
        let way = &mut self.datagrams.destinations[place].1;
        match way {
            Way::Asked => Step::Wait(Reason::Peer),
            Way::Refused(at) if at.elapsed() < ASK_AGAIN => done,
            Way::Refused(_) => {
                *way = Way::Asked;
                ask(&mut self.notices, pair, target)
            }
            Way::Open(outbound) => {
                if !outbound.peer_receives() {
                    *way = Way::Refused(Instant::now());
                    return done;
                }
                let record = Record::send(work, immediate);
                match outbound.room(work.length as u64) {
                    Ok(Some(room)) if room >= work.length as u64 => {
                        let waker =
                            outbound.publish(record, |pieces| work.source.gather(0, pieces));
                        self.notices.wake(waker);
                    }
                    Ok(_) => {}
                    Err(_) => *way = Way::Refused(Instant::now()),
                }
                done
            }
        }
    }
}

#[cold]
fn ask(notices: &mut Notices, pair: &Shared, target: Target) -> Step {
    notices.ask(pair, |pair, incarnation| Command::Datagram {
        pair,
        incarnation,
        target,
    });
    Step::Wait(Reason::Peer)
}
