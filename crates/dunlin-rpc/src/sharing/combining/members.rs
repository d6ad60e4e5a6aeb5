//! What a leader does with its followers: it gathers them, has their runs copied, and releases them.

use std::ptr::null_mut;

use super::node::{Node, COPIED, GRANTED, IDLE, LEADS, SEIZED, SERVED};
use super::{Outcome, LOOKS, MOST_MEMBERS};
use crate::channel::one_sided::OneSided;
use crate::sharing::sync::{AtomicPtr, Ordering, Patience};

/// The threads that a leader serves in its turn, itself the first. Dropping this ends the turn.
pub(crate) struct Members<'a> {
    pub(super) tail: &'a AtomicPtr<Node>,
    pub(super) own: &'a Node,
    /// Whether the leader's own run is in the message, and the number of followers in it, which are behind it in the
    /// queue.
    pub(super) own_goes: bool,
    pub(super) followers: usize,
    /// The last node of the queue that belongs to this turn.
    pub(super) last: *const Node,
    /// The outcome for the followers in the message, and for the leader itself.
    pub(super) outcome: Outcome,
    pub(super) own_outcome: Outcome,
}

impl Members<'_> {
    /// Whether any thread waits for the leader.
    #[inline]
    pub(crate) fn are_waiting(&self) -> bool {
        // SAFETY: `last` is our own node or one that waits for us to serve it.
        let next = unsafe { &*self.last }.next.load(Ordering::Relaxed);
        !next.is_null()
    }

    /// Whether the leader comes with a run of its own.
    #[inline]
    pub(crate) fn leader_sends(&self) -> bool {
        self.own.messages.load(Ordering::Relaxed) > 0
    }

    /// Whether at least `count` threads wait for the leader.
    #[inline]
    pub(crate) fn have_come(&self, count: usize) -> bool {
        let mut last = self.last;
        (0..count).all(|_| {
            // SAFETY: our own node, or one that is linked and waits for us to serve it.
            last = unsafe { &*last }.next.load(Ordering::Acquire);
            !last.is_null()
        })
    }

    /// Takes the leader and its followers into the message, as long as `accept` takes their runs (bytes, messages,
    /// requests, one-sided operations) and there are at most `most`; returns their number. Threads that come later are
    /// not waited for.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        most: usize,
        mut accept: impl FnMut(usize, u32, u32, usize) -> bool,
    ) -> usize {
        let most = most.min(MOST_MEMBERS);
        let run = |node: &Node| {
            (
                node.length.load(Ordering::Relaxed),
                node.messages.load(Ordering::Relaxed),
                node.requests.load(Ordering::Relaxed),
                node.operations_count.load(Ordering::Relaxed),
            )
        };
        let (bytes, messages, requests, operations) = run(self.own);
        if messages > 0 || operations > 0 {
            if !accept(bytes, messages, requests, operations) {
                self.own_outcome = Outcome::Full;
                return 0;
            }
            self.own_goes = true;
        } else {
            self.own_outcome = Outcome::Sent;
        }
        while self.count() < most {
            // SAFETY: `last` is our own node or one that waits for us to serve it.
            let next = unsafe { &*self.last }.next.load(Ordering::Acquire);
            // SAFETY: a node is linked after it was prepared, and waits for us from then on.
            let Some(node) = (unsafe { next.as_ref() }) else {
                break;
            };
            let (bytes, messages, requests, operations) = run(node);
            if !accept(bytes, messages, requests, operations) {
                break;
            }
            self.followers += 1;
            self.last = node;
        }
        self.count()
    }

    /// The one-sided operations of the members, each thread's in its order.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &OneSided> {
        let own = self.own_goes.then_some(std::ptr::from_ref(self.own));
        let mut next = self.own.next.load(Ordering::Acquire).cast_const();
        let followers = (0..self.followers).map(move |_| {
            let node = next;
            // SAFETY: it was gathered, so it is linked and waits for us to serve it.
            next = unsafe { &*node }.next.load(Ordering::Acquire);
            node
        });
        own.into_iter().chain(followers).flat_map(|node| {
            // SAFETY: our own node, or as above; the operations are borrowed by the call that queued the node, which
            // does not return before it is served, and that is not before this turn ends. Nobody changes them.
            unsafe {
                let node = &*node;
                let start = node.operations.load(Ordering::Relaxed);
                let count = node.operations_count.load(Ordering::Relaxed);
                std::slice::from_raw_parts(start.cast_const(), count)
            }
        })
    }

    /// Whether the leader's own run found no room or no credit.
    #[inline]
    pub(crate) fn is_own_full(&self) -> bool {
        self.own_outcome == Outcome::Full
    }

    fn count(&self) -> usize {
        usize::from(self.own_goes) + self.followers
    }

    /// Runs `action` on each follower in the message. Its successor is read before, so `action` may release the
    /// follower.
    #[inline]
    fn each_follower(&self, mut action: impl FnMut(&Node)) {
        let mut node = self.own.next.load(Ordering::Acquire);
        for _ in 0..self.followers {
            // SAFETY: it was gathered, so it is linked and waits for us to serve it.
            let follower = unsafe { &*node };
            node = follower.next.load(Ordering::Acquire);
            action(follower);
        }
    }

    /// Has every member's run copied into `space`, one after the other, and waits until all are there.
    ///
    /// # Panics
    /// If the runs are longer than `space`, before any part of it was given out.
    #[inline]
    pub(crate) fn fill(&mut self, space: &mut [u8]) {
        let own = match self.own_goes {
            true => self.own.length.load(Ordering::Relaxed),
            false => 0,
        };
        let mut total = own;
        self.each_follower(|node| total += node.length.load(Ordering::Relaxed));
        assert!(total <= space.len(), "the members' runs fit into the space");
        // From the first grant to the last flag nothing panics: a follower may be writing into the space.
        let (first, mut rest) = space.split_at_mut(own);
        self.each_follower(|node| {
            let whole = std::mem::take(&mut rest);
            let (room, after) = whole.split_at_mut(node.length.load(Ordering::Relaxed));
            node.room.store(room.as_mut_ptr(), Ordering::Relaxed);
            // Release: the follower sees its room.
            node.state.store(GRANTED, Ordering::Release);
            rest = after;
        });
        if self.own_goes {
            self.own.room.store(first.as_mut_ptr(), Ordering::Relaxed);
            // SAFETY: it is our own.
            unsafe { self.own.copy() };
        }
        self.each_follower(|node| {
            Self::await_copy(node);
            node.witness.with(|_| ());
        });
    }

    fn await_copy(node: &Node) {
        let mut patience = Patience::default();
        let mut looks = 0;
        loop {
            match node.state.load(Ordering::Acquire) {
                COPIED => return,
                GRANTED if looks >= LOOKS => {
                    let seized = node.state.compare_exchange(
                        GRANTED,
                        SEIZED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    if seized.is_ok() {
                        // SAFETY: from SEIZED on its owner only waits.
                        unsafe { node.copy() };
                        return;
                    }
                }
                GRANTED => {
                    looks += 1;
                    dunlin_verbs::thread::relax();
                }
                _ => patience.pause(),
            }
        }
    }

    /// Sets the outcome that the members get at the end of the turn.
    #[inline]
    pub(crate) fn settle(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if self.own_goes {
            self.own_outcome = outcome;
        }
    }
}

impl Drop for Members<'_> {
    /// Hands leadership to the first thread that is left, then releases the members.
    fn drop(&mut self) {
        // SAFETY: `last` is our own node or a member that was not released.
        let last = unsafe { &*self.last };
        let mut next = last.next.load(Ordering::Acquire);
        if next.is_null() {
            // Release: the next leader sees the engine as we leave it.
            let left = self.tail.compare_exchange(
                self.last.cast_mut(),
                null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if left.is_err() {
                // A thread has swapped its node in and is about to link it.
                let mut patience = Patience::default();
                while next.is_null() {
                    patience.pause();
                    next = last.next.load(Ordering::Acquire);
                }
            }
        }
        // From here on the next leader may touch the queue behind `last`, and nothing before it.
        // SAFETY: a node that is linked and not served is alive.
        if let Some(next) = unsafe { next.as_ref() } {
            next.state.store(LEADS, Ordering::Release);
        }
        let outcome = SERVED
            + match self.outcome {
                Outcome::Sent => 0,
                Outcome::Full => 1,
                Outcome::Lost => 2,
            };
        // After this store a follower may be gone.
        self.each_follower(|node| node.state.store(outcome, Ordering::Release));
        self.own.state.store(IDLE, Ordering::Relaxed);
    }
}
