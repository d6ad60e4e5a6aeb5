//! What the steps of a call take of a core beside verbs, copies and looks in vain: instructions, counted.
//!
//! A simulated core is charged them ([`Work::Instructions`]); on a real one the charge is not there. Each is what
//! callgrind counts for the functions of its step, in simulated windows with calls of 64 B, eight out, in release
//! (`examples/instructions.rs` of `dunlin-lab`); those of datagrams are what a whole call takes, divided among its
//! steps.

use dunlin_verbs::Work;

/// A request or an answer put into the message that is next.
pub(crate) const ADDED: Work = Work::Instructions(70);
/// A message of a ring written, beside its requests.
pub(crate) const WRITTEN: Work = Work::Instructions(300);
/// A message of a ring opened.
pub(crate) const OPENED: Work = Work::Instructions(110);
/// A request taken to its handler and its answer back, by a server's poller.
pub(crate) const SERVED: Work = Work::Instructions(500);

/// A call begun by a thread with a channel of its own.
pub(crate) const ASKED: Work = Work::Instructions(60);
/// An answer taken by such a thread, and found to be whose it is.
pub(crate) const TOOK: Work = Work::Instructions(165);

/// A call begun by a thread that leads a shared lane, and sends for itself.
pub(crate) const SENT_ALONE: Work = Work::Instructions(280);
/// The same by a thread that comes to the lane's queue, which has taken the answer before out of its mailbox (120 of
/// these).
pub(crate) const JOINED: Work = Work::Instructions(400);
/// What the leader gathers for a message.
pub(crate) const GATHERED: Work = Work::Instructions(240);
/// A shared lane looked at by who leads, and something found.
pub(crate) const LOOKED: Work = Work::Instructions(400);
/// An answer found there.
pub(crate) const ANSWERED: Work = Work::Instructions(160);
/// An answer handed out to another thread.
pub(crate) const HANDED_OUT: Work = Work::Instructions(120);

/// A message sealed for its block of a pool and WRITTEN there.
pub(crate) const SEALED: Work = Work::Instructions(190);
/// A message found whole in its block of a pool.
pub(crate) const WHOLE: Work = Work::Instructions(140);

/// A datagram made and sent alone.
pub(crate) const SENT: Work = Work::Instructions(520);
/// Datagrams sent together, beside what each takes.
pub(crate) const SENT_TOGETHER: Work = Work::Instructions(160);
/// Each of them.
pub(crate) const SENT_EACH: Work = Work::Instructions(360);
/// A datagram taken, and what it brings.
pub(crate) const TAKEN: Work = Work::Instructions(520);
/// A packet that the client's driver numbers and keeps.
pub(crate) const NUMBERED: Work = Work::Instructions(330);
/// A packet that the client's driver hears.
pub(crate) const HEARD: Work = Work::Instructions(300);
