//! A store with an ordered index of its keys, for scans.
//!
//! The index has every key of the store and, temporarily, some that the store does not have: a key is added to the
//! index before the store and removed from it after. So a scan looks up each key, skips those that are gone, and misses
//! none that exists throughout. It holds no lock: nodes that it may still be reading are freed later (`scc`'s epochs).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;

use scc::{Guard, TreeIndex};

use super::{Key, KvError, KvLayout, KvStore, Space};

/// A store and an ordered index of its keys.
#[derive(Debug)]
pub struct OrderedKvStore<S: Space> {
    store: KvStore<S>,
    index: TreeIndex<Name, ()>,
}

impl<S: Space> OrderedKvStore<S> {
    /// Creates an empty store at the start of `space`.
    ///
    /// # Errors
    /// When `space` is too small for the layout.
    pub fn create(space: S, layout: KvLayout) -> Result<Self, KvError> {
        Ok(Self {
            store: KvStore::create(space, layout)?,
            index: TreeIndex::new(),
        })
    }

    /// The store, for GETs. Changes must go through this type.
    pub fn store(&self) -> &KvStore<S> {
        &self.store
    }

    /// Like [`KvStore::put`].
    ///
    /// # Errors
    /// As for [`KvStore::put`].
    pub fn put(&self, key: &Key<'_>, value: &[u8]) -> Result<bool, KvError> {
        self.store.put_with(key, value, || {
            // No other thread inserts it: changes of one key are serialized.
            let _ = self.index.insert_sync(Name::new(key.bytes()), ());
        })
    }

    /// Like [`KvStore::delete`].
    pub fn delete(&self, key: &Key<'_>) -> bool {
        self.store.delete_with(key, || {
            self.index.remove_sync(key.bytes());
        })
    }

    /// Calls `each` with the keys in order, from `first` on, until it returns `false`; the caller expects to look at
    /// about `most` of them. Keys that are inserted or deleted meanwhile may or may not be visited; `each` looks up the
    /// value, which may be gone. Items are prefetched a few keys ahead.
    pub fn scan(&self, first: &[u8], most: usize, mut each: impl FnMut(&Key<'_>) -> bool) {
        let guard = Guard::new();
        let range = (Bound::Included(first), Bound::Unbounded);
        let mut names = self.index.range::<[u8], _>(range, &guard);
        let together = most.clamp(1, TOGETHER);
        let mut keys: [Option<Key<'_>>; TOGETHER] = [None; TOGETHER];
        loop {
            let mut count = 0;
            for (place, (name, ())) in keys.iter_mut().zip(names.by_ref().take(together)) {
                // Keys in the index are valid: the store accepted them.
                *place = self.store.key(name.bytes()).ok();
                count += 1;
            }
            let keys = &keys[..count];
            keys.iter()
                .flatten()
                .for_each(|key| self.store.prefetch_bucket(key));
            keys.iter()
                .flatten()
                .for_each(|key| self.store.prefetch_item(key));
            if !keys.iter().flatten().all(&mut each) || count < together {
                return;
            }
        }
    }

    /// Calls `each` with the keys in order, from `first` on, until it returns `false`, without prefetching items: for
    /// callers that need only the keys. Keys that are inserted or deleted meanwhile may or may not be visited.
    pub fn scan_keys(&self, first: &[u8], mut each: impl FnMut(&[u8]) -> bool) {
        let guard = Guard::new();
        let range = (Bound::Included(first), Bound::Unbounded);
        for (name, ()) in self.index.range::<[u8], _>(range, &guard) {
            if !each(name.bytes()) {
                return;
            }
        }
    }
}

/// Number of keys of a scan whose items are prefetched together.
const TOGETHER: usize = 16;
/// The longest key that is stored in the index's nodes: comparing longer ones accesses memory elsewhere.
const SHORT_BYTES: usize = 22;

/// A key in the index.
#[derive(Clone, Debug)]
enum Name {
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES],
    },
    Long(Box<[u8]>),
}

impl Name {
    fn new(key: &[u8]) -> Self {
        if key.len() > SHORT_BYTES {
            return Self::Long(key.into());
        }
        let mut bytes = [0; SHORT_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        let length = key.len() as u8;
        Self::Short { length, bytes }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length).min(SHORT_BYTES)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}
