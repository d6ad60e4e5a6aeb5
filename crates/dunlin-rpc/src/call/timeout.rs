//! How a call's deadline is transmitted to the server.
//!
//! In the handshake a client states the default deadline of calls on the connection ([`DEFAULT_PARAMETER`]); calls with
//! exactly this deadline carry no further information. A call with another deadline, with one below [`SHORT`], or of
//! whose time a part has passed already is sent to the handler [`TIMED`], with a trailer after its payload:
//!
//! ```text
//! payload | handler u16 | 0 u16 | time left, in microseconds u32 | when that was, by the caller's clock u32
//! ```
//!
//! So it travels on any channel like other requests, long ones too. The two clocks need not agree: a server compares
//! how long requests take with the minimum that they took (`server/deadlines.rs`).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::lane::Body;
use crate::HandlerId;

/// The handler of requests with a trailer, which contains the actual handler.
pub(crate) const TIMED: HandlerId = HandlerId::MAX - 3;
/// Length of the trailer in bytes.
pub(crate) const TRAILER_BYTES: usize = 12;
/// The handshake parameter for the default deadline of calls on a connection, in microseconds.
pub(crate) const DEFAULT_PARAMETER: &str = "call-timeout-us";
/// Calls with a shorter deadline always state when they were sent: a request may lie in the server's memory for as long
/// before it is polled.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The trailer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout {
    pub(crate) handler: HandlerId,
    /// The time left to the caller; more than 71 minutes are sent as that value.
    pub(crate) left_us: u32,
    /// When it was sent, by the caller's clock, modulo 2^32.
    pub(crate) sent_us: u32,
}

/// A clock in microseconds, modulo 2^32, with an origin of its own.
pub(crate) fn micros(now: Instant) -> u32 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    // Instants of simulated threads may be earlier than those of real ones, so the difference may be negative.
    let begin = *BEGIN.get_or_init(|| now);
    match now.checked_duration_since(begin) {
        Some(since) => since.as_micros() as u32,
        None => 0u32.wrapping_sub(begin.duration_since(now).as_micros() as u32),
    }
}

impl Timeout {
    pub(crate) fn new(handler: HandlerId, left: Duration, now: Instant) -> Self {
        Self {
            handler,
            left_us: u32::try_from(left.as_micros()).unwrap_or(u32::MAX),
            sent_us: micros(now),
        }
    }

    /// Encodes the trailer.
    pub(crate) fn encode(self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..2].copy_from_slice(&self.handler.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.left_us.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sent_us.to_le_bytes());
        bytes
    }

    /// Reads the trailer of a request that a peer wrote; `None` if it is too short to have one.
    pub(crate) fn read(request: &[u8]) -> Option<Self> {
        let (_, trailer) = request.split_last_chunk::<TRAILER_BYTES>()?;
        let &[a, b, _, _, left @ .., e, f, g, h] = trailer;
        Some(Self {
            handler: HandlerId::from_le_bytes([a, b]),
            left_us: u32::from_le_bytes(left),
            sent_us: u32::from_le_bytes([e, f, g, h]),
        })
    }
}

/// The default deadline that a client has stated to its servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told(Duration);

impl Told {
    /// For a client with this default deadline.
    pub(crate) fn new(default: Duration) -> Self {
        match default < SHORT {
            true => Self(Duration::ZERO),
            false => Self(default),
        }
    }

    /// Whether a call that starts now with this deadline needs no trailer.
    #[inline]
    pub(crate) fn is_enough(self, deadline: Duration) -> bool {
        deadline == self.0
    }

    /// What to send for a call with `deadline` from `began` on, or from now; `None` if no trailer is needed.
    #[inline]
    pub(crate) fn says(self, deadline: Duration, began: Option<Instant>) -> Option<Said> {
        match began.is_none() && self.is_enough(deadline) {
            true => None,
            false => self.says_since(deadline, began),
        }
    }

    #[cold]
    fn says_since(self, deadline: Duration, began: Option<Instant>) -> Option<Said> {
        let now = thread::now();
        let gone = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        let left = deadline.saturating_sub(gone);
        let is_enough = self.is_enough(deadline) && gone <= deadline / 8;
        (!is_enough).then_some(Said { left, now })
    }
}

/// The contents of a call's trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    left: Duration,
    now: Instant,
}

impl Said {
    /// Appends a trailer to a request to `handler`, of which a lane takes at most `longest` bytes, and returns the
    /// handler to send it to. The caller's bytes are copied into `copy`. A request that has no space for the trailer is
    /// sent without.
    pub(crate) fn put_behind<'a>(
        self,
        handler: HandlerId,
        body: Body<'a>,
        longest: usize,
        copy: &'a mut Vec<u8>,
    ) -> (HandlerId, Body<'a>) {
        let length = body.bytes().len();
        if length + TRAILER_BYTES > longest {
            return (handler, body);
        }
        let trailer = Timeout::new(handler, self.left, self.now).encode();
        match body {
            Body::Bytes(bytes) => {
                copy.clear();
                copy.reserve(length + TRAILER_BYTES);
                copy.extend_from_slice(bytes);
                copy.extend_from_slice(&trailer);
                (TIMED, Body::Bytes(copy))
            }
            Body::Buffer(mut buffer) => {
                if !buffer.resize(length + TRAILER_BYTES) {
                    return (handler, Body::Buffer(buffer));
                }
                buffer.bytes_mut()[length..].copy_from_slice(&trailer);
                (TIMED, Body::Buffer(buffer))
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_trailer_comes_back_with_any_payload(
            payload in prop::collection::vec(any::<u8>(), 0..64), handler: u16, left_us: u32, longest in 0..80usize,
        ) {
            let said = Said { left: Duration::from_micros(left_us.into()), now: Instant::now() };
            let mut copy = Vec::new();
            let (to, body) = said.put_behind(handler, Body::Bytes(&payload), longest, &mut copy);
            if payload.len() + TRAILER_BYTES > longest {
                prop_assert_eq!((to, body.bytes()), (handler, &payload[..]));
            } else {
                prop_assert_eq!(to, TIMED);
                let read = Timeout { handler, left_us, sent_us: micros(said.now) };
                prop_assert_eq!(Timeout::read(body.bytes()), Some(read));
                prop_assert_eq!(&body.bytes()[..payload.len()], &payload[..]);
            }
        }
    }

    #[test]
    fn what_the_handshake_said_is_enough_for_calls_that_begin_and_take_long() {
        let (long, short) = (Duration::from_secs(10), Duration::from_millis(20));
        let told = Told::new(long);
        let ago = |s| thread::now().checked_sub(Duration::from_secs(s));
        assert_eq!(told.says(long, None), None);
        assert_eq!(told.says(long, ago(1)), None);
        let left = told.says(long, ago(2)).unwrap().left;
        assert!(left <= Duration::from_secs(8));
        assert!(told
            .says(short, None)
            .is_some_and(|said| said.left == short));
        assert!(Told::new(short).says(short, None).is_some());
    }

    #[test]
    fn clocks_run_on_and_may_begin_anywhere() {
        let now = Instant::now();
        let later = micros(now + Duration::from_micros(1500));
        assert_eq!(later.wrapping_sub(micros(now)), 1500);
    }
}
