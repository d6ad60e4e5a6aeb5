//! State shared by all objects of a device: its name, its limits, its tables, and the queue to its control thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{random, AsyncEvent, DeviceAttributes, VerbsError};

use crate::config::ShmConfig;
use crate::control::ControlQueue;
use crate::destinations::Destinations;
use crate::queue_pair::Shared;
use crate::region::RegionCore;
use crate::region_table::{RegionTable, KEY_INDEX_BITS};

/// Maximum number of events kept for a user who does not fetch them.
const EVENTS_MAX: usize = 1024;
/// Number of bits of a queue pair number that are its index; the rest counts the uses of the index, so that a number is
/// not reused soon.
const NUMBER_INDEX_BITS: u32 = 14;
/// Maximum number of queue pairs.
pub(crate) const NUMBER_INDICES: usize = 1 << NUMBER_INDEX_BITS;

/// Locks a mutex whose data remain consistent when a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Returns a random number from the system.
pub(crate) fn random_u64() -> u64 {
    // The system's generator fails only if there is none at all; then no token can be kept secret, and opening the
    // device has already failed.
    random::number().unwrap_or(0)
}

/// The shared state of a device.
#[derive(Debug)]
pub(crate) struct Core {
    /// The process that created the device: a child has no control thread, and owns nothing that is shared with peers.
    pub(crate) made_in: Generation,
    pub(crate) config: ShmConfig,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) uid: [u8; 16],
    pub(crate) table: RegionTable,
    pub(crate) control: ControlQueue,
    regions: Mutex<Regions>,
    queue_pairs: Mutex<QueuePairs>,
    events: Mutex<VecDeque<AsyncEvent>>,
    pub(crate) destinations: Destinations,
    next_domain: AtomicU64,
}

#[derive(Debug)]
struct Regions {
    slots: Vec<Option<Weak<RegionCore>>>,
    free: VecDeque<u32>,
    bytes: usize,
}

#[derive(Debug)]
struct QueuePairs {
    slots: Vec<(u32, Option<Weak<Shared>>)>,
    free: VecDeque<usize>,
}

impl Core {
    pub(crate) fn new(
        config: ShmConfig,
        attributes: DeviceAttributes,
        uid: [u8; 16],
        table: RegionTable,
        control: ControlQueue,
    ) -> Self {
        Self {
            made_in: Generation::current(),
            regions: Mutex::new(Regions {
                slots: vec![None; config.max_regions],
                free: (0..config.max_regions as u32).collect(),
                bytes: 0,
            }),
            queue_pairs: Mutex::new(QueuePairs {
                slots: vec![(0, None); config.max_queue_pairs],
                free: (0..config.max_queue_pairs).collect(),
            }),
            config,
            attributes,
            uid,
            table,
            control,
            events: Mutex::new(VecDeque::new()),
            destinations: Destinations::new(),
            next_domain: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_domain(&self) -> u64 {
        self.next_domain.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes `bytes` from the budget of registered memory.
    pub(crate) fn reserve_bytes(&self, bytes: usize) -> Result<(), VerbsError> {
        let mut regions = lock(&self.regions);
        let limit = self.config.max_registered_bytes;
        if bytes > limit - regions.bytes {
            return Err(VerbsError::Limit {
                resource: "max_registered_bytes",
                asked: bytes,
                available: limit - regions.bytes,
                limit,
            });
        }
        regions.bytes += bytes;
        Ok(())
    }

    pub(crate) fn release_bytes(&self, bytes: usize) {
        lock(&self.regions).bytes -= bytes;
    }

    /// Assigns a region its key: a free index and random bits.
    pub(crate) fn insert_region(
        &self,
        make: impl FnOnce(u32) -> Arc<RegionCore>,
    ) -> Result<Arc<RegionCore>, VerbsError> {
        let mut regions = lock(&self.regions);
        let index = regions.free.pop_front().ok_or(VerbsError::Limit {
            resource: "max_regions",
            asked: 1,
            available: 0,
            limit: self.config.max_regions,
        })?;
        let secret = (random_u64() as u32) | 1 << KEY_INDEX_BITS;
        let region = make(secret & !((1 << KEY_INDEX_BITS) - 1) | index);
        regions.slots[index as usize] = Some(Arc::downgrade(&region));
        Ok(region)
    }

    pub(crate) fn remove_region(&self, key: u32) {
        let index = crate::region_table::key_index(key);
        let mut regions = lock(&self.regions);
        regions.slots[index] = None;
        regions.free.push_back(index as u32);
    }

    /// The region that currently has this key.
    pub(crate) fn region(&self, key: u32) -> Option<Arc<RegionCore>> {
        let regions = lock(&self.regions);
        let region = regions
            .slots
            .get(crate::region_table::key_index(key))?
            .as_ref()?
            .upgrade()?;
        (region.key == key).then_some(region)
    }

    /// Assigns a queue pair its number.
    pub(crate) fn insert_queue_pair(
        &self,
        make: impl FnOnce(u32) -> Result<Arc<Shared>, VerbsError>,
    ) -> Result<Arc<Shared>, VerbsError> {
        let mut pairs = lock(&self.queue_pairs);
        let index = *pairs.free.front().ok_or(VerbsError::Limit {
            resource: "max_queue_pairs",
            asked: 1,
            available: 0,
            limit: self.config.max_queue_pairs,
        })?;
        // 24 bits as on InfiniBand; never 0 or 1, which have a special meaning there.
        let users = pairs.slots[index].0 % ((1 << (24 - NUMBER_INDEX_BITS)) - 1) + 1;
        let pair = make(users << NUMBER_INDEX_BITS | index as u32)?;
        pairs.free.pop_front();
        pairs.slots[index] = (users, Some(Arc::downgrade(&pair)));
        Ok(pair)
    }

    pub(crate) fn remove_queue_pair(&self, number: u32) {
        let index = (number & ((1 << NUMBER_INDEX_BITS) - 1)) as usize;
        let mut pairs = lock(&self.queue_pairs);
        pairs.slots[index].1 = None;
        pairs.free.push_back(index);
    }

    pub(crate) fn queue_pair(&self, number: u32) -> Option<Arc<Shared>> {
        let index = (number & ((1 << NUMBER_INDEX_BITS) - 1)) as usize;
        let pair = lock(&self.queue_pairs)
            .slots
            .get(index)?
            .1
            .as_ref()?
            .upgrade()?;
        (pair.number == number).then_some(pair)
    }

    /// All queue pairs.
    pub(crate) fn all_queue_pairs(&self) -> Vec<Arc<Shared>> {
        lock(&self.queue_pairs)
            .slots
            .iter()
            .filter_map(|(_, pair)| pair.as_ref()?.upgrade())
            .collect()
    }

    /// Queues an event, unless it is already queued.
    pub(crate) fn push_event(&self, event: AsyncEvent) {
        let mut events = lock(&self.events);
        if events.len() < EVENTS_MAX && !events.contains(&event) {
            events.push_back(event);
        }
    }

    pub(crate) fn pop_event(&self) -> Option<AsyncEvent> {
        if !self.made_in.is_current() {
            return None;
        }
        lock(&self.events).pop_front()
    }
}
