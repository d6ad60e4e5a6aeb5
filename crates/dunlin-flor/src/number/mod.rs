//! The two number spaces of work requests (Flor A.1.1).
//!
//! Every work request has its own *global number* ([`GlobalNumber`]), even if it retransmits another, so that it is
//! clear which of the two an acknowledgement is for. Its *reliable number* identifies its contents, and is kept by
//! retransmissions: SENDs are counted ([`SendNumber`]); a WRITE names its message and its offset in it
//! ([`WriteNumber`]).

mod write;

pub use write::{LayoutError, WriteLayout, WriteNumber};

/// Flor's GN: counts the work requests of one direction of a connection; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalNumber(pub u64);

/// Flor's RN of a SEND, as it is on the wire: 32 bits that wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendNumber(pub u32);

impl SendNumber {
    /// By how many SENDs `self` comes after `other`, the shorter way around; negative if it comes before.
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The number `sends` later.
    #[must_use]
    pub const fn plus(self, sends: u32) -> Self {
        Self(self.0.wrapping_add(sends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_numbers_wrap() {
        let last = SendNumber(u32::MAX);
        assert_eq!(last.plus(1), SendNumber(0));
        assert_eq!(last.plus(3).distance_from(last), 3);
        assert_eq!(last.distance_from(last.plus(3)), -3);
    }
}
