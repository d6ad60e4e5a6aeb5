//! The clock of every measurement: the processor's time-stamp counter where it is invariant.

use std::sync::OnceLock;

use quanta::Clock;

/// The process's clock; the first use calibrates it (some milliseconds).
pub fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::new)
}

/// Nanoseconds of the calibrated clock; only differences mean anything.
#[inline]
pub fn now_ns() -> u64 {
    let clock = clock();
    clock.delta_as_nanos(0, clock.raw())
}
