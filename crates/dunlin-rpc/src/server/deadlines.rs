//! When the callers of one client give up, by the clock of this server ([`crate::call::timeout`] has the wire).
//!
//! A caller says how much time it had left when it sent the request, by its own clock. How long the request was on its
//! way is how much later it is here than the quickest of the last seconds were, so the clocks need not agree: the
//! quickest takes no time at all in this reckoning, and none is thought to have taken longer than it did. Where a
//! request lay unseen because the thread that polls was busy, it shows here.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::call::timeout::{micros, Timeout, DEFAULT_PARAMETER, TIMED, TRAILER_BYTES};
use crate::channel::{ChannelError, Parameters};
use crate::error::{FailureReason, WireFailure};
use crate::HandlerId;

/// For how long the quickest request counts, from once to twice: in that time two clocks part by no more than some
/// milliseconds, and after that a client whose clock has stood still is believed again.
const QUICKEST_FOR: Duration = Duration::from_secs(5);

/// When a caller gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) enum Deadline {
    /// It did not say.
    #[default]
    Unsaid,
    /// So long after the request was taken, which is now.
    After(Duration),
    At(Instant),
}

impl Deadline {
    /// As an instant; one that is counted from the taking of the request is counted from now.
    pub(in crate::server) fn instant(self) -> Option<Instant> {
        match self {
            Self::Unsaid => None,
            Self::After(after) => thread::now().checked_add(after),
            Self::At(at) => Some(at),
        }
    }
}

/// A request and its trailer, apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Timed {
    pub(in crate::server) handler: HandlerId,
    /// Bytes of the payload.
    pub(in crate::server) length: usize,
    pub(in crate::server) deadline: Deadline,
    /// The caller has given up already.
    pub(in crate::server) is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Deadlines {
    default: Deadline,
    quickest: Quickest,
}

impl Deadlines {
    /// Of a client that has said this in the handshake.
    pub(in crate::server) fn new(parameters: &Parameters) -> Self {
        let default = parameters.get(DEFAULT_PARAMETER);
        Self {
            default: default.map_or(Deadline::Unsaid, |&micros| {
                Deadline::After(Duration::from_micros(micros))
            }),
            quickest: Quickest::default(),
        }
    }

    /// Of requests without a trailer.
    #[inline]
    pub(in crate::server) fn default(&self) -> Deadline {
        self.default
    }

    /// What is to be done for a request to this handler.
    ///
    /// # Errors
    /// When it lacks the trailer that it must have.
    #[inline]
    pub(in crate::server) fn of(
        &mut self,
        handler: HandlerId,
        request: &[u8],
    ) -> Result<Timed, ChannelError> {
        if handler == TIMED {
            return self.timed(request);
        }
        Ok(Timed {
            handler,
            length: request.len(),
            deadline: self.default,
            is_over: false,
        })
    }

    #[inline(never)]
    fn timed(&mut self, request: &[u8]) -> Result<Timed, ChannelError> {
        let words = "a request without the time that it has";
        let timeout = Timeout::read(request).ok_or_else(|| ChannelError::violation(words))?;
        let now = thread::now();
        let took = self.quickest.took(timeout.sent_us, now);
        let left = Duration::from_micros(timeout.left_us.into()).checked_sub(took);
        let left = left.filter(|left| !left.is_zero());
        let deadline = left.and_then(|left| now.checked_add(left));
        Ok(Timed {
            handler: timeout.handler,
            length: request.len() - TRAILER_BYTES,
            deadline: deadline.map_or(Deadline::Unsaid, Deadline::At),
            is_over: left.is_none(),
        })
    }
}

/// Which handler a request is for, trailer or not.
pub(in crate::server) fn handler_of(handler: HandlerId, request: &[u8]) -> HandlerId {
    match handler {
        TIMED => Timeout::read(request).map_or(TIMED, |timeout| timeout.handler),
        other => other,
    }
}

/// What a caller is told whose time is up: its handler has `begun`, or will not be run.
pub(in crate::server) fn expired(begun: bool) -> WireFailure {
    WireFailure::new(FailureReason::Expired, begun.into(), "")
}

/// The least difference between this server's clock and a client's that was seen of its requests lately, modulo 2^32.
#[derive(Debug, Default)]
struct Quickest {
    /// Of the time since `since`, and of the one before.
    latest: Option<u32>,
    former: Option<u32>,
    since: Option<Instant>,
}

impl Quickest {
    /// How long a request took beyond the quickest of late that was sent at `sent_us` by the client's clock.
    fn took(&mut self, sent_us: u32, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= QUICKEST_FOR {
            self.former = self.latest.take().filter(|_| age < 2 * QUICKEST_FOR);
            self.since = Some(now);
        }
        let difference = micros(now).wrapping_sub(sent_us);
        let behind = |than: u32| difference.wrapping_sub(than) as i32;
        if self.latest.is_none_or(|least| behind(least) < 0) {
            self.latest = Some(difference);
        }
        let known = [self.latest, self.former].into_iter().flatten();
        let most = known.map(behind).max().unwrap_or(0);
        Duration::from_micros(u64::try_from(most).unwrap_or(0))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn request(left: Duration, sent: Instant) -> Vec<u8> {
        let trailer = Timeout::new(7, left, sent).encode();
        [&b"payload"[..], &trailer].concat()
    }

    fn client(default: Option<Duration>) -> Deadlines {
        let said = default.map(|d| (DEFAULT_PARAMETER.to_owned(), d.as_micros() as u64));
        Deadlines::new(&said.into_iter().collect())
    }

    #[test]
    fn requests_without_a_trailer_have_what_the_handshake_said() {
        let said = client(Some(10 * MS)).of(3, b"payload").unwrap();
        assert_eq!((said.handler, said.length), (3, 7));
        assert_eq!(said.deadline, Deadline::After(10 * MS));
        assert_eq!(client(None).of(3, b"").unwrap().deadline, Deadline::Unsaid);
        assert!(client(None).of(TIMED, b"too short").is_err());
    }

    #[test]
    fn what_lay_here_longer_than_it_had_is_over() {
        let mut client = client(None);
        let now = thread::now();
        let fresh = client.of(TIMED, &request(20 * MS, now)).unwrap();
        assert_eq!((fresh.handler, fresh.length, fresh.is_over), (7, 7, false));
        let Deadline::At(at) = fresh.deadline else {
            panic!("it was said");
        };
        assert!(at >= now + 20 * MS);
        // Sent before the first one, and here after it.
        let late = client.of(TIMED, &request(20 * MS, now - 30 * MS)).unwrap();
        assert!(late.is_over);
        let late = client.of(TIMED, &request(20 * MS, now - 5 * MS)).unwrap();
        assert!(!late.is_over);
        assert!(
            client
                .of(TIMED, &request(Duration::ZERO, now))
                .unwrap()
                .is_over
        );
    }

    proptest! {
        /// Whatever the two clocks show: none is thought to have taken longer than it did, and a standing clock is
        /// forgiven.
        #[test]
        fn no_request_is_thought_older_than_it_is(
            offset: u32, steps in prop::collection::vec((0u64..3_000_000, 0u64..200_000), 1..60)
        ) {
            let mut quickest = Quickest::default();
            let mut now = Instant::now();
            for (step, took) in steps {
                now += Duration::from_micros(step);
                let sent = micros(now).wrapping_sub(took as u32).wrapping_add(offset);
                prop_assert!(quickest.took(sent, now) <= Duration::from_micros(took));
            }
        }

        #[test]
        fn a_clock_that_stood_still_is_believed_again(stood_s in 1u64..2000) {
            let mut quickest = Quickest::default();
            let begin = Instant::now();
            let sent = micros(begin);
            quickest.took(sent, begin);
            let mut took = Duration::MAX;
            for step in 0..4 {
                let now = begin + Duration::from_secs(stood_s + 5 * step);
                let sent = sent.wrapping_add(5_000_000 * step as u32);
                took = quickest.took(sent, now);
            }
            prop_assert_eq!(took, Duration::ZERO);
        }
    }
}
