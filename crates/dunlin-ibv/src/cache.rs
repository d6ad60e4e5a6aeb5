//! A cache of registrations.
//!
//! Registering memory pins its pages and writes the NIC's translation table, which costs far more than a transfer. Code
//! that repeatedly sends from the same application buffers uses the cache, and registers them once. Its size is bounded
//! by a budget; the least recently used registration is evicted first. Regions in use stay registered, whatever the
//! cache does.

use std::ptr::NonNull;

use dunlin_verbs::{Access, Device, Region, VerbsError};

/// A cache of the registrations of one protection domain.
#[derive(Debug)]
pub struct RegistrationCache<D: Device> {
    device: D,
    domain: D::ProtectionDomain,
    budget_bytes: usize,
    kept: Vec<Kept<D>>,
    kept_bytes: usize,
    /// Use counter, by which the last use of entries is compared.
    uses: u64,
    figures: CacheFigures,
}

#[derive(Debug)]
struct Kept<D: Device> {
    region: D::Region,
    start: usize,
    length: usize,
    last_use: u64,
}

/// Statistics of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Number of uses of an existing registration.
    pub hits: u64,
    /// Number of registrations made.
    pub misses: u64,
    /// Number of registrations evicted.
    pub evictions: u64,
}

/// A registration, and the offset of the requested memory in it.
#[derive(Debug)]
pub struct Registered<R> {
    /// The registration of this memory or of a larger range.
    pub region: R,
    /// Offset in bytes of the requested memory.
    pub offset: usize,
}

impl<D: Device> RegistrationCache<D> {
    /// Creates an empty cache that keeps at most `budget_bytes` registered.
    pub fn new(device: &D, domain: &D::ProtectionDomain, budget_bytes: usize) -> Self {
        Self {
            device: device.clone(),
            domain: domain.clone(),
            budget_bytes,
            kept: Vec::new(),
            kept_bytes: 0,
            uses: 0,
            figures: CacheFigures::default(),
        }
    }

    /// Returns the registration of a range of memory with at least `access`, registering it if there is none.
    ///
    /// A range longer than the budget is registered but not kept.
    ///
    /// # Errors
    /// As for [`Device::register_raw`]. If the device or RLIMIT_MEMLOCK is exhausted, everything that is not in use is
    /// evicted first.
    ///
    /// # Safety
    /// As for [`Device::register_raw`], but until the memory has been passed to [`RegistrationCache::forget`], or the
    /// cache has been dropped, instead of until the region ends: memory that is unmapped and mapped again at the same
    /// address is different memory.
    pub unsafe fn region(
        &mut self,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Registered<D::Region>, VerbsError> {
        self.uses += 1;
        let from = start.as_ptr() as usize;
        let covers = |kept: &&mut Kept<D>| {
            kept.start <= from
                && from - kept.start <= kept.length
                && length <= kept.length - (from - kept.start)
                && kept.region.access().contains(access)
        };
        if let Some(kept) = self.kept.iter_mut().find(covers) {
            kept.last_use = self.uses;
            self.figures.hits += 1;
            return Ok(Registered {
                region: kept.region.clone(),
                offset: from - kept.start,
            });
        }
        while self.kept_bytes > self.budget_bytes.saturating_sub(length) && self.evict() {}
        let region = loop {
            // SAFETY: the caller's promise covers more than the region's lifetime, because the cache's part of it ends
            // with `forget` or `drop`.
            let made = unsafe {
                self.device
                    .register_raw(&self.domain, start, length, access)
            };
            match made {
                Ok(region) => break region,
                // Other registrations of ours may be what exhausts the limit.
                Err(_) if self.evict() => {}
                Err(error) => return Err(error),
            }
        };
        self.figures.misses += 1;
        if length <= self.budget_bytes {
            self.kept_bytes += length;
            self.kept.push(Kept {
                region: region.clone(),
                start: from,
                length,
                last_use: self.uses,
            });
        }
        Ok(Registered { region, offset: 0 })
    }

    /// Drops all registrations that overlap this memory. To be called before it is unmapped, or passed to another
    /// owner.
    pub fn forget(&mut self, start: NonNull<u8>, length: usize) {
        let from = start.as_ptr() as usize;
        let to = from.saturating_add(length);
        let bytes = &mut self.kept_bytes;
        self.kept.retain(|kept| {
            let apart = kept.start >= to || kept.start + kept.length <= from;
            if !apart {
                *bytes -= kept.length;
            }
            apart
        });
    }

    /// Drops the least recently used registration; returns whether there was one.
    fn evict(&mut self) -> bool {
        let oldest = self.kept.iter().enumerate();
        let Some((at, _)) = oldest.min_by_key(|(_, kept)| kept.last_use) else {
            return false;
        };
        let gone = self.kept.swap_remove(at);
        self.kept_bytes -= gone.length;
        self.figures.evictions += 1;
        true
    }

    /// Number of bytes currently kept registered.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The statistics so far.
    pub fn figures(&self) -> CacheFigures {
        self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::script;
    use crate::fake_tests::{open, refused, says};

    const BOTH: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ);

    fn at(memory: &mut [u64], word: usize) -> NonNull<u8> {
        NonNull::from(&mut memory[word]).cast()
    }

    #[test]
    fn registers_once() {
        let device = open();
        let domain = device.create_protection_domain().expect("a domain");
        let mut cache = RegistrationCache::new(&device, &domain, 4096);
        let mut memory = vec![0u64; 128];
        let whole = at(&mut memory, 0);
        let inner = at(&mut memory, 16);
        // SAFETY: the memory outlives the cache and is forgotten by nobody else.
        let mut ask = |start, length, access| unsafe { cache.region(start, length, access) };
        let first = ask(whole, 1024, BOTH).expect("a region");
        let part = ask(inner, 256, Access::LOCAL_WRITE).expect("a region");
        assert_eq!((first.offset, part.offset), (0, 128));
        // More access than it has, and memory beyond it, need other registrations.
        ask(inner, 256, Access::REMOTE_WRITE).expect("a region");
        assert_eq!(cache.kept_bytes(), 1280);
        let figures = cache.figures();
        assert_eq!((figures.hits, figures.misses, figures.evictions), (1, 2, 0));
        cache.forget(inner, 8);
        assert_eq!(cache.kept_bytes(), 0);
    }

    #[test]
    fn keeps_its_budget() {
        let device = open();
        let domain = device.create_protection_domain().expect("a domain");
        let mut cache = RegistrationCache::new(&device, &domain, 1024);
        let mut memory = vec![0u64; 1024];
        let places: Vec<_> = (0..4).map(|i| at(&mut memory, i * 64)).collect();
        let whole = at(&mut memory, 0);
        // SAFETY: the memory outlives the cache.
        let mut ask = |start, length| unsafe { cache.region(start, length, BOTH) };
        ask(places[0], 512).expect("a region");
        ask(places[1], 512).expect("a region");
        ask(places[0], 512).expect("used again");
        // The second is the least recently used.
        ask(places[2], 512).expect("a region");
        ask(places[0], 512).expect("still there");
        // Too long to be kept, but registered.
        ask(whole, 8192).expect("a region");
        assert!(cache.kept_bytes() <= 1024);
        assert_eq!(cache.figures().hits, 2);
        assert_eq!(cache.figures().misses, 4);
    }

    #[test]
    fn gives_way_before_it_fails() {
        let device = open();
        let domain = device.create_protection_domain().expect("a domain");
        let mut cache = RegistrationCache::new(&device, &domain, 4096);
        let mut memory = vec![0u64; 1024];
        let (one, two) = (at(&mut memory, 0), at(&mut memory, 512));
        // SAFETY: the memory outlives the cache.
        unsafe { cache.region(one, 512, BOTH) }.expect("a region");
        script(|s| s.register = Some(12));
        // SAFETY: as above.
        let text = refused(unsafe { cache.region(two, 512, BOTH) });
        says(&text, &["ibv_reg_mr", "RLIMIT_MEMLOCK"]);
        assert_eq!((cache.kept_bytes(), cache.figures().evictions), (0, 1));
    }
}
