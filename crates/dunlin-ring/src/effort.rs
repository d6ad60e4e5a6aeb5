//! What the steps of the engines take of a core beside verbs, copies and looks in vain: instructions, counted.
//!
//! A simulated core is charged them ([`Work::Instructions`]); on a real one the charge is not there. They are averages
//! of what callgrind counts in `examples/instructions.rs` over `shm`, for messages of 64 B in designs of all kinds; a
//! design by itself is within a fifth of them.

use dunlin_verbs::Work;

/// A message of a run: made where the last one ends.
pub(crate) const MADE_QUIETLY: Work = Work::Instructions(44);
/// Any other message made: a place claimed, a header, what is due looked at, and a run begun.
pub(crate) const MADE: Work = Work::Instructions(175);
/// Slots or the tail handed to the device, beside each request.
pub(crate) const HANDED_OVER: Work = Work::Instructions(200);
/// A request filled in, posted and kept account of.
pub(crate) const REQUEST: Work = Work::Instructions(72);
/// A message that is its own tail WRITTEN, beside its requests.
pub(crate) const WROTE_MESSAGE: Work = Work::Instructions(30);
/// Completions taken and sorted.
pub(crate) const COMPLETED: Work = Work::Instructions(150);
/// What has arrived looked for and found, and its first lines asked for.
pub(crate) const FOUND: Work = Work::Instructions(150);
/// A message read that lies side by side with the one before.
pub(crate) const READ_QUIETLY: Work = Work::Instructions(8);
/// Any other message read: its header checked, its slots given back; or a run of messages begun.
pub(crate) const READ: Work = Work::Instructions(115);
/// Slots given back whose bytes are zeroed, beside writing the zeros.
pub(crate) const ZEROED: Work = Work::Instructions(40);
/// The head pushed, beside the request; or published for who READs it.
pub(crate) const GAVE_BACK: Work = Work::Instructions(33);
