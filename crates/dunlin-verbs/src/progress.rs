//! Devices that have no hardware work on the time of threads that wait: a thread that has looked in vain for what a peer
//! was to write lets them take packets and keep their deadlines.
//!
//! A NIC writes memory whether anybody polls or not, and code above the wall relies on that where it polls memory. A
//! software device could do the same with a thread of its own, at the price of a switch between threads for each
//! message; here the thread that waits does the work itself. Where all devices are hardware, or store into memory of
//! their peers, this is one load.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, Weak};

/// A device that needs time of a processor.
pub trait Progress: Send + Sync {
    /// Does what can be done now, without waiting; nothing when another thread is at it.
    fn progress(&self);
}

static COUNT: AtomicUsize = AtomicUsize::new(0);
static DEVICES: RwLock<Vec<Weak<dyn Progress>>> = RwLock::new(Vec::new());

/// Has a device work whenever a thread of this process looks in vain, for as long as it lives.
pub fn register(device: Weak<dyn Progress>) {
    let mut devices = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
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

#[cold]
#[inline(never)]
fn progress_all() {
    // Who registers one waits for nobody.
    let Ok(devices) = DEVICES.try_read() else {
        return;
    };
    for device in devices.iter().filter_map(Weak::upgrade) {
        device.progress();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::thread;

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
                start.elapsed() < Duration::from_secs(10),
                "the list keeps a device alive"
            );
            thread::idle(Duration::ZERO, false);
        }
    }
}
