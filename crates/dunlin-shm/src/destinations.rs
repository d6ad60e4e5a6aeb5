//! Tracks whether queue pairs to which datagrams are sent are gone for good.
//!
//! Datagrams to a queue pair that does not exist are lost silently. But the control threads know: a session ends when a
//! peer's process dies, and a peer that releases a queue pair informs those that have its port. An address handle
//! contains a flag that is set on these events; checking it costs one load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::core::lock;

/// Number of entries below which unused ones are not looked for.
const FEW: usize = 64;

/// Flags of the destinations for which there are handles.
#[derive(Debug)]
pub(crate) struct Destinations(Mutex<Known>);

#[derive(Debug)]
struct Known {
    flags: HashMap<([u8; 16], u32), Weak<AtomicBool>>,
    /// Number of entries at which unused ones are removed.
    full: usize,
}

impl Destinations {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Known {
            flags: HashMap::new(),
            full: FEW,
        }))
    }

    /// The flag of a queue pair of device `uid`.
    pub(crate) fn flag(&self, uid: [u8; 16], number: u32) -> Arc<AtomicBool> {
        let mut known = lock(&self.0);
        if known.flags.len() >= known.full {
            known.flags.retain(|_, flag| flag.strong_count() > 0);
            known.full = (2 * known.flags.len()).max(FEW);
        }
        let held = known.flags.get(&(uid, number)).and_then(Weak::upgrade);
        held.unwrap_or_else(|| {
            let flag = Arc::default();
            known.flags.insert((uid, number), Arc::downgrade(&flag));
            flag
        })
    }

    /// Whether there is a handle for a queue pair of device `uid`.
    pub(crate) fn knows(&self, uid: [u8; 16]) -> bool {
        let known = lock(&self.0);
        let mut of_it = known.flags.iter().filter(|(of, _)| of.0 == uid);
        of_it.any(|(_, flag)| flag.strong_count() > 0)
    }

    /// Records that a device is gone, or, with a number, one of its queue pairs.
    pub(crate) fn are_gone(&self, uid: [u8; 16], number: Option<u32>) {
        let concerned = |of: &([u8; 16], u32)| of.0 == uid && number.is_none_or(|one| one == of.1);
        lock(&self.0).flags.retain(|of, flag| {
            if !concerned(of) {
                return true;
            }
            if let Some(flag) = flag.upgrade() {
                flag.store(true, Ordering::Release);
            }
            false
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_is_known_to_all_who_asked_before_and_nobody_else() {
        let all = Destinations::new();
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let (first, same) = (all.flag([1; 16], 7), all.flag([1; 16], 7));
        let (beside, other) = (all.flag([1; 16], 8), all.flag([2; 16], 7));
        all.are_gone([1; 16], Some(7));
        assert!(is_set(&first) && is_set(&same));
        assert!(!is_set(&beside) && !is_set(&other));
        assert!(!is_set(&all.flag([1; 16], 7)), "a number may come back");
        all.are_gone([1; 16], None);
        assert!(is_set(&beside) && !is_set(&other));
    }

    #[test]
    fn what_nobody_holds_is_forgotten() {
        let all = Destinations::new();
        let held: Vec<_> = (0..10).map(|number| all.flag([0; 16], number)).collect();
        for number in 10..100_000 {
            all.flag([0; 16], number);
        }
        assert!(lock(&all.0).flags.len() <= 2 * FEW);
        all.are_gone([0; 16], None);
        assert!(held.iter().all(|flag| flag.load(Ordering::Acquire)));
    }
}
