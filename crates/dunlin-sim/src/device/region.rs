//! Regions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use dunlin_verbs::{
    Access, LocalKey, Memory, PageKind, Region, RemoteAddress, RemoteKey, VerbsError,
};

use crate::inner::Inner;
use crate::memory::{Block, Watch, LINE, REGIONS_MAX};
use crate::stack;

use super::{limit, SimProtectionDomain, MAX_REGISTERED_BYTES};

/// Registered memory of a simulated host: real bytes at a simulated address.
#[derive(Clone, Debug)]
pub struct SimRegion {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    inner: Arc<Inner>,
    block: Arc<Block>,
    host: u16,
    key: u32,
    base: u64,
    access: Access,
    /// The simulated thread that accessed the memory last.
    looker: Arc<AtomicU32>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.world(self.host).hosts[usize::from(self.host)]
            .regions
            .remove(self.key);
    }
}

impl SimRegion {
    pub(super) fn allocate(
        inner: &Arc<Inner>,
        domain: &SimProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        Self::register(inner, domain, length, access, || {
            Arc::new(Block::allocate(length))
        })
    }

    /// Registers the memory of a region of this host again.
    pub(super) fn again(
        inner: &Arc<Inner>,
        domain: &SimProtectionDomain,
        region: &Self,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let of = &region.handle;
        if of.host != domain.host || !Arc::ptr_eq(&of.inner, inner) {
            return Err(VerbsError::Invalid {
                argument: "region",
                why: "of another device".to_owned(),
            });
        }
        let length = of.block.memory().len();
        Self::register(inner, domain, length, of.access & access, || {
            Arc::clone(&of.block)
        })
    }

    /// # Safety
    /// The contract of [`dunlin_verbs::Device::register_raw`].
    #[allow(unsafe_code)]
    pub(super) unsafe fn raw(
        inner: &Arc<Inner>,
        domain: &SimProtectionDomain,
        start: std::ptr::NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        if start.as_ptr() as usize % 8 != 0 {
            return Err(VerbsError::Invalid {
                argument: "start",
                why: "not a multiple of 8".to_owned(),
            });
        }
        Self::register(inner, domain, length, access, || {
            // SAFETY: the caller's promise is the same.
            Arc::new(unsafe { Block::raw(start, length) })
        })
    }

    fn register(
        inner: &Arc<Inner>,
        domain: &SimProtectionDomain,
        length: usize,
        access: Access,
        make: impl FnOnce() -> Arc<Block>,
    ) -> Result<Self, VerbsError> {
        if length == 0 || length > isize::MAX as usize / 2 {
            return Err(VerbsError::Invalid {
                argument: "length",
                why: format!("{length} bytes cannot be registered"),
            });
        }
        let mut world = inner.world(domain.host);
        let regions = &mut world.hosts[usize::from(domain.host)].regions;
        let left = MAX_REGISTERED_BYTES.saturating_sub(regions.bytes);
        limit("max_registered_bytes", length, left, MAX_REGISTERED_BYTES)?;
        if regions.is_full() {
            limit("max_regions", 1, REGIONS_MAX - regions.count(), REGIONS_MAX)?;
        }
        let block = make();
        let looker = Arc::new(AtomicU32::new(u32::MAX));
        let (key, base) = regions.insert(
            Arc::clone(&block),
            domain.number,
            access,
            Arc::clone(&looker),
        );
        drop(world);
        let (inner, host) = (Arc::clone(inner), domain.host);
        Ok(Self {
            handle: Arc::new(Handle {
                inner,
                block,
                host,
                key,
                base,
                access,
                looker,
            }),
        })
    }

    pub(crate) fn key(&self) -> u32 {
        self.handle.key
    }

    /// Declares that the calling simulated thread polls these bytes and no others of this region: it is woken when a
    /// peer writes them. Without this, a thread that has looked at a region is woken by any write into it. Has no
    /// effect outside of steps.
    pub fn watch(&self, offset: usize, length: usize) {
        let Some(thread) = self.handle.inner.caller_on(self.handle.host) else {
            return;
        };
        let mut world = self.handle.inner.world(self.handle.host);
        let regions = &mut world.hosts[usize::from(self.handle.host)].regions;
        if let Some(entry) = regions.find_mut(self.handle.key) {
            let (start, end) = (offset as u64, (offset + length) as u64);
            entry
                .watches
                .retain(|watch| watch.explicit || watch.thread != thread);
            let same =
                |watch: &Watch| (watch.thread, watch.start, watch.end) == (thread, start, end);
            if !entry.watches.iter().any(same) {
                entry.watches.push(Watch {
                    thread,
                    start,
                    end,
                    explicit: true,
                    armed: true,
                    once: false,
                });
            }
        }
    }

    /// Marks these bytes as read or written by the host's cores, like memory that a program has initialised: as many of
    /// their lines as fit are in the last-level cache. This costs no virtual time. Later reads of the region do not
    /// warm it.
    pub fn warm(&self, offset: usize, length: usize) {
        let mut world = self.handle.inner.world(self.handle.host);
        let end = (offset + length).min(self.handle.block.memory().len()) as u64;
        if let Some(llc) = &mut world.hosts[usize::from(self.handle.host)].llc {
            for at in (offset as u64..end).step_by(LINE as usize) {
                llc.touch(self.handle.base + at);
            }
        }
    }

    /// Records that the calling simulated thread looks at this memory: writes to it wake the thread.
    #[cold]
    fn look(&self, thread: u32) {
        self.handle.inner.caller_on(self.handle.host);
        self.handle.looker.store(thread, Ordering::Relaxed);
        let mut world = self.handle.inner.world(self.handle.host);
        let regions = &mut world.hosts[usize::from(self.handle.host)].regions;
        if let Some(entry) = regions.find_mut(self.handle.key) {
            let mut watches = entry.watches.iter_mut();
            if let Some(watch) = watches.find(|watch| watch.thread == thread) {
                watch.armed = true;
            } else {
                let end = entry.length;
                entry.watches.push(Watch {
                    thread,
                    start: 0,
                    end,
                    explicit: false,
                    armed: true,
                    once: stack::is_stacked(),
                });
            }
        }
    }
}

// SAFETY: the window is of a block that the handle keeps, and is made once.
#[allow(unsafe_code)]
unsafe impl Region for SimRegion {
    #[inline]
    fn memory(&self) -> &Memory {
        if let Some(thread) = self.handle.inner.caller() {
            if self.handle.looker.load(Ordering::Relaxed) != thread {
                self.look(thread);
            }
        }
        self.handle.block.memory()
    }

    fn access(&self) -> Access {
        self.handle.access
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.handle.key)
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.handle.base,
            key: RemoteKey(self.handle.key),
        }
    }

    fn page_kind(&self) -> PageKind {
        let world = self.handle.inner.world(self.handle.host);
        let page = world.hosts[usize::from(self.handle.host)]
            .parameters
            .page_bytes;
        if page > 4096.0 {
            PageKind::Huge
        } else {
            PageKind::Base
        }
    }
}
