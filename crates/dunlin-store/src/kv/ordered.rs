//! A store with an ordered index of its keys beside it, for scans.
//!
//! The index has every key that the store has, and for moments some that it has not: a key enters the index before the
//! store and leaves it after. So a scan looks each key up, passes over those that are gone, and misses none that is
//! there throughout. It holds no lock: nodes that it may still look at are freed later (`scc`'s epochs).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;

use scc::{Guard, TreeIndex};

use super::{Key, KvError, KvLayout, KvStore, Space};

/// A store and the order of its keys.
#[derive(Debug)]
pub struct OrderedKvStore<S: Space> {
    store: KvStore<S>,
    index: TreeIndex<Name, ()>,
}

impl<S: Space> OrderedKvStore<S> {
    /// An empty store at the start of `space`.
    ///
    /// # Errors
    /// When that is too small for the layout.
    pub fn create(space: S, layout: KvLayout) -> Result<Self, KvError> {
        Ok(Self {
            store: KvStore::create(space, layout)?,
            index: TreeIndex::new(),
        })
    }

    /// The store, for GETs. Changes go through this type.
    pub fn store(&self) -> &KvStore<S> {
        &self.store
    }

    /// As [`KvStore::put`].
    ///
    /// # Errors
    /// As for [`KvStore::put`].
    pub fn put(&self, key: &Key<'_>, value: &[u8]) -> Result<bool, KvError> {
        self.store.put_with(key, value, || {
            // No other has it: changes of one key take turns.
            let _ = self.index.insert_sync(Name::new(key.bytes()), ());
        })
    }

    /// As [`KvStore::delete`].
    pub fn delete(&self, key: &Key<'_>) -> bool {
        self.store.delete_with(key, || {
            self.index.remove_sync(key.bytes());
        })
    }

    /// Shows the keys in order, from `first` on, until `each` says `false`; some `most` are likely to be looked at.
    /// Keys that come or go meanwhile are shown or not; `each` looks up the value, which may be gone. Items are asked
    /// for some keys ahead.
    pub fn scan(&self, first: &[u8], most: usize, mut each: impl FnMut(&Key<'_>) -> bool) {
        let guard = Guard::new();
        let range = (Bound::Included(first), Bound::Unbounded);
        let mut names = self.index.range::<[u8], _>(range, &guard);
        let together = most.clamp(1, TOGETHER);
        let mut keys: [Option<Key<'_>>; TOGETHER] = [None; TOGETHER];
        loop {
            let mut count = 0;
            for (place, (name, ())) in keys.iter_mut().zip(names.by_ref().take(together)) {
                // What the index has, the store took.
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

    /// Shows the keys in order, from `first` on, until `each` says `false`, and asks for no items: for who wants keys
    /// alone. Those that come or go meanwhile are shown or not.
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

/// Keys of a scan whose items are asked for at once.
const TOGETHER: usize = 16;
/// The longest key that stands in the index's nodes: comparing others costs a look at memory elsewhere.
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
