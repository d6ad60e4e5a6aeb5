//! UD: datagrams to any queue pair, with a separate port for each destination.
//!
//! A datagram whose port has been requested but is not available yet waits with its destination, and its work request
//! completes: waiting for one peer's control thread must not hold up datagrams to others.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dunlin_verbs::{CompletionStatus, Operation};

use crate::control::Command;
use crate::port::{Outbound, Record};

use super::executor::{Executor, Step};
use super::notices::Notices;
use super::shared::Shared;
use super::work::{Source, Target, Work};

/// Maximum number of destinations that a queue pair keeps open.
const DESTINATIONS_MAX: usize = 4096;
/// Maximum number of those on one device: a peer with many queue pairs must not take the places of all others.
const DESTINATIONS_OF_ONE_MAX: usize = DESTINATIONS_MAX / 4;
/// A destination that refused is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// Maximum number of bytes of a queue pair's records that wait for ports, over all destinations.
const WAITING_MAX: u64 = 64 << 20;
/// Number of entries in the table from a destination's number to its place.
const HINTS: usize = 256;

/// The destinations of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    destinations: Vec<(Target, Way)>,
    hints: Vec<u16>,
    /// Bytes of waiting records, over all destinations.
    waiting: u64,
}

/// A datagram that waits for its destination's port.
#[derive(Debug)]
struct Waiting {
    record: Record,
    bytes: Vec<u8>,
}

/// The datagrams that wait for one port.
#[derive(Debug, Default)]
struct Queue {
    datagrams: VecDeque<Waiting>,
    /// Length of their records in bytes.
    bytes: u64,
}

/// The state of the path to a destination.
#[derive(Debug)]
enum Way {
    /// The port was requested; with the datagrams that wait for the answer.
    Asked(Queue),
    /// Requested again after a timeout. No datagram waits for the answer: as long as one does, the executor is shared
    /// and watched, and a stopped peer would keep it in that state for as long as anybody sends there.
    AskedAgain,
    Open(Outbound),
    Refused(Instant),
    /// It did not answer in time.
    Silent(Instant),
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

    /// Whether there is a place for another destination on a device. If not, destinations that may be asked again are
    /// removed: nothing is known about them that asking would not reveal.
    #[cold]
    fn has_room(&mut self, uid: [u8; 16]) -> bool {
        if !self.is_full(uid) {
            return true;
        }
        self.destinations.retain(|(_, way)| !way.may_be_asked());
        !self.is_full(uid)
    }

    fn is_full(&self, uid: [u8; 16]) -> bool {
        let of_one = self.destinations.iter().filter(|(to, _)| to.gid == uid);
        self.destinations.len() >= DESTINATIONS_MAX || of_one.count() >= DESTINATIONS_OF_ONE_MAX
    }

    /// Whether datagrams wait for the ports of their destinations.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Keeps a datagram until its destination's port is available, if that has been requested. What exceeds the size of
    /// a port is lost, as it would be there.
    #[cold]
    fn keep(&mut self, place: usize, record: Record, work: &Work<'_>, port_bytes: usize) {
        let Some((_, Way::Asked(queue))) = self.destinations.get_mut(place) else {
            return;
        };
        let (more, port_bytes) = (record.ring_bytes(), port_bytes as u64);
        if queue.bytes + more > port_bytes || self.waiting + more > WAITING_MAX {
            return;
        }
        let mut bytes = vec![0; work.length];
        let whole = (bytes.as_mut_ptr(), bytes.len());
        work.source.gather(0, [whole, (std::ptr::null_mut(), 0)]);
        queue.datagrams.push_back(Waiting { record, bytes });
        queue.bytes += more;
        self.waiting += more;
    }

    /// Handles the answer for a destination, and sends what waited for it.
    pub(crate) fn answered(
        &mut self,
        target: Target,
        outbound: Result<Outbound, CompletionStatus>,
        notices: &mut Notices,
    ) {
        let Some(place) = self.find(target) else {
            return;
        };
        let way = match outbound {
            Ok(outbound) => Way::Open(outbound),
            Err(CompletionStatus::RetryExceeded) => Way::Silent(Instant::now()),
            Err(_) => Way::Refused(Instant::now()),
        };
        let way = std::mem::replace(&mut self.destinations[place].1, way);
        let Way::Asked(queue) = way else { return };
        self.waiting -= queue.bytes;
        for waiting in queue.datagrams {
            let source = Source::Inline(&waiting.bytes);
            self.destinations[place]
                .1
                .send(waiting.record, source, notices);
        }
    }

    /// Releases the ports of a device that is gone, or of one of its queue pairs.
    pub(crate) fn forget(&mut self, uid: [u8; 16], number: Option<u32>) {
        let is_gone =
            |target: &Target| target.gid == uid && number.is_none_or(|one| one == target.number);
        let waiting = &mut self.waiting;
        self.destinations.retain(|(target, way)| {
            if !is_gone(target) {
                return true;
            }
            // If an answer is outstanding, it will arrive, and report the end itself.
            match way {
                Way::Asked(queue) if number.is_none() => *waiting -= queue.bytes,
                Way::Asked(_) | Way::AskedAgain => return number.is_some(),
                _ => {}
            }
            false
        });
    }
}

impl Way {
    /// Whether the last request failed some time ago, so that another may succeed by now.
    fn may_be_asked(&self) -> bool {
        matches!(self, Self::Refused(at) | Self::Silent(at) if at.elapsed() >= ASK_AGAIN)
    }

    /// Sends a datagram if the port is available; if it is full, the datagram is lost.
    #[inline(always)]
    fn send(&mut self, record: Record, source: Source<'_>, notices: &mut Notices) {
        let Self::Open(outbound) = self else { return };
        if !outbound.peer_receives() {
            *self = Self::Refused(Instant::now());
            return;
        }
        let length = u64::from(record.bytes);
        match outbound.room(length) {
            Ok(Some(room)) if room >= length => {
                let waker = outbound.publish(record, |pieces| source.gather(0, pieces));
                notices.wake(waker);
            }
            Ok(_) => {}
            Err(_) => *self = Self::Refused(Instant::now()),
        }
    }
}

impl Executor {
    /// Sends one datagram. One that cannot be delivered is lost, which counts as success.
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
        let place = match place {
            Some(place) => place,
            None if !self.datagrams.has_room(target.gid) => return done,
            None => {
                let asked = Way::Asked(Queue::default());
                self.datagrams.destinations.push((target, asked));
                ask(&mut self.notices, pair, target);
                self.datagrams.destinations.len() - 1
            }
        };
        let way = &mut self.datagrams.destinations[place].1;
        if way.may_be_asked() {
            *way = match way {
                Way::Silent(_) => Way::AskedAgain,
                _ => Way::Asked(Queue::default()),
            };
            ask(&mut self.notices, pair, target);
        }
        let record = Record::send(work, immediate);
        match way {
            Way::Asked(_) => {
                let port_bytes = pair.core.config.datagram_port_bytes;
                self.datagrams.keep(place, record, work, port_bytes);
                Step::Kept(work.length)
            }
            Way::AskedAgain | Way::Refused(_) | Way::Silent(_) => done,
            Way::Open(_) => {
                way.send(record, work.source, &mut self.notices);
                done
            }
        }
    }
}

#[cold]
fn ask(notices: &mut Notices, pair: &Shared, target: Target) {
    notices.ask(pair, |pair, incarnation| Command::Datagram {
        pair,
        incarnation,
        target,
    });
}
