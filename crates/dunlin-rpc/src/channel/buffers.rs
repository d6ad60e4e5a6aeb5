//! Registered buffers for payloads that are too long for the ring, kept for reuse because registering is slow.
//!
//! A [`Buffer`] from the export pool holds a payload of ours that the peer READs. One from the landing pool receives
//! what we READ from the peer ([`Landed`]); no peer has any access to it, so its bytes can be lent out as a plain
//! slice.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{Access, Device, Region, VerbsError};

use super::message::Descriptor;
use super::one_sided::Registration;
use super::ChannelError;

/// Size of the smallest buffer: below this a separate registration costs more than it saves.
const MIN_BUFFER_BYTES: usize = 16 << 10;
/// Number of bytes that a pool keeps for reuse; buffers returned beyond that are freed.
const KEPT_BYTES: usize = 256 << 20;

/// The purpose of a pool's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The peer reads them.
    Export,
    /// We read into them.
    Landing,
}

/// Buffers of one channel for one purpose, by power-of-two size.
#[derive(Debug)]
pub(crate) struct BufferPool<D: Device> {
    device: D,
    domain: D::ProtectionDomain,
    purpose: Purpose,
    made_in: Generation,
    free: Mutex<Free<D::Region>>,
}

#[derive(Debug)]
struct Free<R> {
    by_size: Vec<Vec<R>>,
    bytes: usize,
}

/// Memory of this size in which payloads are staged before they are sent; `None` where the device can carry even the
/// longest one inline.
pub(super) fn staging_for<D: Device>(
    device: &D,
    domain: &D::ProtectionDomain,
    (inline_bytes, longest): (usize, usize),
    bytes: usize,
) -> Result<Option<D::Region>, VerbsError> {
    let staged = inline_bytes < longest;
    staged
        .then(|| device.allocate_region(domain, bytes, Access::LOCAL_WRITE))
        .transpose()
}

impl<D: Device> BufferPool<D> {
    /// An empty pool.
    pub(crate) fn new(device: &D, domain: &D::ProtectionDomain, purpose: Purpose) -> Arc<Self> {
        let free = Mutex::new(Free {
            by_size: Vec::new(),
            bytes: 0,
        });
        Arc::new(Self {
            device: device.clone(),
            domain: domain.clone(),
            purpose,
            made_in: Generation::current(),
            free,
        })
    }

    /// Takes a buffer of at least `length` bytes whose first `length` bytes are in use.
    pub(crate) fn take(self: &Arc<Self>, length: usize) -> Result<Buffer<D>, VerbsError> {
        let size = length.max(MIN_BUFFER_BYTES).next_power_of_two();
        let class = size.trailing_zeros() as usize;
        let kept = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = free.by_size.get_mut(class).and_then(Vec::pop);
            if kept.is_some() {
                free.bytes -= size;
            }
            kept
        };
        let region = match kept {
            Some(region) => region,
            None => {
                let access = match self.purpose {
                    Purpose::Export => Access::REMOTE_READ,
                    Purpose::Landing => Access::LOCAL_WRITE,
                };
                crate::memory::room_for(size)?;
                self.device.allocate_region(&self.domain, size, access)?
            }
        };
        Ok(Buffer {
            region,
            length,
            pool: Arc::clone(self),
        })
    }

    /// Takes a buffer and copies `bytes` into it.
    pub(crate) fn copied(self: &Arc<Self>, bytes: &[u8]) -> Result<Buffer<D>, ChannelError> {
        let buffer = self.take(bytes.len()).map_err(ChannelError::memory)?;
        buffer.region.memory().write(0, bytes);
        Ok(buffer)
    }

    /// Returns a payload in a buffer of this pool: itself if it is in one, otherwise a copy. A buffer from an earlier
    /// connection, or from another kind of lane, has no key that is valid here.
    pub(crate) fn export(self: &Arc<Self>, body: Body<'_>) -> Result<Buffer<D>, ChannelError> {
        match body {
            Body::Bytes(bytes) => self.copied(bytes),
            Body::Buffer(buffer) => match downcast::<Buffer<D>>(buffer) {
                Ok(own) if Arc::ptr_eq(&own.pool, self) => Ok(own),
                Ok(foreign) => self.copied(foreign.bytes_ref()),
                Err(foreign) => self.copied(foreign.bytes_ref()),
            },
        }
    }

    /// Allocates memory that no peer can access, for a user to own and fill.
    pub(crate) fn allocate_own(&self, length: usize) -> Result<D::Region, ChannelError> {
        let access = Access::LOCAL_WRITE;
        let allocate = |()| self.device.allocate_region(&self.domain, length, access);
        let room = crate::memory::room_for(length).map_err(VerbsError::from);
        room.and_then(allocate).map_err(ChannelError::memory)
    }

    /// Registers memory allocated in this way, here or elsewhere, for requests of this side. `None`: it belongs to
    /// another device, and this one cannot use it.
    pub(crate) fn register_own(
        &self,
        memory: &Arc<dyn dunlin_verbs::AnyRegion>,
    ) -> Result<Registration, ChannelError> {
        let access = Access::LOCAL_WRITE;
        let own = memory.region().downcast_ref::<D::Region>();
        // Memory of another device of this type is refused, and then adopted like that of any other device.
        let again = own.and_then(|own| self.device.register_again(&self.domain, own, access).ok());
        let region = match again {
            Some(region) => Some(region),
            None => {
                let adopted = self.device.adopt_region(&self.domain, memory, access);
                adopted.map_err(ChannelError::memory)?
            }
        };
        Ok(region.map(|region| -> Arc<dyn Any + Send + Sync> { Arc::new(region) }))
    }

    fn give_back(&self, region: &D::Region) {
        let size = region.memory().len();
        let class = size.trailing_zeros() as usize;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.bytes + size > KEPT_BYTES {
            return;
        }
        if free.by_size.len() <= class {
            free.by_size.resize_with(class + 1, Vec::new);
        }
        free.by_size[class].push(region.clone());
        free.bytes += size;
    }
}

/// The payload of a message, which is exported if it is long.
pub(crate) enum Body<'a> {
    /// Bytes of the caller, copied.
    Bytes(&'a [u8]),
    /// A buffer that was filled in place, sent as it is if its lane sends it.
    Buffer(Box<dyn BytesMut>),
}

impl Body<'_> {
    /// The bytes, wherever they are.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Body::Bytes(bytes) => bytes,
            Body::Buffer(buffer) => buffer.bytes_ref(),
        }
    }

    /// Takes the body and leaves an empty one.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Body::Bytes(&[]))
    }
}

/// A buffer that returns to its pool when it is dropped. It has one owner.
#[derive(Debug)]
pub(crate) struct Buffer<D: Device> {
    region: D::Region,
    length: usize,
    pool: Arc<BufferPool<D>>,
}

impl<D: Device> Buffer<D> {
    /// The region, for work requests.
    pub(crate) fn region(&self) -> &D::Region {
        &self.region
    }

    /// Number of bytes in use.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// What the peer needs to READ the bytes in use.
    pub(crate) fn descriptor(&self) -> Descriptor {
        let remote = self.region.remote();
        Descriptor {
            address: remote.address,
            length: self.length as u64,
            key: remote.key.0,
        }
    }
}

impl<D: Device> Drop for Buffer<D> {
    fn drop(&mut self) {
        // In a forked child the lock may never be released.
        if self.pool.made_in.is_current() {
            self.pool.give_back(&self.region);
        }
    }
}

/// Lends bytes out as plain slices. One of the few places of this crate that access raw memory.
#[allow(unsafe_code)]
mod lend {
    use std::sync::atomic::{fence, Ordering};
    use std::sync::Arc;

    use super::{Buffer, Purpose};
    use dunlin_link::Completed;
    use dunlin_verbs::{Device, Region};

    /// Registered memory as a byte slice of its owner.
    pub(crate) trait Bytes: Send + Sync + std::fmt::Debug {
        /// The bytes.
        fn bytes(&self) -> &[u8];
    }

    impl Bytes for Box<[u8]> {
        fn bytes(&self) -> &[u8] {
            self
        }
    }

    /// The first bytes of other memory, with their number.
    #[derive(Debug)]
    pub(crate) struct Beginning(pub(crate) Box<dyn Bytes>, pub(crate) usize);

    impl Bytes for Beginning {
        fn bytes(&self) -> &[u8] {
            &self.0.bytes()[..self.1]
        }
    }

    /// A landing buffer whose READ has completed.
    #[derive(Debug)]
    pub(crate) struct Landed<D: Device>(Buffer<D>);

    impl<D: Device> Landed<D> {
        /// Wraps a buffer whose last READ has completed.
        pub(crate) fn new(buffer: Completed<Buffer<D>>) -> Self {
            let buffer = buffer.into_inner();
            assert!(
                buffer.pool.purpose == Purpose::Landing,
                "only landing buffers are private"
            );
            Self(buffer)
        }
    }

    impl<D: Device> Bytes for Landed<D> {
        fn bytes(&self) -> &[u8] {
            // SAFETY: the pool registers landing buffers without any remote access, a `Buffer` has one owner, and
            // `Landed` requires the proof that its last READ has completed: nothing writes these bytes while `self` is
            // borrowed.
            unsafe { self.0.region.memory().slice(0, self.0.length) }
        }
    }

    /// A user's own memory, which operations read and fill in place. Each operation holds a token until it has
    /// completed; the bytes are lent out only while no token is held by an operation that would change them, or would
    /// observe their change.
    #[derive(Debug)]
    pub(crate) struct OwnMemory {
        memory: Arc<dyn dunlin_verbs::AnyRegion>,
        sent: Arc<()>,
        filled: Arc<()>,
    }

    impl OwnMemory {
        /// Wraps memory that has no other owner.
        ///
        /// # Panics
        /// When peers can access it.
        pub(crate) fn new(memory: Arc<dyn dunlin_verbs::AnyRegion>) -> Self {
            assert!(!memory.access().is_remote(), "peers reach it");
            let (sent, filled) = (Arc::new(()), Arc::new(()));
            Self {
                memory,
                sent,
                filled,
            }
        }

        /// The region, for lanes to register; only operations that hold [`OwnMemory::use_to_fill`] write to it.
        pub(crate) fn region(&self) -> &Arc<dyn dunlin_verbs::AnyRegion> {
            &self.memory
        }

        pub(crate) fn len(&self) -> usize {
            self.memory.memory().len()
        }

        /// The token of an operation that reads it.
        pub(crate) fn use_to_send(&self) -> Arc<()> {
            Arc::clone(&self.sent)
        }

        /// The token of an operation that writes it.
        pub(crate) fn use_to_fill(&mut self) -> Arc<()> {
            Arc::clone(&self.filled)
        }

        /// Copies bytes in while operations may fill other parts.
        ///
        /// # Panics
        /// When they do not fit in there.
        pub(crate) fn fill(&mut self, offset: usize, bytes: &[u8]) {
            self.memory.memory().write(offset, bytes);
        }

        /// The bytes; `None` while an operation may write them.
        pub(crate) fn bytes(&self) -> Option<&[u8]> {
            let still = is_unused(&self.filled);
            // SAFETY: no peer has any access, and no operation that writes is in flight: those hold a token, which is
            // only created from `&mut self`, so none is created while the slice is borrowed.
            still.then(|| unsafe { self.memory.memory().slice(0, self.len()) })
        }

        /// The bytes, mutable; `None` while an operation may read or write them.
        pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
            let still = is_unused(&self.filled) && is_unused(&self.sent);
            // SAFETY: as in `bytes`, and no operation that reads is in flight; `&mut self` is the only owner, from
            // which tokens are created.
            still.then(|| unsafe { self.memory.memory().slice_mut(0, self.len()) })
        }
    }

    /// Whether the token has no holder any more; what its holders did before is visible afterwards.
    fn is_unused(token: &Arc<()>) -> bool {
        let unused = Arc::strong_count(token) == 1;
        fence(Ordering::Acquire);
        unused
    }

    /// An export buffer that has not been sent yet.
    pub(crate) trait BytesMut: Send + std::fmt::Debug {
        /// The bytes.
        fn bytes_ref(&self) -> &[u8];
        /// The bytes, mutable.
        fn bytes_mut(&mut self) -> &mut [u8];
        /// Sets the length to `length` if the buffer has that much space; returns whether it has.
        fn resize(&mut self, length: usize) -> bool;
        /// The buffer itself, to pass to the lane that it came from.
        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send>;
        /// The buffer itself, to query its type.
        fn as_any(&self) -> &dyn std::any::Any;
    }

    /// Converts to a `B`; returns the buffer if another kind of lane made it.
    pub(crate) fn downcast<B: 'static>(buffer: Box<dyn BytesMut>) -> Result<B, Box<dyn BytesMut>> {
        if !buffer.as_any().is::<B>() {
            return Err(buffer);
        }
        match buffer.into_any().downcast() {
            Ok(own) => Ok(*own),
            Err(_) => unreachable!("it was asked what it is"),
        }
    }

    impl BytesMut for Box<[u8]> {
        fn bytes_ref(&self) -> &[u8] {
            self
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            self
        }

        fn resize(&mut self, length: usize) -> bool {
            length == self.len()
        }

        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
            self
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    impl<D: Device> BytesMut for Buffer<D> {
        fn bytes_ref(&self) -> &[u8] {
            assert!(
                self.pool.purpose == Purpose::Export,
                "landing buffers are read when landed"
            );
            // SAFETY: as in `bytes_mut`: only the owner writes an export buffer.
            unsafe { self.region.memory().slice(0, self.length) }
        }

        fn bytes_mut(&mut self) -> &mut [u8] {
            assert!(
                self.pool.purpose == Purpose::Export,
                "landing buffers are written by READ alone"
            );
            // SAFETY: an export buffer is never the target of a work request, peers may only read it, and `&mut self`
            // is its only owner.
            unsafe { self.region.memory().slice_mut(0, self.length) }
        }

        fn resize(&mut self, length: usize) -> bool {
            let fits = length <= self.region.memory().len();
            if fits {
                self.length = length;
            }
            fits
        }

        fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
            self
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }
}
pub(crate) use lend::{downcast, Beginning, Bytes, BytesMut, Landed, OwnMemory};
