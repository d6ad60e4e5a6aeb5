//! Names of calls: the caller names a call, and the response carries the same name.
//!
//! `generation | slot (16 bits)`: the slot is a place in the caller's table of calls, and each call in it has a new
//! generation, so that a late response is never attributed to another call. Generations have 16 bits where a name has
//! to fit into a short header of a ring, otherwise 32. (Threads that share lanes encode more in their names; see
//! `sharing/calls.rs`.)

/// A call's name.
pub(crate) type CallId = u64;

/// Number of bits of the slot.
pub(crate) const SLOT_BITS: u32 = 16;
/// Maximum number of slots.
pub(crate) const MOST_SLOTS: usize = 1 << SLOT_BITS;

/// The call of this generation in a slot.
#[inline]
pub(crate) fn call_id(slot: u32, generation: u32) -> CallId {
    debug_assert!((slot as usize) < MOST_SLOTS);
    u64::from(slot) | u64::from(generation) << SLOT_BITS
}

/// The slot of a call, whichever table named it.
#[inline]
pub(crate) fn slot_of(call: CallId) -> usize {
    call as usize & (MOST_SLOTS - 1)
}

/// The generation of a call, whichever table named it.
#[inline]
pub(crate) fn generation_of(call: CallId) -> u32 {
    (call >> SLOT_BITS) as u32
}
