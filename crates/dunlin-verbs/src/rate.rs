//! A rate limit for log lines that an unauthenticated client can cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::thread;

const MINUTE: Duration = Duration::from_secs(60);

/// Lets at most a given number through per minute, and counts the others.
#[derive(Debug)]
pub struct RateLimit {
    most: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the current minute began.
    began: Option<Instant>,
    passed: u32,
    suppressed: u64,
}

impl RateLimit {
    /// Lets `most` through per minute.
    pub const fn per_minute(most: u32) -> Self {
        Self {
            most,
            state: Mutex::new(State {
                began: None,
                passed: 0,
                suppressed: 0,
            }),
        }
    }

    /// Whether this one may pass; if so, returns how many were suppressed since the last one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(thread::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |began| now.saturating_duration_since(began) >= MINUTE;
        if state.began.is_none_or(over) {
            state.began = Some(now);
            state.passed = 0;
        }
        if state.passed >= self.most {
            state.suppressed += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_minute_and_the_others_are_counted() {
        let limit = RateLimit::per_minute(2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limit.pass_at(at(0)), Some(0));
        assert_eq!(limit.pass_at(at(1)), Some(0));
        assert_eq!(limit.pass_at(at(2)), None);
        assert_eq!(limit.pass_at(at(59)), None);
        assert_eq!(limit.pass_at(at(60)), Some(2));
        assert_eq!(limit.pass_at(at(61)), Some(0));
        assert_eq!(limit.pass_at(at(62)), None);
        assert_eq!(limit.pass_at(at(600)), Some(1));
    }
}
