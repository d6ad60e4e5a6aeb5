//! The deadlines of one client's calls, by the clock of this server ([`crate::call::timeout`] has the wire format).
//!
//! A caller sends how much time it had left and when, by its own clock, it sent the request. The time under way is
//! estimated as the delay beyond that of the quickest request of the last seconds, so the clocks need not be
//! synchronised: the quickest counts as having taken no time at all, and no request is assumed to have taken longer
//! than it did. Time in which a request waited because the polling thread was busy is included.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::call::timeout::{micros, Timeout, DEFAULT_PARAMETER, TIMED, TRAILER_BYTES};
use crate::channel::{ChannelError, Parameters};
use crate::error::{FailureReason, WireFailure};
use crate::HandlerId;

/// How long the quickest request counts: between once and twice this time. In that time two clocks drift apart by no
/// more than some milliseconds, and after it the estimate recovers for a client whose clock has stood still.
const QUICKEST_FOR: Duration = Duration::from_secs(5);

/// The deadline of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::server) enum Deadline {
    /// The caller did not give one.
    #[default]
    Unsaid,
    /// This long after the request was taken, which is now.
    After(Duration),
    At(Instant),
}

impl Deadline {
    /// Returns the deadline as an instant; `After` counts from now.
    pub(in crate::server) fn instant(self) -> Option<Instant> {
        match self {
            Self::Unsaid => None,
            Self::After(after) => thread::now().checked_add(after),
            Self::At(at) => Some(at),
        }
    }
}

/// A request, separated from its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Timed {
    pub(in crate::server) handler: HandlerId,
    /// Length of the payload in bytes.
    pub(in crate::server) length: usize,
    pub(in crate::server) deadline: Deadline,
    /// Whether the caller has given up already.
    pub(in crate::server) is_over: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::server) struct Deadlines {
    default: Deadline,
    quickest: Quickest,
}

impl Deadlines {
    /// For a client that sent these parameters in the handshake.
    pub(in crate::server) fn new(parameters: &Parameters) -> Self {
        let default = parameters.get(DEFAULT_PARAMETER);
        Self {
            default: default.map_or(Deadline::Unsaid, |&micros| {
                Deadline::After(Duration::from_micros(micros))
            }),
            quickest: Quickest::default(),
        }
    }

    /// The deadline of requests without a trailer.
    #[inline]
    pub(in crate::server) fn default(&self) -> Deadline {
        self.default
    }

    /// Separates a request to this handler from its trailer, and determines its deadline.
    ///
    /// # Errors
    /// If a trailer is required and missing.
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
        let words = "a request without its remaining time";
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

/// The handler that a request is for, with or without a trailer.
pub(in crate::server) fn handler_of(handler: HandlerId, request: &[u8]) -> HandlerId {
    match handler {
        TIMED => Timeout::read(request).map_or(TIMED, |timeout| timeout.handler),
        other => other,
    }
}

/// The error for a call whose deadline has passed; `begun` says whether its handler was started.
pub(in crate::server) fn expired(begun: bool) -> WireFailure {
    WireFailure::new(FailureReason::Expired, begun.into(), "")
}

/// The smallest difference between this server's clock and a client's that its recent requests have shown, modulo 2^32.
#[derive(Debug, Default)]
struct Quickest {
    /// The smallest in the interval since `since`, and in the one before.
    latest: Option<u32>,
    former: Option<u32>,
    since: Option<Instant>,
}

impl Quickest {
    /// How much longer a request took than the quickest recent one; it was sent at `sent_us` by the client's clock.
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
        // Sent before the first one, and received after it.
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
        /// For all readings of the two clocks: no request is assumed to have taken longer than it did, and the estimate
        /// recovers from a clock that stands still.
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
