//! Memory regions.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use dunlin_verbs::{
    Access, AnyRegion, LocalKey, Memory, PageKind, Pages, PagesWanted, Region, RemoteAddress,
    RemoteKey, VerbsError,
};
use rustix::io::Errno;
use rustix::process::{getrlimit, Resource};

use crate::context::{Core, Shared};
use crate::device::Domain;
use crate::error::{explain, invalid, last};
use crate::sys::{constants as c, types};

/// Registered memory. Clones name the same registration.
#[derive(Clone, Debug)]
pub struct IbvRegion {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: Shared<types::Mr>,
    memory: Memory,
    access: Access,
    lkey: u32,
    rkey: u32,
    page_kind: PageKind,
    domain: Arc<Domain>,
    /// Behind the registration in the order of fields; in any case `drop` ends the registration first. `None`: the
    /// caller's memory.
    pages: Option<Kept>,
}

/// What keeps the memory of a region alive: the pages that were allocated for it, or a region of another device.
type Kept = Arc<dyn Any + Send + Sync>;

impl Drop for Inner {
    fn drop(&mut self) {
        let core = self.domain.device.core();
        if !core.made_in.is_current() {
            return;
        }
        core.keys.remove(self.lkey);
        // SAFETY: registered by `register`, ended once. The pages are unmapped after this.
        let errno = unsafe { (core.api.dereg_mr)(self.raw.0) };
        if errno != 0 {
            tracing::warn!(device = %core.nic, errno, "ibv_dereg_mr failed");
        }
        core.release(self.memory.len());
    }
}

/// Why the kernel refused to pin memory.
fn refused(core: &Core, length: usize) -> VerbsError {
    let limit = match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{bytes} bytes"),
        None => "unlimited".to_owned(),
    };
    last(
        "ibv_reg_mr",
        format!(
            "registering {length} bytes with {}; RLIMIT_MEMLOCK is {limit}: if that is too low, raise it with `ulimit \
             -l unlimited` (LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container)",
            core.nic
        ),
    )
}

impl IbvRegion {
    pub(crate) fn allocate(
        domain: &Arc<Domain>,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        check_length(length)?;
        core.reserve(length)?;
        let wanted = PagesWanted {
            huge: core.config.huge_pages,
            pinned: true,
        };
        let failed = |errno: Errno| {
            let words = format!("{length} bytes: out of memory?");
            explain("mmap of a region", errno.into(), words)
        };
        let allocated = Pages::allocate(length, wanted).map_err(failed);
        let made = allocated.and_then(|pages| {
            // SAFETY: the pages are aligned, at least `length` bytes, and kept with the window.
            let memory = unsafe { Memory::new(pages.start(), length) };
            let kind = pages.kind();
            Self::register(domain, memory, access, kind, Some(Arc::new(pages)))
        });
        made.inspect_err(|_| core.release(length))
    }

    /// Registers the memory that was allocated for `region` a second time.
    pub(crate) fn again(
        domain: &Arc<Domain>,
        region: &Self,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        let of = &region.inner;
        let Some(kept) = &of.pages else {
            return Err(invalid("region", "not memory allocated by the device"));
        };
        let length = of.memory.len();
        core.reserve(length)?;
        // SAFETY: the same window; what keeps the memory alive is kept with it.
        let memory = unsafe { Memory::new(of.memory.start(), length) };
        Self::register(
            domain,
            memory,
            of.access & access,
            of.page_kind,
            Some(Arc::clone(kept)),
        )
        .inspect_err(|_| core.release(length))
    }

    /// Registers the memory of a region of another device.
    pub(crate) fn adopt(
        domain: &Arc<Domain>,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        // Called once: a region is whatever its type makes of it, and one window is as long as it says.
        let memory = region.memory();
        let (start, length) = (memory.start(), memory.len());
        core.reserve(length)?;
        // SAFETY: the region's own window, and the region is kept with it.
        let memory = unsafe { Memory::new(start, length) };
        let kept: Kept = Arc::new(Arc::clone(region));
        let access = region.access() & access;
        Self::register(domain, memory, access, region.page_kind(), Some(kept))
            .inspect_err(|_| core.release(length))
    }

    /// Registers the caller's memory.
    ///
    /// # Safety
    /// As for [`dunlin_verbs::Device::register_raw`].
    pub(crate) unsafe fn raw(
        domain: &Arc<Domain>,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        check_length(length)?;
        if start.as_ptr() as usize % 8 != 0 {
            return Err(invalid("start", "not a multiple of 8"));
        }
        core.reserve(length)?;
        // SAFETY: aligned as checked; valid for as long as the region lives by the caller's promise.
        let memory = unsafe { Memory::new(start, length) };
        Self::register(domain, memory, access, PageKind::Base, None)
            .inspect_err(|_| core.release(length))
    }

    fn register(
        domain: &Arc<Domain>,
        memory: Memory,
        access: Access,
        page_kind: PageKind,
        pages: Option<Kept>,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        // The bits of the verbs layer are the library's. A peer may write only what the device may; `access` is checked
        // for our own requests when they are posted.
        let mut flags = access.bits() as i32;
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            flags |= c::ACCESS_LOCAL_WRITE;
        }
        let start = memory.start().as_ptr().cast();
        // SAFETY: the domain is alive, and the memory stays valid until the registration ends: it is kept beside it, or
        // the caller has promised it.
        let raw = unsafe { (core.api.reg_mr)(domain.raw.0, start, memory.len(), flags) };
        if raw.is_null() {
            return Err(refused(core, memory.len()));
        }
        // SAFETY: just made.
        let (lkey, rkey) = unsafe { ((*raw).lkey, (*raw).rkey) };
        core.keys.insert(lkey);
        Ok(Self {
            inner: Arc::new(Inner {
                raw: Shared(raw),
                memory,
                access,
                lkey,
                rkey,
                page_kind,
                domain: Arc::clone(domain),
                pages,
            }),
        })
    }

    /// Whether work requests of a queue pair of `domain` may name it.
    #[inline]
    pub(crate) fn belongs_to(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.inner.domain, domain)
    }

    #[inline]
    pub(crate) fn lkey(&self) -> u32 {
        self.inner.lkey
    }
}

fn check_length(length: usize) -> Result<(), VerbsError> {
    if length == 0 || length > isize::MAX as usize / 2 {
        return Err(invalid("length", format!("cannot register {length} bytes")));
    }
    Ok(())
}

// SAFETY: the window belongs to memory that the registration keeps alive, and is created once.
#[allow(unsafe_code)]
unsafe impl Region for IbvRegion {
    #[inline]
    fn memory(&self) -> &Memory {
        &self.inner.memory
    }

    fn access(&self) -> Access {
        self.inner.access
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.inner.lkey)
    }

    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: self.inner.memory.start().as_ptr() as u64,
            key: RemoteKey(self.inner.rkey),
        }
    }

    fn page_kind(&self) -> PageKind {
        self.inner.page_kind
    }
}
