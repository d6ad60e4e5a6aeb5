//! The only hook for work that is not a verb (design §3.4): it costs virtual time on a simulated core, and nothing on a
//! real one.
//!
//! Code above the verbs layer calls [`crate::Device::charge`], which has an empty body on every device that runs in
//! real time, so the compiler removes the call and everything computed only for it.

/// Work done by a core. The parameters of the simulated host determine its cost; see `docs/sim.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Copied this many bytes between buffers.
    Copy(usize),
    /// Polled memory that a peer may have written, and found nothing new.
    Poll,
    /// Executed this many instructions of its own, other than verbs, copies and empty polls.
    Instructions(u32),
    /// Computed for this many nanoseconds: a handler, the application.
    Compute(u64),
    /// An atomic, a store or a load of a cache line that another core of this host wrote last.
    SharedLine,
    /// Read a message that a device wrote: its first line comes from the last-level cache, or from memory on hosts
    /// where devices do not write to the cache.
    Arrived,
    /// Switched between user-level threads.
    Switch,
}
