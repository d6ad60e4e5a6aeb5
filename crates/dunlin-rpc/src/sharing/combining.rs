//! The thread combining queue (FLOCK §4.2): many threads, one engine, and one of them at a time leads.
//!
//! A thread that wants something of the engine swaps its [`Node`] into the tail, as into an MCS lock. Whoever finds the tail empty leads:
//! the engine is its own for a *turn*. Who comes meanwhile follows: it has said where its bytes stand, and waits. The leader
//! gathers followers, gives each its room in the message, and each copies its own bytes there and raises its flag; then the leader writes
//! one message for all. Followers beyond its bound are left, and the first of them leads next.
//!
//! Ours, beyond the paper: a follower that is not running does not hold up the message. After a few looks the leader takes the room back
//! and copies for it; only a follower that is in the middle of its copy is waited for. And who only wants to look for answers comes
//! in when nobody leads ([`Combiner::try_lead`]), and serves those who come meanwhile like any leader.
//!
//! The one place of the sharing room with unsafe code. What it relies on: a node is borrowed by the call that queues it until that call has
//! been served or has finished its own turn, on every way out, a panic of the engine included. So a node in the queue is alive.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null_mut;

use crate::channel::one_sided::OneSided;
use crate::channel::outbox::copy;

use super::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, Patience, UnsafeCell};

/// Threads whose requests one message takes (free in the paper): the bound of a leader's turn.
pub(crate) const MOST_MEMBERS: usize = 32;
/// Looks at a follower's flag before the leader copies for it.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 8 };

/// Not in a queue.
const IDLE: u32 = 0;
/// In the queue, its run said.
const WAITING: u32 = 1;
/// The leader has given it room.
const GRANTED: u32 = 2;
/// It copies.
const COPYING: u32 = 3;
/// It has copied (FLOCK's copy-completion flag).
const COPIED: u32 = 4;
/// The leader copies for it.
const SEIZED: u32 = 5;
/// It leads.
const LEADS: u32 = 6;
/// It was served; the outcome is added.
const SERVED: u32 = 8;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the message.
    Sent,
    /// There was no room or no credit: try again later.
    Full,
    /// The engine is of no more use.
    Lost,
}

/// Encoded messages of one thread that go together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// The messages.
    pub(crate) bytes: &'a [u8],
    /// How many.
    pub(crate) messages: u32,
    /// How many of them are requests, which cost credits.
    pub(crate) requests: u32,
    /// One-sided operations that go with them.
    pub(crate) operations: &'a [OneSided],
}

impl Run<'_> {
    /// Of a thread that only looks.
    pub(crate) const NONE: Run<'static> = Run {
        bytes: &[],
        messages: 0,
        requests: 0,
        operations: &[],
    };
}

/// A thread's place in a queue. It may move between threads, but is of one at a time.
#[derive(Debug)]
pub(crate) struct Node {
    state: AtomicU32,
    next: AtomicPtr<Node>,
    /// The run, as its owner said it.
    bytes: AtomicPtr<u8>,
    length: AtomicUsize,
    messages: AtomicU32,
    requests: AtomicU32,
    operations: AtomicPtr<OneSided>,
    operations_count: AtomicUsize,
    /// Where it goes.
    room: AtomicPtr<u8>,
    /// Stands for the bytes under the model checker, which sees who touches it.
    witness: UnsafeCell<()>,
    one_thread: PhantomData<Cell<()>>,
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

    /// Before it is queued: nobody else sees it yet.
    #[inline]
    fn prepare(&self, run: Run<'_>) {
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
    /// The caller alone has the right to the room (it is owner of a node that it made COPYING, or leader of one that it SEIZED or
    /// its own), and the run's bytes are borrowed by the call that queued the node, which has not returned.
    unsafe fn copy(&self) {
        self.witness.with_mut(|_| ());
        let (from, to) = (
            self.bytes.load(Ordering::Relaxed),
            self.room.load(Ordering::Relaxed),
        );
        let length = self.length.load(Ordering::Relaxed);
        // SAFETY: `room` is a part of the leader's space as long as the run, which no other member has; the leader does not give the
        // space back before the copy is flagged. `from` is alive by the contract above.
        let (from, to) = unsafe {
            (
                std::slice::from_raw_parts(from, length),
                std::slice::from_raw_parts_mut(to, length),
            )
        };
        copy(to, from);
    }
}

/// The queue and the engine that it is for.
#[derive(Debug)]
pub(crate) struct Combiner<E> {
    /// FLOCK's *Flock Tail*: the last that came; null when nobody leads.
    tail: AtomicPtr<Node>,
    engine: UnsafeCell<E>,
}

// SAFETY: the engine is touched by the leader alone, and leadership goes from thread to thread by release and acquire (the tail,
// or LEADS in the next leader's state).
unsafe impl<E: Send> Sync for Combiner<E> {}
// SAFETY: a combiner that moves has no leader and no queue, because both borrow it.
unsafe impl<E: Send> Send for Combiner<E> {}

impl<E> Combiner<E> {
    pub(crate) fn new(engine: E) -> Self {
        Self {
            tail: AtomicPtr::new(null_mut()),
            engine: UnsafeCell::new(engine),
        }
    }

    /// Comes with a run: as leader it does `lead`, which serves the members; as follower it is served, or leads when it is left.
    #[inline]
    pub(crate) fn join(
        &self,
        node: &Node,
        run: Run<'_>,
        lead: impl FnOnce(&mut E, &mut Members<'_>),
    ) -> Outcome {
        node.prepare(run);
        let this = std::ptr::from_ref(node).cast_mut();
        // Release: who comes after us sees our node. Acquire: the engine as the last leader left it.
        let before = self.tail.swap(this, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: the node before ours cannot leave the queue before it has seen its successor, which is us.
            unsafe { &*before }.next.store(this, Ordering::Release);
            if let Some(outcome) = follow(node) {
                node.state.store(IDLE, Ordering::Relaxed);
                return outcome;
            }
        }
        self.turn(node, lead)
    }

    /// Leads if nobody does; `None`: somebody does.
    #[inline]
    pub(crate) fn try_lead(
        &self,
        node: &Node,
        run: Run<'_>,
        lead: impl FnOnce(&mut E, &mut Members<'_>),
    ) -> Option<Outcome> {
        if !self.tail.load(Ordering::Relaxed).is_null() {
            return None;
        }
        node.prepare(run);
        let this = std::ptr::from_ref(node).cast_mut();
        let entered =
            self.tail
                .compare_exchange(null_mut(), this, Ordering::AcqRel, Ordering::Relaxed);
        if entered.is_err() {
            node.state.store(IDLE, Ordering::Relaxed);
            return None;
        }
        Some(self.turn(node, lead))
    }

    /// The turn of a leader.
    #[inline]
    fn turn(&self, node: &Node, lead: impl FnOnce(&mut E, &mut Members<'_>)) -> Outcome {
        let mut members = Members {
            tail: &self.tail,
            own: node,
            own_goes: false,
            followers: 0,
            last: node,
            outcome: Outcome::Lost,
            own_outcome: Outcome::Lost,
        };
        self.engine.with_mut(|engine| {
            // SAFETY: we lead, so nobody else touches the engine before `members` ends the turn.
            lead(unsafe { &mut *engine }, &mut members);
        });
        members.own_outcome
    }

    /// The engine, when nobody can be in the queue.
    pub(crate) fn engine_mut(&mut self) -> &mut E {
        // SAFETY: `&mut self` says that no turn is under way.
        self.engine.with_mut(|engine| unsafe { &mut *engine })
    }
}

/// Waits as a follower: `None` when it leads now.
fn follow(node: &Node) -> Option<Outcome> {
    let mut patience = Patience::default();
    loop {
        match node.state.load(Ordering::Acquire) {
            GRANTED => {
                let ours = node.state.compare_exchange(
                    GRANTED,
                    COPYING,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if ours.is_ok() {
                    // SAFETY: we own the node and made it COPYING, so the leader waits for us.
                    unsafe { node.copy() };
                    // Release: the leader sees the bytes when it sees the flag.
                    node.state.store(COPIED, Ordering::Release);
                }
            }
            LEADS => return None,
            served if served >= SERVED => {
                return Some(match served - SERVED {
                    0 => Outcome::Sent,
                    1 => Outcome::Full,
                    _ => Outcome::Lost,
                });
            }
            _ => patience.pause(),
        }
    }
}

/// Those whom a leader serves in its turn, itself the first of them. Its end is the end of the turn.
pub(crate) struct Members<'a> {
    tail: &'a AtomicPtr<Node>,
    own: &'a Node,
    /// The leader's own run is in the message, and so many followers', which stand behind it in the queue.
    own_goes: bool,
    followers: usize,
    /// The last node of the queue that this turn has to do with.
    last: *const Node,
    /// What the followers in the message are told, and the leader itself.
    outcome: Outcome,
    own_outcome: Outcome,
}

impl Members<'_> {
    /// Whether somebody waits for the leader.
    #[inline]
    pub(crate) fn are_waiting(&self) -> bool {
        // SAFETY: `last` is our own node or one that waits for us to serve it.
        let next = unsafe { &*self.last }.next.load(Ordering::Relaxed);
        !next.is_null()
    }

    /// Takes the leader and its followers into the message, as long as `accept` takes their runs (bytes, messages, requests, one-sided
    /// operations) and there are not more than `most`; says how many there are. Whoever comes later is not waited for.
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
            // SAFETY: our own node, or as above; the operations are borrowed by the call that queued the node, which does not return
            // before it is served, and that is not before this turn ends. Nobody changes them.
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

    /// Does something with each follower in the message. Its successor is known before, so `action` may let it go.
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

    /// Has every member's run copied into `space`, one behind the other, and waits until all are there.
    ///
    /// # Panics
    /// When the runs are longer than `space`, before anybody was given any of it.
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

    /// What the members are told at the end of the turn.
    #[inline]
    pub(crate) fn settle(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if self.own_goes {
            self.own_outcome = outcome;
        }
    }
}

impl Drop for Members<'_> {
    /// Hands leadership to the first who is left, then lets the members go.
    fn drop(&mut self) {
        // SAFETY: `last` is our own node or a member that was not let go.
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
                // Somebody has swapped itself in and is about to link itself.
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
