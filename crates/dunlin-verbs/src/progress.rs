//! Progress of devices without hardware, which run on the time of waiting threads: after an empty poll, a thread lets
//! them take packets and handle their timers.
//!
//! A NIC writes memory whether anybody polls or not, and code above the verbs layer relies on that where it polls
//! memory. A software device could do the same with a thread of its own, at the cost of a thread switch for each
//! message; here the waiting thread does the work itself. If all devices are hardware, or store into memory of their
//! peers, this costs one load.
//!
//! A simulated thread does not poll repeatedly but rests until something arrives, so such devices of its host are
//! called before it rests ([`Attended`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::process::PerProcess;
use crate::thread;

/// A device that needs processor time.
pub trait Progress: Send + Sync {
    /// Does what can be done now, without waiting; does nothing if another thread is already doing it.
    fn progress(&self);
    /// As [`Progress::progress`], except if the last call has just found something; returns whether it did any work.
    fn catch_up(&self) -> bool {
        self.progress();
        true
    }
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Separate for each process: a child's threads do not work for its parent's devices, and a thread of the parent may
/// have held the lock at the time of the fork.
static DEVICES: PerProcess<RwLock<Vec<Weak<dyn Progress>>>> = PerProcess::new();

/// Registers a device, which then makes progress on each empty poll of any thread of this process, for as long as it
/// lives.
pub fn register(device: Weak<dyn Progress>) {
    let devices = DEVICES.get().write();
    let mut devices = devices.unwrap_or_else(PoisonError::into_inner);
    devices.retain(|device| device.strong_count() > 0);
    devices.push(device);
    COUNT.store(devices.len(), Ordering::Release);
}

/// Lets all registered devices make progress. Called by [`crate::thread::idle`] and related functions.
#[inline(always)]
pub fn progress() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        progress_all();
    }
}

/// The same for a thread that has not polled for a while and is about to act on what it knows; returns whether any
/// device did any work.
#[inline]
pub fn catch_up() -> bool {
    let mut worked = false;
    if COUNT.load(Ordering::Relaxed) != 0 && !thread::is_simulated() {
        for_each(|device| worked |= device.catch_up());
    }
    worked
}

#[cold]
#[inline(never)]
fn progress_all() {
    for_each(|device| device.progress());
}

fn for_each(mut action: impl FnMut(&dyn Progress)) {
    // The list is locked for writing only to register a device, so do not wait for it.
    let Ok(devices) = DEVICES.get().try_read() else {
        return;
    };
    for device in devices.iter().filter_map(Weak::upgrade) {
        action(&*device);
    }
}

thread_local! {
    static MOVED: Cell<u32> = const { Cell::new(0) };
}

/// Records that a device moved a part of a long message on the calling thread's time. Packets that hold whole messages
/// do not count: with many waiting threads, one of them would otherwise keep polling for as long as anything arrives
/// for any of them.
#[inline]
pub fn note_moved() {
    MOVED.set(MOVED.get().wrapping_add(1));
}

/// How often devices have moved parts of long messages on the calling thread's time, modulo 2^32. A long message is
/// delivered only when all its packets have arrived: a thread that waits for one is not idle while this count grows,
/// even though nothing has been delivered.
#[inline]
pub fn moved() -> u32 {
    MOVED.get()
}

/// A device on a simulated host that needs processor time there.
pub trait Attended: Send + Sync {
    /// Called when the calling thread, of the device's host, has polled in vain and is about to rest for `at_most`.
    /// Does what can be done now. Returns `None` if there was something, so that the thread polls again, else how long
    /// it may rest; it is woken earlier if something arrives at the device.
    fn before_rest(&self, at_most: Duration) -> Option<Duration>;
}

static SIMULATED_COUNT: AtomicUsize = AtomicUsize::new(0);
static SIMULATED_DEVICES: RwLock<Vec<(u64, Weak<dyn Attended>)>> = RwLock::new(Vec::new());

/// Registers a device of a simulated host ([`crate::Simulation::host`]), which is then called before a thread of that
/// host rests.
pub fn register_simulated(host: u64, device: Weak<dyn Attended>) {
    let all = SIMULATED_DEVICES.write();
    let mut all = all.unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, device)| device.strong_count() > 0);
    all.push((host, device));
    SIMULATED_COUNT.store(all.len(), Ordering::Release);
}

/// Called before a simulated thread rests: see [`Attended::before_rest`].
#[inline]
pub(crate) fn before_rest(host: u64, at_most: Duration) -> Option<Duration> {
    if SIMULATED_COUNT.load(Ordering::Relaxed) == 0 {
        return Some(at_most);
    }
    before_rest_of(host, at_most)
}

#[cold]
fn before_rest_of(host: u64, mut at_most: Duration) -> Option<Duration> {
    // Other threads may run while a device works, so the list is not locked meanwhile.
    let devices: Vec<Arc<dyn Attended>> = {
        let all = SIMULATED_DEVICES.read();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let here = all.iter().filter(|(of, _)| *of == host);
        here.filter_map(|(_, device)| device.upgrade()).collect()
    };
    let mut found = false;
    for device in devices {
        match device.before_rest(at_most) {
            Some(least) => at_most = at_most.min(least),
            None => found = true,
        }
    }
    (!found).then_some(at_most)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    struct Counting(AtomicUsize);

    impl Progress for Counting {
        fn progress(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_device_works_while_somebody_waits_and_as_long_as_it_lives() {
        let device = Arc::new(Counting(AtomicUsize::new(0)));
        let weak = Arc::downgrade(&device);
        register(weak.clone());
        thread::idle(Duration::ZERO, false);
        thread::stand_by(Duration::ZERO, 0);
        thread::missed();
        assert!(device.0.load(Ordering::Relaxed) >= 3);
        drop(device);
        // Other tests of this process wait as well, and a thread that lets a device work holds it meanwhile.
        let start = Instant::now();
        while weak.strong_count() > 0 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the list keeps a device alive"
            );
            thread::idle(Duration::ZERO, false);
        }
    }
}
