//! The word before each item: whether it is locked, by whom, whether it holds a key, and its version.
//!
//! From the top: one bit for the lock, one for the presence of a key, 14 for the owner of the lock, 48 for the version.
//! Each insert, update and delete of the place raises the version. It never decreases while the table exists, except
//! where changes decided by another table are applied ([`Table::apply`](crate::Table::apply)).

/// The maximum version.
pub const MAX_VERSION: u64 = VERSION;
/// The maximum owner of a lock.
pub const MAX_OWNER: u16 = WRITER - 1;
/// The owner of an item while an operation of the table itself changes it.
pub const WRITER: u16 = (1 << 14) - 1;

const LOCK: u64 = 1 << 63;
const PRESENT: u64 = 1 << 62;
const OWNER_SHIFT: u32 = 48;
const VERSION: u64 = (1 << OWNER_SHIFT) - 1;

/// An item's header as it is stored in memory (little-endian on x86-64; the word has the byte order of the server's
/// machine).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// Creates an unlocked header. The bits of a version above [`MAX_VERSION`] are lost.
    #[must_use]
    pub fn new(version: u64, present: bool) -> Self {
        Self((version & VERSION) | if present { PRESENT } else { 0 })
    }

    /// Whether the item is locked: its value may be changing.
    #[inline]
    pub fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Whether the place holds a key.
    #[inline]
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// The owner of the lock; 0 if the item is not locked.
    pub fn owner(self) -> u16 {
        (self.0 >> OWNER_SHIFT) as u16 & WRITER
    }

    /// Number of changes of the place.
    #[inline]
    pub fn version(self) -> u64 {
        self.0 & VERSION
    }

    /// Returns the header locked by `owner`, with the same version.
    #[must_use]
    pub fn locked_by(self, owner: u16) -> Self {
        Self((self.0 & (PRESENT | VERSION)) | LOCK | (u64::from(owner & WRITER) << OWNER_SHIFT))
    }

    /// Returns the header without the lock, with the same version.
    #[must_use]
    pub fn unlocked(self) -> Self {
        Self(self.0 & (PRESENT | VERSION))
    }

    /// Returns the header after a change, without the lock: the version is raised, and the place holds a key or not.
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
