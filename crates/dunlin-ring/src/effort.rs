//! Instruction counts of the engines' steps, without verbs, copies and empty polls.
//!
//! A simulated core is charged for them ([`Work::Instructions`]); a real one is not. They are averages of callgrind's
//! counts for `examples/instructions.rs` over `shm`, for messages of 64 B in designs of all kinds; individual designs
//! are within a fifth of them.

use dunlin_verbs::Work;

/// Making a message of a run, directly behind the previous one.
pub(crate) const MADE_QUIETLY: Work = Work::Instructions(44);
/// Making any other message: claiming a place, writing the header, checking what is due, and beginning a run.
pub(crate) const MADE: Work = Work::Instructions(175);
/// Passing slots or the tail to the device, apart from each request.
pub(crate) const HANDED_OVER: Work = Work::Instructions(200);
/// Filling in, posting and accounting for a request.
pub(crate) const REQUEST: Work = Work::Instructions(72);
/// WRITING a message that is its own tail, apart from its requests.
pub(crate) const WROTE_MESSAGE: Work = Work::Instructions(30);
/// Taking and sorting completions.
pub(crate) const COMPLETED: Work = Work::Instructions(150);
/// Polling for and finding what has arrived, and prefetching its first lines.
pub(crate) const FOUND: Work = Work::Instructions(150);
/// Reading a message adjacent to the previous one.
pub(crate) const READ_QUIETLY: Work = Work::Instructions(8);
/// Reading any other message: checking its header and freeing its slots; or beginning a run of messages.
pub(crate) const READ: Work = Work::Instructions(115);
/// Freeing slots whose bytes are zeroed, apart from writing the zeros.
pub(crate) const ZEROED: Work = Work::Instructions(40);
/// Pushing the head, apart from the request; or publishing it for a producer that READs it.
pub(crate) const GAVE_BACK: Work = Work::Instructions(33);
