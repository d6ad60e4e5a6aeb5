//! The one hook for work that is not a verb (design §3.4): on a simulated core it costs virtual time, on a real one
//! nothing.
//!
//! Code above the wall calls [`crate::Device::charge`], a function without a body on every device that runs in real
//! time, so the compiler removes the call and what was only computed for it.

/// What a core did. The simulated host's parameters say what it costs; see `docs/sim.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Copied this many bytes between buffers.
    Copy(usize),
    /// Looked at memory that a peer may have written and found nothing new.
    Poll,
    /// Ran so many instructions of its own: what stands between verbs, copies and looks in vain.
    Instructions(u32),
    /// Computed for this many nanoseconds: a handler, the application.
    Compute(u64),
    /// An atomic, a store or a load of a cache line that another core of this host wrote last.
    SharedLine,
    /// Read a message that a device wrote: its first line comes from the last-level cache, or from memory where devices
    /// do not write there.
    Arrived,
    /// Switched between user-level threads.
    Switch,
}
