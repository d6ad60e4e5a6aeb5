//! Locks, time and random numbers for the other modules.

use std::sync::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use dunlin_verbs::{random, VerbsError};

/// Locks a mutex whose data remain consistent when a holder panics.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks for reading, likewise.
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    match lock.read() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks for writing, likewise.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    match lock.write() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// The time in nanoseconds of a monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Returns a random number from the system's generator, for keys, numbers and sequence numbers that must not be
/// guessable.
pub(crate) fn random_u32() -> Result<u32, VerbsError> {
    Ok(random_u64()? as u32)
}

/// The same with 64 bits.
pub(crate) fn random_u64() -> Result<u64, VerbsError> {
    random::number().map_err(system("getrandom"))
}

/// Converts a system error to an error of the verbs layer.
pub(crate) fn system<E: Into<std::io::Error>>(call: &'static str) -> impl Fn(E) -> VerbsError {
    move |error| VerbsError::System {
        call,
        source: error.into(),
    }
}
