//! Why lanes that are in use are given up for others. One word, which every call looks at.

use std::sync::atomic::{AtomicU8, Ordering};

bitflags::bitflags! {
    /// None of them: lanes are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Reasons: u8 {
        /// Those that are one thread's alone are given up for shared ones.
        const TO_SHARE = 1;
        /// All are, because another recipe has taken this one's place.
        const REPLACED = 2;
        /// The server may ask threads for datagrams, and for rings again ([`super::datagrams`]).
        const AS_ASKED = 4;
        /// If it may, it is not followed any more: somebody works on the server's memory, which datagrams do not reach.
        const RINGS_ONLY = 8;
    }
}

/// What takes the place of a lane that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Successor {
    /// One by whichever recipe there is then.
    Another,
    /// One of the other kind beside it, for as long as the server wants that ([`super::datagrams`]).
    OtherKind,
}

/// Reasons that have come up. None of them goes away again.
#[derive(Debug, Default)]
pub(super) struct Renewal(AtomicU8);

impl Renewal {
    #[inline]
    pub(super) fn reasons(&self) -> Reasons {
        Reasons::from_bits_truncate(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn add(&self, reason: Reasons) {
        self.0.fetch_or(reason.bits(), Ordering::Relaxed);
    }
}
