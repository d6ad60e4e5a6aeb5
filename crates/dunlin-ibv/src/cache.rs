//! Registrations that are kept for the next use.
//!
//! Registering memory pins its pages and writes the NIC's translation table: far more than a transfer costs. Who sends
//! from the same buffers of an application again and again asks here, and registers once. What is kept is bounded by a
//! budget; the registration that was not used for longest goes first. Regions that are in use stay registered as long
//! as they are, whatever the cache does.

use std::ptr::NonNull;

use dunlin_verbs::{Access, Device, Region, VerbsError};

/// Registrations of one protection domain, kept for the next use.
#[derive(Debug)]
pub struct RegistrationCache<D: Device> {
    device: D,
    domain: D::ProtectionDomain,
    budget_bytes: usize,
    kept: Vec<Kept<D>>,
    kept_bytes: usize,
    /// Counts uses; the larger the later.
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

/// What a cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Uses of a registration that was there.
    pub hits: u64,
    /// Registrations made.
    pub misses: u64,
    /// Registrations let go of for others.
    pub evictions: u64,
}

/// A registration and where in it the memory begins that was asked for.
#[derive(Debug)]
pub struct Registered<R> {
    /// The registration, of this memory or of more.
    pub region: R,
    /// Bytes from its start to the memory that was asked for.
    pub offset: usize,
}

impl<D: Device> RegistrationCache<D> {
    /// An empty one that keeps at most `budget_bytes` registered.
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

    /// The registration of some memory with at least `access`, made if there is none.
    ///
    /// Memory that is longer than the budget is registered and not kept.
    ///
    /// # Errors
    /// As [`Device::register_raw`]; when the device or RLIMIT_MEMLOCK is exhausted only after everything that is not in
    /// use was let go of.
    ///
    /// # Safety
    /// As for [`Device::register_raw`], and until the memory was given to [`RegistrationCache::forget`], or the cache
    /// was dropped, instead of until the region ends: memory that is unmapped and mapped anew at the same place is
    /// other memory.
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
            // SAFETY: the caller's promise is longer than the region lives, because the cache's part of it ends with
            // `forget` or `drop`.
            let made = unsafe {
                self.device
                    .register_raw(&self.domain, start, length, access)
            };
            match made {
                Ok(region) => break region,
                // Others of ours may be what there is no room for.
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

    /// Lets go of all registrations that touch this memory. To be called before it is unmapped, or given to someone
    /// else.
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

    /// Lets go of the one that was not used for longest; says whether there was one.
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

    /// Bytes that are kept registered now.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// What it did so far.
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
        // More access than it has, and memory beyond it, are other registrations.
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
        // The second was not used for longest.
        ask(places[2], 512).expect("a region");
        ask(places[0], 512).expect("still there");
        // Too long to be kept, and still registered.
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
