//! The interface of the table below a participant.
use crate::membership::Epoch;
use crate::types::{Key, Place, Raised, TransactionId, Update, Value, Version};

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value; `None` if there is none.
    pub value: Option<Value>,
    /// The version, from the same moment as the value unless it is locked.
    pub version: Version,
    /// The holder of the lock.
    pub owner: Option<TransactionId>,
    /// What the lock has raised, if it has reserved space for an absent key.
    pub raised: Option<Raised>,
    /// The location. An absent key has a header too, which changes when the key is inserted.
    pub place: Place,
}

/// Why a key was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another transaction holds the lock.
    #[error("locked by transaction {0}")]
    Held(TransactionId),
    /// The table has no space for the key.
    #[error("the table is full; make it larger when it is created")]
    Full,
    /// There is no such table, or it does not accept such keys or values.
    #[error("no table stores this key, or a value of this length")]
    Unknown,
}

/// A table of versioned items with locks. Keys that share a header share its lock and its version. Keys of different
/// shards must not share one: a machine may be primary of one and backup of the other, and each primary counts the
/// versions of its own changes.
///
/// Locks are re-entrant by owner: the holder of a header's lock can take it again for another key. One [`unlock`]
/// releases the header whatever the number of keys, so a participant unlocks only when the whole transaction is
/// installed.
///
/// [`unlock`]: Store::unlock
pub trait Store {
    /// Returns the key's value with version and lock. If another transaction holds the lock the value may be torn, and
    /// must not be used.
    fn read(&self, key: &Key) -> Stored;

    /// Locks the key for the owner and returns what [`Store::read`] would return afterwards. If the key is absent,
    /// reserves space for a value of `room` bytes, so that it has a place to be written to.
    fn try_lock(&mut self, key: &Key, owner: TransactionId, room: u32)
        -> Result<Stored, LockError>;

    /// Stores value and version under the owner's lock, which stays. Returns whether the owner holds the lock; if not,
    /// nothing is changed.
    fn install(&mut self, update: &Update, owner: TransactionId) -> bool;

    /// Releases the lock if the owner holds it.
    fn unlock(&mut self, key: &Key, owner: TransactionId);

    /// Stores changes ordered by the primary, as its backup: those of a header that already has this version or a later
    /// one are skipped. The changes of one transaction to keys of one header come in one call. If there is not enough
    /// space for all of them none is stored, and they can be applied again.
    fn apply(&mut self, updates: &[Update]) -> Result<(), LockError>;

    /// The participant has forgotten a coordinator's slot that holds no lock: state kept for it may be dropped.
    fn forget(&mut self, _coordinator: u64, _slot: u16) {}

    /// An epoch begins before which another machine may have been the primary: versions of absent keys must be above
    /// those that it assigned.
    fn new_epoch(&mut self, _epoch: Epoch) {}

    /// Starts or stops recording what is changed, so that [`Store::adopt`] does not restore anything older.
    fn learn(&mut self, learns: bool);

    /// Returns some items of the wanted keys from the cursor on, about this many bytes of them, and where to continue.
    /// A cursor has the same meaning on all machines of a database. Each item is read consistently.
    fn chunk(
        &self,
        cursor: u64,
        bytes: usize,
        wanted: &dyn Fn(&Key) -> bool,
    ) -> (Vec<Update>, Option<u64>);

    /// Stores another machine's items, while this one learns: those that have not been changed here since it began to.
    fn adopt(&mut self, items: &[Update]) -> Result<(), LockError>;
}
