//! What a participant asks of the table below it.
use crate::membership::Epoch;
use crate::types::{Key, Place, Raised, TransactionId, Update, Value, Version};

/// A key as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value, or nothing where there is none.
    pub value: Option<Value>,
    /// The version, of the same moment as the value unless it is locked.
    pub version: Version,
    /// Who holds the lock.
    pub owner: Option<TransactionId>,
    /// What the lock has raised, where it has made room for a key that was absent.
    pub raised: Option<Raised>,
    /// Where it lies. A key that is absent has a header too, which changes when it is inserted.
    pub place: Place,
}

/// Why a key was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another transaction holds the lock.
    #[error("locked by transaction {0}")]
    Held(TransactionId),
    /// The table has no room for the key.
    #[error("the table has no room for another item; give it more when it is made")]
    Full,
    /// There is no such table, or it takes no such keys or values.
    #[error("no table takes this key, or a value of this length")]
    Unknown,
}

/// A table of versioned items with locks. Keys that share a header share its lock and its version. Keys of different
/// shards must not share one: a machine may be primary of the one and backup of the other, and each counts the versions
/// of its own changes.
///
/// Locks are re-entrant by owner: who holds the header's lock takes it again for another key. One [`unlock`] releases
/// the header whatever the number of keys, so a participant unlocks when all of a transaction is installed.
///
/// [`unlock`]: Store::unlock
pub trait Store {
    /// The key with version and lock. Where the lock is another's the value may be torn, and is not to be used.
    fn read(&self, key: &Key) -> Stored;

    /// Locks the key for the owner and returns it as [`Store::read`] would afterwards. Makes room for a value of
    /// `room` bytes where the key is absent, so that it has a place to be written to.
    fn try_lock(&mut self, key: &Key, owner: TransactionId, room: u32)
        -> Result<Stored, LockError>;

    /// Stores value and version under the lock of the owner, which stays. Returns whether the owner holds the lock;
    /// where it does not, nothing is changed.
    fn install(&mut self, update: &Update, owner: TransactionId) -> bool;

    /// Releases the lock if it is the owner's.
    fn unlock(&mut self, key: &Key, owner: TransactionId);

    /// Stores changes that the primary orders, as its backup: those of a header that has this version or a later one
    /// are left out. The changes of one transaction to keys of one header come in one call. Where there is no room for
    /// all of them none is stored, and they can be applied again.
    fn apply(&mut self, updates: &[Update]) -> Result<(), LockError>;

    /// The participant has forgotten a slot of a coordinator that holds no lock: what is kept for it may go.
    fn forget(&mut self, _coordinator: u64, _slot: u16) {}

    /// An epoch begins, in which another machine may have been the primary before: versions of keys that are absent
    /// must be above those that it gave.
    fn new_epoch(&mut self, _epoch: Epoch) {}

    /// From now on, or no longer, what is changed is remembered, so that [`Store::adopt`] brings back nothing older.
    fn learn(&mut self, learns: bool);

    /// Some items from the cursor on, about so many bytes of them, of those keys that are wanted, and where to go on. A
    /// cursor means the same at all machines of a database. No item is between two changes.
    fn chunk(
        &self,
        cursor: u64,
        bytes: usize,
        wanted: &dyn Fn(&Key) -> bool,
    ) -> (Vec<Update>, Option<u64>);

    /// Stores items of another machine's, while this one learns: those that were not changed here since it began to.
    fn adopt(&mut self, items: &[Update]) -> Result<(), LockError>;
}
