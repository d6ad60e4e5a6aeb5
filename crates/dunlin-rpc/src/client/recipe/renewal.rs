//! Reasons for replacing lanes that are in use. One word, which every call checks.

use std::sync::atomic::{AtomicU8, Ordering};

bitflags::bitflags! {
    /// Empty: lanes are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Reasons: u8 {
        /// Lanes of one thread each are replaced by shared ones.
        const TO_SHARE = 1;
        /// All lanes are replaced, because another recipe has replaced this one.
        const REPLACED = 2;
        /// The server may ask threads for datagrams, and for rings again ([`super::datagrams`]).
        const AS_ASKED = 4;
        /// If so, its requests are no longer followed: the client accesses the server's memory, which datagrams do not
        /// support.
        const RINGS_ONLY = 8;
    }
}

/// The replacement of a lane that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Successor {
    /// A lane made by the recipe that is current then.
    Another,
    /// A lane of the other kind in addition, for as long as the server requests it ([`super::datagrams`]).
    OtherKind,
}

/// The reasons so far. None of them is ever removed.
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
