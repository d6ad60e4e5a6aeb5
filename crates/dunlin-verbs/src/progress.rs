//! Devices that have no hardware work on the time of threads that wait: a thread that has looked in vain for what a
//! peer was to write lets them take packets and keep their deadlines.
//!
//! A NIC writes memory whether anybody polls or not, and code above the wall relies on that where it polls memory. A
//! software device could do the same with a thread of its own, at the price of a switch between threads for each
//! message; here the thread that waits does the work itself. Where all devices are hardware, or store into memory of
//! their peers, this is one load.
//!
//! A simulated thread does not look again and again, it rests until there is news, so its host's devices of this kind
//! are told before it rests ([`Attended`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::process::PerProcess;
use crate::thread;

/// A device that needs time of a processor.
pub trait Progress: Send + Sync {
    /// Does what can be done now, without waiting; nothing when another thread is at it.
    fn progress(&self);
    /// As [`Progress::progress`], unless that has just found something; says whether it did it.
    fn catch_up(&self) -> bool {
        self.progress();
        true
    }
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Of this process alone: a child's threads do not work for its parent's devices, and one of the parent's may have held
/// the lock when it was forked.
static DEVICES: PerProcess<RwLock<Vec<Weak<dyn Progress>>>> = PerProcess::new();

/// Has a device work whenever a thread of this process looks in vain, for as long as it lives.
pub fn register(device: Weak<dyn Progress>) {
    let devices = DEVICES.get().write();
    let mut devices = devices.unwrap_or_else(PoisonError::into_inner);
    devices.retain(|device| device.strong_count() > 0);
    devices.push(device);
    COUNT.store(devices.len(), Ordering::Release);
}

/// Lets the devices work that need it. [`crate::thread::idle`] and its sisters do.
#[inline(always)]
pub fn progress() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        progress_all();
    }
}

/// The same for who has not looked for a while, and is about to act on what it knows; says whether any device worked.
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
    // Who registers one waits for nobody.
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

/// A device has moved a part of a long message on the calling thread's time. Packets that hold whole messages do not
/// count: where many threads wait, one would look on for as long as anything comes for any of them.
#[inline]
pub fn note_moved() {
    MOVED.set(MOVED.get().wrapping_add(1));
}

/// How often devices have moved parts of long messages on the calling thread's time, modulo 2^32. A message is none
/// before all its packets are there: who waits for a long one is not idle while this grows, though nothing has come.
#[inline]
pub fn moved() -> u32 {
    MOVED.get()
}

/// A device on a simulated host that needs time of a processor there.
pub trait Attended: Send + Sync {
    /// The calling thread, of the device's host, has looked in vain and is about to rest for `at_most`. Does what can
    /// be done now. `None`: there was something, so the thread looks again. Else for how long it may rest; it is woken
    /// before when something comes to the device.
    fn before_rest(&self, at_most: Duration) -> Option<Duration>;
}

static SIMULATED_COUNT: AtomicUsize = AtomicUsize::new(0);
static SIMULATED_DEVICES: RwLock<Vec<(u64, Weak<dyn Attended>)>> = RwLock::new(Vec::new());

/// Tells a device of a simulated host ([`crate::Simulation::host`]) before a thread of that host rests.
pub fn register_simulated(host: u64, device: Weak<dyn Attended>) {
    let all = SIMULATED_DEVICES.write();
    let mut all = all.unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, device)| device.strong_count() > 0);
    all.push((host, device));
    SIMULATED_COUNT.store(all.len(), Ordering::Release);
}

/// What a simulated thread does before it rests: see [`Attended::before_rest`].
#[inline]
pub(crate) fn before_rest(host: u64, at_most: Duration) -> Option<Duration> {
    if SIMULATED_COUNT.load(Ordering::Relaxed) == 0 {
        return Some(at_most);
    }
    before_rest_of(host, at_most)
}

#[cold]
fn before_rest_of(host: u64, mut at_most: Duration) -> Option<Duration> {
    // Others may run while a device works, so the list is not held.
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
        // Other tests of this process wait as well, and who lets a device work holds it for that moment.
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
