//! The queue pairs of a device by number.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, RwLock};

use dunlin_verbs::VerbsError;

use crate::engine::Shared;
use crate::sync::{lock, random_u32, read, write};

/// Number of bits of a queue pair number that are its index; the rest are random.
const INDEX_BITS: u32 = 15;
/// Maximum number of queue pairs.
pub(crate) const MAX_QUEUE_PAIRS: usize = 1 << INDEX_BITS;
/// Number of indices that are held back before one of them is reused. With random bits alone, a queue pair would get
/// the number of the previous one in one case of 511, and then accept packets for that one which are still in flight:
/// over UC, whose messages may begin with any sequence number.
const RESTING: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pairs {
    slots: RwLock<Vec<Option<Arc<Shared>>>>,
    /// Indices that were freed, oldest first.
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

    /// Creates a queue pair under a new number.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(u32) -> Shared,
    ) -> Result<Arc<Shared>, VerbsError> {
        // 24 bits as on InfiniBand; never 0 or 1, which have a special meaning there.
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

    /// The queue pair with this number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Shared>> {
        let slots = read(&self.slots);
        let pair = slots.get(number as usize % MAX_QUEUE_PAIRS)?.as_ref()?;
        (pair.number == number).then(|| Arc::clone(pair))
    }
}
