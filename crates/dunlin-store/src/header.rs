//! The word before each item: whether it is locked, by whom, whether it holds a key, and its version.
//!
//! From the top: one bit for the lock, one for the presence of a key, 14 for the owner of the lock, 48 for the version.
//! The version is raised by each insert, update and delete of the place, and never goes back while the table lives, but
//! where what another table has decided is applied ([`Table::apply`](crate::Table::apply)).

/// The highest version.
pub const MAX_VERSION: u64 = VERSION;
/// The largest owner of a lock.
pub const MAX_OWNER: u16 = WRITER - 1;
/// The owner that an item has while an operation of the table itself changes it.
pub const WRITER: u16 = (1 << 14) - 1;

const LOCK: u64 = 1 << 63;
const PRESENT: u64 = 1 << 62;
const OWNER_SHIFT: u32 = 48;
const VERSION: u64 = (1 << OWNER_SHIFT) - 1;

/// An item's header, as it stands in memory (little-endian on x86-64; the word is in the order of the server's
/// machine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// Without a lock. Of a version above [`MAX_VERSION`] the upper bits are lost.
    #[must_use]
    pub fn new(version: u64, present: bool) -> Self {
        Self((version & VERSION) | if present { PRESENT } else { 0 })
    }

    /// Whether somebody has the item's lock: its value may be changing.
    #[inline]
    pub fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Whether the place holds a key.
    #[inline]
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Who has the lock; 0 where nobody has.
    pub fn owner(self) -> u16 {
        (self.0 >> OWNER_SHIFT) as u16 & WRITER
    }

    /// How often the place was changed.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 & VERSION
    }

    /// Locked by `owner`, the version as it was.
    #[must_use]
    pub fn locked_by(self, owner: u16) -> Self {
        Self((self.0 & (PRESENT | VERSION)) | LOCK | (u64::from(owner & WRITER) << OWNER_SHIFT))
    }

    /// Without the lock, the version as it was.
    #[must_use]
    pub fn unlocked(self) -> Self {
        Self(self.0 & (PRESENT | VERSION))
    }

    /// Changed and without the lock: the version is raised, and the place holds a key or none.
    #[must_use]
    pub fn changed(self, present: bool) -> Self {
        Self::new(self.version().wrapping_add(1), present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_and_version_do_not_disturb_each_other() {
        let old = Header(VERSION | PRESENT);
        let locked = old.locked_by(MAX_OWNER);
        assert!(locked.is_locked() && locked.is_present() && !locked.changed(false).is_present());
        assert_eq!(
            (locked.owner(), locked.version(), locked.unlocked()),
            (MAX_OWNER, VERSION, old)
        );
        assert_eq!(locked.changed(true), Header(PRESENT));
    }
}
