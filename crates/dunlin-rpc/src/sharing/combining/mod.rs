//! The thread combining queue (FLOCK §4.2): many threads use one engine, and one of them at a time leads.
//!
//! A thread that needs the engine swaps its [`Node`] into the tail, as in an MCS lock. A thread that finds the tail
//! empty leads: it owns the engine for a *turn*. A thread that comes meanwhile follows: its node says where its bytes
//! are, and it waits. The leader gathers followers and gives each its room in the message; each copies its own bytes
//! there and raises its flag; then the leader writes one message for all. Followers beyond the leader's bound are left,
//! and the first of them leads next.
//!
//! Two things go beyond the paper. A follower that is not running does not hold up the message: after a few checks the
//! leader takes the room back and copies for it; only a follower in the middle of its copy is waited for. And a thread
//! that only wants to poll for answers leads if no other thread does ([`Combiner::try_lead`]), and serves those that
//! come meanwhile like any leader.
//!
//! This is the only module of `sharing` with unsafe code. It relies on this: a node is borrowed by the call that queues
//! it until that call has been served or has finished its own turn, on every way out, including a panic of the engine.
//! So a node in the queue is alive.
#![allow(unsafe_code)]

mod members;
mod node;

use std::ptr::null_mut;

use super::sync::{AtomicPtr, Ordering, Patience, UnsafeCell};
use crate::channel::one_sided::OneSided;
use node::{COPIED, COPYING, GRANTED, IDLE, LEADS, SERVED};

pub(crate) use members::Members;
pub(crate) use node::Node;

/// Maximum number of threads whose requests one message carries (free in the paper): the bound of a leader's turn.
pub(crate) const MOST_MEMBERS: usize = 32;
/// Number of checks of a follower's flag before the leader copies for it.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 8 };

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the message.
    Sent,
    /// There was no room or no credit: try again later.
    Full,
    /// The engine has failed.
    Lost,
}

/// Encoded messages of one thread that are sent together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// The messages.
    pub(crate) bytes: &'a [u8],
    /// Number of messages.
    pub(crate) messages: u32,
    /// Number of them that are requests, which cost credits.
    pub(crate) requests: u32,
    /// One-sided operations that go with them.
    pub(crate) operations: &'a [OneSided],
}

impl Run<'_> {
    /// The run of a thread that only polls.
    pub(crate) const NONE: Run<'static> = Run {
        bytes: &[],
        messages: 0,
        requests: 0,
        operations: &[],
    };
}

/// The queue and its engine.
#[derive(Debug)]
pub(crate) struct Combiner<E> {
    /// FLOCK's *Flock Tail*: the last node that came; null if no thread leads.
    tail: AtomicPtr<Node>,
    engine: UnsafeCell<E>,
}

// SAFETY: only the leader touches the engine, and leadership goes from thread to thread by release and acquire (the
// tail, or LEADS in the next leader's state).
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

    /// Joins with a run: as leader the thread runs `lead`, which serves the members; as follower it is served, or leads
    /// if it is left over.
    #[inline]
    pub(crate) fn join(
        &self,
        node: &Node,
        run: Run<'_>,
        lead: impl FnOnce(&mut E, &mut Members<'_>),
    ) -> Outcome {
        node.prepare(run);
        let this = std::ptr::from_ref(node).cast_mut();
        // Release: the thread after us sees our node. Acquire: the engine as the last leader left it.
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

    /// Leads if no other thread does; otherwise `None`.
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
            // SAFETY: we lead, so no other thread touches the engine before `members` ends the turn.
            lead(unsafe { &mut *engine }, &mut members);
        });
        members.own_outcome
    }

    /// The engine, when no thread can be in the queue.
    pub(crate) fn engine_mut(&mut self) -> &mut E {
        // SAFETY: `&mut self` implies that no turn is under way.
        self.engine.with_mut(|engine| unsafe { &mut *engine })
    }
}

/// Waits as a follower; `None` if it leads now.
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
