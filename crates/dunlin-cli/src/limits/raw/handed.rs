//! Mapped memory that two threads access in turns.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::Arc;

use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

use super::Alone;

/// Anonymous memory mapped shared, as a region between two processes is: filled, so every page is there.
#[derive(Debug)]
pub struct SharedBytes {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping is owned by this value alone, like the memory of a `Box<[u8]>`.
unsafe impl Send for SharedBytes {}

impl SharedBytes {
    /// Maps `length` bytes.
    pub fn new(length: usize) -> std::io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
            )
        }?;
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `length` mapped and zeroed bytes, borrowed from their only owner.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; no borrow outlives the owner.
        let unmapped = unsafe { munmap(self.start.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping: {unmapped:?}");
    }
}

#[derive(Debug)]
struct Baton {
    memory: UnsafeCell<SharedBytes>,
    turn: Alone<AtomicU64>,
}

// SAFETY: the memory is touched only by the one `Holder` whose turn it is; the turn passes by Release and Acquire.
unsafe impl Sync for Baton {}

/// One of two threads that take turns at the same memory.
#[derive(Debug)]
pub struct Holder {
    baton: Arc<Baton>,
    me: u64,
}

/// Two holders of one memory; the first has the first turn.
pub fn baton(memory: SharedBytes) -> (Holder, Holder) {
    let baton = Arc::new(Baton {
        memory: UnsafeCell::new(memory),
        turn: Alone(AtomicU64::new(0)),
    });
    (
        Holder {
            baton: Arc::clone(&baton),
            me: 0,
        },
        Holder { baton, me: 1 },
    )
}

impl Holder {
    /// Uses the memory and passes it on, if it is this side's turn; false when it is not.
    #[inline]
    pub fn turn(&mut self, work: impl FnOnce(&mut [u8])) -> bool {
        if self.baton.turn.0.load(Acquire) != self.me {
            return false;
        }
        // SAFETY: this side's turn, which only this side ends, below.
        work(unsafe { (*self.baton.memory.get()).bytes() });
        self.baton.turn.0.store(1 - self.me, Release);
        true
    }
}
