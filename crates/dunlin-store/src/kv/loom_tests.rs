//! The protocol of buckets and items under the model checker: the store itself, on words of loom.

use std::collections::BTreeMap;

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::layout::BLOCK_BYTES;
use super::{KvLayout, KvStore, Space, Words};
use crate::sync::{AtomicU64, Ordering};

/// The words in use: the buckets, and the first chunks of the first blocks. Copies are word by word, which on real
/// machines is the exception.
#[derive(Debug)]
struct Modelled {
    words: BTreeMap<usize, AtomicU64>,
    bytes: usize,
}

impl Modelled {
    fn new(layout: &KvLayout) -> Self {
        let buckets = layout.bucket_offset(layout.main_buckets() + layout.overflow_buckets());
        let blocks = (layout.heap_offset()..layout.bytes()).step_by(BLOCK_BYTES);
        let heap = blocks.flat_map(|block| (block..block + 128).step_by(8));
        let words = (0..buckets).step_by(8).chain(heap);
        Self {
            words: words.map(|at| (at, AtomicU64::new(0))).collect(),
            bytes: layout.bytes(),
        }
    }
}

impl Space for Modelled {
    type Words = Self;

    fn words(&self) -> &Self {
        self
    }
}

impl Words for Modelled {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[&offset]
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (index, chunk) in target.chunks_mut(8).enumerate() {
            let word = self.word(offset + index * 8).load(Ordering::Relaxed);
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (index, chunk) in source.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(offset + index * 8)
                .store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    fn prefetch(&self, _offset: usize) {}
}

type Store = Arc<KvStore<Modelled>>;

/// A store in which "a" has the value `[1, 1]`.
fn store() -> Store {
    let layout = KvLayout::new(1, 2 * BLOCK_BYTES, 1 << 20, 1).unwrap();
    let store = Arc::new(KvStore::create(Modelled::new(&layout), layout).unwrap());
    put(&store, b"a", &[1, 1]);
    store
}

/// Stores a value made of words.
fn put(store: &Store, key: &[u8], words: &[u64]) {
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    store.put(&store.key(key).unwrap(), &value).unwrap();
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u64>> {
    let mut value = Vec::new();
    let Ok(found) = store.get(&store.key(key).unwrap(), &mut value);
    let words = value
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    found.then(|| words.collect())
}

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// A change in place: a reader sees the value before or after it, complete.
#[test]
fn loom_a_value_changes_in_place() {
    model(|| {
        let store = store();
        let writer = {
            let store = store.clone();
            thread::spawn(move || put(&store, b"a", &[2, 2]))
        };
        let got = get(&store, b"a");
        assert!(matches!(got.as_deref(), Some([1, 1] | [2, 2])), "{got:?}");
        writer.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&[2, 2][..]));
    });
}

/// The value moves to a longer chunk, and its old chunk goes to another key.
#[test]
fn loom_a_chunk_becomes_another_keys() {
    model(|| {
        let store = store();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                put(&store, b"a", &[2, 2, 2, 2]);
                put(&store, b"b", &[3, 3]);
            })
        };
        let got = get(&store, b"a");
        assert!(
            matches!(got.as_deref(), Some([1, 1] | [2, 2, 2, 2])),
            "{got:?}"
        );
        writer.join().unwrap();
        assert_eq!(get(&store, b"b").as_deref(), Some(&[3, 3][..]));
    });
}

/// The same key is deleted and inserted again at the same place: its word is the same as before, its value is not.
#[test]
fn loom_a_place_is_filled_again() {
    model(|| {
        let store = store();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                assert!(store.delete(&store.key(b"a").unwrap()));
                put(&store, b"a", &[2, 2]);
            })
        };
        let got = get(&store, b"a");
        assert!(
            matches!(got.as_deref(), None | Some([1, 1] | [2, 2])),
            "{got:?}"
        );
        writer.join().unwrap();
    });
}

/// The chunk that one writer frees is filled by another.
#[test]
fn loom_writers_share_chunks() {
    model(|| {
        let store = store();
        let writers = [
            {
                let store = store.clone();
                thread::spawn(move || assert!(store.delete(&store.key(b"a").unwrap())))
            },
            {
                let store = store.clone();
                thread::spawn(move || put(&store, b"b", &[3, 3]))
            },
        ];
        let got = get(&store, b"a");
        assert!(matches!(got.as_deref(), None | Some([1, 1])), "{got:?}");
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(get(&store, b"b").as_deref(), Some(&[3, 3][..]));
    });
}
