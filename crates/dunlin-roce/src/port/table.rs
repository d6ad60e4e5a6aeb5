//! The queue pairs of a device by their numbers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};

use dunlin_verbs::VerbsError;

use crate::engine::Shared;
use crate::sync::{lock, random_u32, read, write};

/// Bits of a number that are its index; the rest are random.
const INDEX_BITS: u32 = 15;
/// Queue pairs at most.
pub(crate) const MAX_QUEUE_PAIRS: usize = 1 << INDEX_BITS;
/// Indices that rest before one of them is used again. The random bits alone give a queue pair the number of the one
/// before it in one case of 511, and then packets to that one, which may still be on their way, would be taken by it:
/// over UC, whose messages may begin with any sequence number.
const RESTING: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pairs {
    slots: RwLock<Vec<Option<Arc<Shared>>>>,
    /// Indices that were given back, oldest first.
    free: Mutex<VecDeque<u32>>,
    limit: usize,
}

impl Pairs {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: RwLock::new(Vec::new()),
            free: Mutex::new(VecDeque::new()),
            limit,
        }
    }

    /// Makes a queue pair under a new number.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(u32) -> Shared,
    ) -> Result<Arc<Shared>, VerbsError> {
        // 24 bits as on InfiniBand; never 0 or 1, which are special there.
        let secret = random_u32()? % ((1 << (24 - INDEX_BITS)) - 1) + 1;
        let mut slots = write(&self.slots);
        let mut free = lock(&self.free);
        let index = if slots.len() < self.limit && free.len() < RESTING {
            slots.push(None);
            slots.len() as u32 - 1
        } else {
            free.pop_front().ok_or(VerbsError::Limit {
                resource: "max_queue_pairs",
                asked: 1,
                available: 0,
                limit: self.limit,
            })?
        };
        drop(free);
        let pair = Arc::new(make(secret << INDEX_BITS | index));
        slots[index as usize] = Some(Arc::clone(&pair));
        Ok(pair)
    }

    pub(crate) fn remove(&self, number: u32) {
        let index = number % MAX_QUEUE_PAIRS as u32;
        let gone = write(&self.slots)[index as usize].take();
        lock(&self.free).push_back(index);
        drop(gone);
    }

    /// The queue pair of a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Shared>> {
        let slots = read(&self.slots);
        let pair = slots.get(number as usize % MAX_QUEUE_PAIRS)?.as_ref()?;
        (pair.number == number).then(|| Arc::clone(pair))
    }
}
