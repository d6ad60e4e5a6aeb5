//! Capture of a server's calls (`dunlin capture`): the requests to handlers and their answers, for all presets and
//! devices.
//!
//! A server that allows it ([`crate::ServerBuilder::allows_capture`]) wraps its handlers ([`observed`]); others have no
//! cost. Calls are kept only while a client asks for them, in bounded memory: a client that asks too rarely is told how
//! many calls it missed.

mod observed;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_verbs::thread;

pub(super) use self::observed::observe;
use super::handler::{Execution, HandlerError};
use crate::call::captured::{Asked, CapturedCall, CapturedCalls};

/// Memory for calls that have not been fetched yet.
const KEPT_BYTES: usize = 8 << 20;
/// What a call takes in addition to its payload.
const CALL_BYTES: usize = 160;
/// Longest answer; shorter if the client accepts less.
const ANSWER_BYTES: usize = 256 << 10;
/// Time without a request after which a client no longer captures.
const PATIENCE: Duration = Duration::from_secs(5);

/// The calls that a server keeps for capturing clients. Times are nanoseconds since it was made.
pub(super) struct Tap {
    epoch: std::time::Instant,
    /// Until when calls are kept; 0 if no client has asked.
    until: AtomicU64,
    /// Number of bytes of each payload that are kept, as the last request asked.
    snap: AtomicU32,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    calls: VecDeque<CapturedCall>,
    bytes: usize,
    /// Number of the next call.
    next: u64,
}

impl Kept {
    fn push(&mut self, mut call: CapturedCall) {
        call.number = self.next;
        self.next += 1;
        self.bytes += weight(&call);
        self.calls.push_back(call);
        while self.bytes > KEPT_BYTES {
            let Some(oldest) = self.calls.pop_front() else {
                break;
            };
            self.bytes -= weight(&oldest);
        }
    }

    /// Returns calls starting at this number, as many as fit, and how many were dropped before.
    fn since(&self, from: u64, most: usize) -> CapturedCalls {
        let oldest = self.next - self.calls.len() as u64;
        let first = from.clamp(oldest, self.next);
        let mut room = most;
        let fitting = self.calls.range((first - oldest) as usize..);
        let calls: Vec<_> = fitting
            .take_while(|call| {
                let fits = weight(call) <= room;
                room = room.saturating_sub(weight(call));
                fits
            })
            .cloned()
            .collect();
        // A call that is too long for this client counts as missed, instead of blocking all others.
        let too_long = u64::from(calls.is_empty() && first < self.next);
        CapturedCalls {
            next: first + calls.len() as u64 + too_long,
            missed: first.saturating_sub(from) + too_long,
            calls,
        }
    }
}

fn weight(call: &CapturedCall) -> usize {
    CALL_BYTES + call.request.len() + call.answer.len() + call.name.len() + call.peer.len()
}

impl Tap {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: thread::now(),
            until: AtomicU64::new(0),
            snap: AtomicU32::new(0),
            kept: Mutex::default(),
        })
    }

    fn now(&self) -> u64 {
        thread::now().duration_since(self.epoch).as_nanos() as u64
    }

    /// Number of bytes kept of each payload, if a client captures.
    fn captures(&self) -> Option<usize> {
        let until = self.until.load(Ordering::Relaxed);
        let some = until != 0 && self.now() < until;
        some.then(|| self.snap.load(Ordering::Relaxed) as usize)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, asked: Asked, longest: usize) -> CapturedCalls {
        let until = self.now() + PATIENCE.as_nanos() as u64;
        self.snap.store(asked.snap, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
        let kept = self.kept();
        match asked.from {
            // An encoded call takes fewer bytes than it is accounted for.
            Some(from) => kept.since(from, longest),
            None => CapturedCalls {
                next: kept.next,
                ..CapturedCalls::default()
            },
        }
    }
}

/// The handler of [`CAPTURE`].
pub(super) fn handler(tap: Arc<Tap>) -> Execution {
    Execution::Inline(Arc::new(move |request, reply| {
        let failed = |words: String| HandlerError::new(1, words);
        let asked = Asked::decode(request.payload()).map_err(failed)?;
        let most = ANSWER_BYTES.min(reply.max_reply_bytes());
        let calls = tap.answer(asked, most);
        reply.write(&calls.encode().map_err(failed)?)
    }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn call(bytes: usize) -> CapturedCall {
        CapturedCall {
            request: vec![7; bytes],
            ..CapturedCall::default()
        }
    }

    fn ask(tap: &Tap, from: Option<u64>) -> CapturedCalls {
        tap.answer(Asked { from, snap: 9 }, ANSWER_BYTES)
    }

    #[test]
    fn nothing_is_kept_before_somebody_asks() {
        let tap = Tap::new();
        assert_eq!(tap.captures(), None);
        let first = ask(&tap, None);
        assert_eq!((first.next, first.missed, first.calls.len()), (0, 0, 0));
        assert_eq!(tap.captures(), Some(9));
    }

    #[test]
    fn calls_come_once_in_order_and_what_was_let_go_is_counted() {
        let tap = Tap::new();
        let mut next = ask(&tap, None).next;
        for length in [0, 10, 100] {
            tap.kept().push(call(length));
        }
        let asked = ask(&tap, Some(next));
        let numbers: Vec<_> = asked.calls.iter().map(|call| call.number).collect();
        assert_eq!((numbers, asked.missed, asked.next), (vec![0, 1, 2], 0, 3));
        next = asked.next;
        assert!(ask(&tap, Some(next)).calls.is_empty());
        // Three times as much as is kept.
        for _ in 0..3 * KEPT_BYTES / 10_000 {
            tap.kept().push(call(10_000));
        }
        let (mut seen, mut missed) = (0, 0);
        loop {
            let asked = ask(&tap, Some(next));
            missed += asked.missed;
            seen += asked.calls.len() as u64;
            let first = asked.calls.first().map(|call| call.number);
            assert!(first.is_none_or(|first| first == next + asked.missed));
            if asked.calls.is_empty() {
                break;
            }
            next = asked.next;
        }
        assert_eq!(seen + missed, (3 * KEPT_BYTES / 10_000) as u64);
        assert!(missed > 0 && seen * 10_000 <= KEPT_BYTES as u64);
        assert!(seen * 11_000 >= KEPT_BYTES as u64);
    }

    /// A number that the server never gave out does not make it panic.
    #[test]
    fn any_number_may_be_asked_for() {
        let tap = Tap::new();
        tap.kept().push(call(1));
        assert_eq!(ask(&tap, Some(u64::MAX)).calls.len(), 0);
        assert_eq!(ask(&tap, Some(0)).calls.len(), 1);
    }
}
