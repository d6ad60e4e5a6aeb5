//! The cost of the steps of a call on a core, in instructions, apart from verbs, copies and unsuccessful polls.
//!
//! A simulated core is charged with them ([`Work::Instructions`]); a real one is not. Each is the number that callgrind
//! counts for the functions of its step, in simulated windows with calls of 64 B, eight outstanding, in release
//! (`examples/instructions.rs` of `dunlin-lab`); those of datagrams are the cost of a whole call, divided among its
//! steps.

use dunlin_verbs::Work;

/// Adding a request or a response to the next message.
pub(crate) const ADDED: Work = Work::Instructions(70);
/// Writing a message of a ring, without its requests.
pub(crate) const WRITTEN: Work = Work::Instructions(300);
/// Opening a message of a ring.
pub(crate) const OPENED: Work = Work::Instructions(110);
/// Dispatching a request to its handler and passing on the response, in a server's poller.
pub(crate) const SERVED: Work = Work::Instructions(500);

/// Starting a call on a thread with a channel of its own.
pub(crate) const ASKED: Work = Work::Instructions(60);
/// Taking a response on such a thread and matching it to its call.
pub(crate) const TOOK: Work = Work::Instructions(165);

/// Starting a call on a thread that leads a shared lane and sends for itself.
pub(crate) const SENT_ALONE: Work = Work::Instructions(280);
/// The same on a thread that joins the lane's queue and has taken the previous response out of its mailbox (120 of
/// these).
pub(crate) const JOINED: Work = Work::Instructions(400);
/// What the leader gathers for a message.
pub(crate) const GATHERED: Work = Work::Instructions(240);
/// A successful poll of a shared lane by its leader.
pub(crate) const LOOKED: Work = Work::Instructions(400);
/// Each response found there.
pub(crate) const ANSWERED: Work = Work::Instructions(160);
/// Passing a response to another thread.
pub(crate) const HANDED_OUT: Work = Work::Instructions(120);

/// Sealing a message for its block of a pool and WRITING it there.
pub(crate) const SEALED: Work = Work::Instructions(190);
/// Recognising a complete message in its block of a pool.
pub(crate) const WHOLE: Work = Work::Instructions(140);

/// Making and sending a single datagram.
pub(crate) const SENT: Work = Work::Instructions(520);
/// Sending datagrams together, without the cost of each.
pub(crate) const SENT_TOGETHER: Work = Work::Instructions(160);
/// The cost of each of them.
pub(crate) const SENT_EACH: Work = Work::Instructions(360);
/// Receiving a datagram and its contents.
pub(crate) const TAKEN: Work = Work::Instructions(520);
/// A packet that the client's driver numbers and keeps.
pub(crate) const NUMBERED: Work = Work::Instructions(330);
/// A packet that the client's driver receives.
pub(crate) const HEARD: Work = Work::Instructions(300);
