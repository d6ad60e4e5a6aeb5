//! A thread's place in the queue, the states that it goes through, and the copy of its run.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

use super::Run;
use crate::channel::one_sided::OneSided;
use crate::channel::short_copy::copy;
use crate::sharing::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, UnsafeCell};

/// Not in a queue.
pub(super) const IDLE: u32 = 0;
/// In the queue, with its run set.
pub(super) const WAITING: u32 = 1;
/// The leader has given the thread room.
pub(super) const GRANTED: u32 = 2;
/// The thread copies.
pub(super) const COPYING: u32 = 3;
/// The thread has copied (FLOCK's copy-completion flag).
pub(super) const COPIED: u32 = 4;
/// The leader copies for the thread.
pub(super) const SEIZED: u32 = 5;
/// The thread leads.
pub(super) const LEADS: u32 = 6;
/// The thread was served; the outcome is added.
pub(super) const SERVED: u32 = 8;

/// A thread's place in a queue. It may move between threads, but belongs to one at a time.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) state: AtomicU32,
    pub(super) next: AtomicPtr<Node>,
    /// The run, as set by its owner.
    pub(super) bytes: AtomicPtr<u8>,
    pub(super) length: AtomicUsize,
    pub(super) messages: AtomicU32,
    pub(super) requests: AtomicU32,
    pub(super) operations: AtomicPtr<OneSided>,
    pub(super) operations_count: AtomicUsize,
    /// Where the run is copied to.
    pub(super) room: AtomicPtr<u8>,
    /// Represents the bytes under the model checker, which tracks accesses to it.
    pub(super) witness: UnsafeCell<()>,
    pub(super) one_thread: PhantomData<Cell<()>>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            next: AtomicPtr::new(null_mut()),
            bytes: AtomicPtr::new(null_mut()),
            length: AtomicUsize::new(0),
            messages: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            operations: AtomicPtr::new(null_mut()),
            operations_count: AtomicUsize::new(0),
            room: AtomicPtr::new(null_mut()),
            witness: UnsafeCell::new(()),
            one_thread: PhantomData,
        }
    }

    /// Sets the run before the node is queued: no other thread sees it yet.
    #[inline]
    pub(super) fn prepare(&self, run: Run<'_>) {
        assert_eq!(
            self.state.load(Ordering::Relaxed),
            IDLE,
            "a node is in one queue at a time"
        );
        self.witness.with_mut(|_| ());
        self.bytes
            .store(run.bytes.as_ptr().cast_mut(), Ordering::Relaxed);
        self.length.store(run.bytes.len(), Ordering::Relaxed);
        self.messages.store(run.messages, Ordering::Relaxed);
        self.requests.store(run.requests, Ordering::Relaxed);
        self.operations
            .store(run.operations.as_ptr().cast_mut(), Ordering::Relaxed);
        self.operations_count
            .store(run.operations.len(), Ordering::Relaxed);
        self.next.store(null_mut(), Ordering::Relaxed);
        self.state.store(WAITING, Ordering::Relaxed);
    }

    /// Copies the run into its room.
    ///
    /// # Safety
    /// The caller alone has the right to the room (it is owner of a node that it made COPYING, or leader of one that it
    /// SEIZED or its own), and the run's bytes are borrowed by the call that queued the node, which has not returned.
    pub(super) unsafe fn copy(&self) {
        self.witness.with_mut(|_| ());
        let (from, to) = (
            self.bytes.load(Ordering::Relaxed),
            self.room.load(Ordering::Relaxed),
        );
        let length = self.length.load(Ordering::Relaxed);
        // SAFETY: `room` is a part of the leader's space as long as the run, which no other member has; the leader does
        // not give the space back before the copy is flagged. `from` is alive by the contract above.
        let (from, to) = unsafe {
            (
                std::slice::from_raw_parts(from, length),
                std::slice::from_raw_parts_mut(to, length),
            )
        };
        copy(to, from);
    }
}
