//! A key-value store in one piece of memory: keys of up to 1 KiB, values of any length up to a configured limit.
//!
//! A bucket has tags and places of items; the items are stored separately, in chunks of size classes (MICA's lossless
//! mode and memcached's slabs). [`KvStore::get`] takes no lock; a client that knows the [`KvLayout`] can READ buckets
//! and items by itself ([`Lookup`]). An [`OrderedKvStore`] adds an ordered index of its keys (feature `ordered`).

mod bucket;
mod chain;
mod classes;
mod error;
mod heap;
mod item;
mod layout;
mod lookup;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(feature = "ordered")]
mod ordered;
mod store;
mod words;

pub use error::KvError;
pub use layout::{
    Key, KvLayout, KV_DESCRIPTION_BYTES, MAX_BUCKETS, MAX_KEY_BYTES, MAX_VALUE_BYTES,
};
pub use lookup::{Lookup, Step};
#[cfg(feature = "ordered")]
pub use ordered::OrderedKvStore;
pub use store::{KvStore, KvUsage, Target};
pub use words::{Space, Words};
