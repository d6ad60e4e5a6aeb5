//! The trait of a device, from which all other objects are created.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::attributes::DeviceAttributes;
use crate::charge::Work;
use crate::completion::{CompletionChannel, CompletionQueue};
use crate::error::VerbsError;
use crate::memory::{Access, AnyRegion, Region};
use crate::queue_pair::{EndpointAddress, QueuePair, QueuePairConfig, SharedReceiveQueue};
use crate::thread::Running;

/// An event that no work request reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The queue pair with this number went to the error state.
    QueuePairFatal(u32),
    /// A peer's device is gone; the queue pairs connected to it are in the error state.
    PeerGone([u8; 16]),
    /// A completion queue overran.
    CompletionQueueOverrun,
    /// The port with this number became active.
    PortActive(u8),
    /// The port with this number went down.
    PortDown(u8),
    /// The addresses of the port with this number changed.
    AddressesChanged(u8),
    /// The device failed; nothing created from it can be used any more.
    DeviceFatal,
}

/// The result of asking about a peer's queue pair ([`Device::confirm_peer`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerConfirmation {
    /// There was no answer in time.
    Silent,
    /// The queue pair belongs to the peer's device, as far as this device can find out.
    Confirmed {
        /// The user that the peer's process runs as, where the kernel reports it.
        user: Option<u32>,
    },
}

/// An RDMA NIC in hardware or software. Clones are handles to the same open device, which lives until the last object
/// created from it is dropped.
///
/// # Safety
/// Unsafe code lends bytes of regions as slices where nothing may change them. So the following holds for each region
/// of the device:
/// - Its bytes belong to no other region: [`Device::allocate_region`] returns new ones, [`Device::register_again`] and
///   [`Device::adopt_region`] share exactly those of the region that they are called for, and [`Device::register_raw`]
///   takes the caller's.
/// - The device and its queue pairs change them only for work requests that name them, until the completion of each has
///   been polled or the end of its queue pair has been reported, and on behalf of peers within the requested access.
#[allow(unsafe_code)]
pub unsafe trait Device: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Protection domain: regions and queue pairs can be used together only within one domain.
    type ProtectionDomain: Clone + Send + Sync + std::fmt::Debug + 'static;
    /// Registered memory.
    type Region: Region;
    /// Completion channel.
    type CompletionChannel: CompletionChannel;
    /// Completion queue.
    type CompletionQueue: CompletionQueue;
    /// Address handle for datagrams.
    type AddressHandle: Clone + Send + Sync + std::fmt::Debug + 'static;
    /// Queue pair.
    type QueuePair: QueuePair<Region = Self::Region, AddressHandle = Self::AddressHandle>;
    /// Shared receive queue.
    type SharedReceiveQueue: SharedReceiveQueue<Region = Self::Region>;

    /// Limits and properties of the device.
    fn attributes(&self) -> &DeviceAttributes;

    /// Creates a protection domain.
    ///
    /// # Errors
    /// When a limit is reached.
    fn create_protection_domain(&self) -> Result<Self::ProtectionDomain, VerbsError>;

    /// Allocates `length` zeroed bytes that the device owns, aligned to 4096, and registers them.
    ///
    /// # Errors
    /// When a limit is reached, `length` is zero, or the system has no memory.
    fn allocate_region(
        &self,
        domain: &Self::ProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self::Region, VerbsError>;

    /// Registers memory that the caller owns.
    ///
    /// # Safety
    /// From the call until the last clone of the region is dropped, the bytes must stay valid. The caller must not hold
    /// a reference to them while a work request that names them is outstanding or while a peer has been granted access.
    ///
    /// # Errors
    /// As for [`Device::allocate_region`]; also when `access` is remote and the device cannot share such memory.
    #[allow(unsafe_code)]
    unsafe fn register_raw(
        &self,
        domain: &Self::ProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Self::Region, VerbsError>;

    /// Registers memory of a region that this device allocated a second time: in `domain`, with its own key, and with
    /// this access, which is part of the region's. The memory lives until both registrations have ended; each is
    /// revoked separately. (Where grants are mappings, a peer of either can access it until its own mapping ends:
    /// [`DeviceAttributes::grants_are_mappings`].)
    ///
    /// # Errors
    /// As for [`Device::allocate_region`], or when the device does not support it.
    fn register_again(
        &self,
        domain: &Self::ProtectionDomain,
        region: &Self::Region,
        access: Access,
    ) -> Result<Self::Region, VerbsError> {
        let _ = (domain, region, access);
        Err(VerbsError::Unsupported {
            device: self.attributes().name.clone(),
            what: "memory in several protection domains".to_owned(),
        })
    }

    /// Registers a region of another device with this one, in `domain` and with this access. Both name the same memory,
    /// which lives until both have ended. Returns `None` if this device cannot register memory of others, such as one
    /// that shares pages with its peers.
    ///
    /// # Errors
    /// When a limit is reached.
    fn adopt_region(
        &self,
        domain: &Self::ProtectionDomain,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Option<Self::Region>, VerbsError> {
        let _ = (domain, region, access);
        Ok(None)
    }

    /// Counts of what happened to packets since the device was opened, by name, such as packets dropped, by reason, and
    /// packets sent again. Empty for a device that does not see packets or does not count them.
    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Creates a channel for completion events.
    ///
    /// # Errors
    /// When a limit is reached or the system call fails.
    fn create_completion_channel(&self) -> Result<Self::CompletionChannel, VerbsError>;

    /// Creates a completion queue with at least `entries` entries, and with a channel if it is to raise events.
    ///
    /// # Errors
    /// When a limit is reached.
    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&Self::CompletionChannel>,
    ) -> Result<Self::CompletionQueue, VerbsError>;

    /// Creates a queue pair in state Reset.
    ///
    /// # Errors
    /// When a limit is reached or the transport is not supported.
    fn create_queue_pair(
        &self,
        domain: &Self::ProtectionDomain,
        config: &QueuePairConfig<'_, Self::CompletionQueue, Self::SharedReceiveQueue>,
    ) -> Result<Self::QueuePair, VerbsError>;

    /// Creates a shared receive queue with `requests` entries of `segments` each.
    ///
    /// # Errors
    /// When a limit is reached or the device has none.
    fn create_shared_receive_queue(
        &self,
        domain: &Self::ProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<Self::SharedReceiveQueue, VerbsError>;

    /// Creates a handle for datagrams to the device of `address`.
    ///
    /// # Errors
    /// When the address does not belong to this kind of device.
    fn create_address_handle(
        &self,
        domain: &Self::ProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<Self::AddressHandle, VerbsError>;

    /// As `create_address_handle`, with a traffic class for what is sent with the handle; see
    /// [`ConnectAttributes::traffic_class`](crate::ConnectAttributes::traffic_class).
    ///
    /// # Errors
    /// As [`Device::create_address_handle`].
    fn create_address_handle_of_class(
        &self,
        domain: &Self::ProtectionDomain,
        address: &EndpointAddress,
        traffic_class: u8,
    ) -> Result<Self::AddressHandle, VerbsError> {
        let _ = traffic_class;
        self.create_address_handle(domain, address)
    }

    /// Whether the device knows that the queue pair at this handle's address is gone for good: its process died, or its
    /// owner released it. A device that does not learn of this, such as a real NIC for datagrams, returns `false`; then
    /// only a timeout can tell. Costs one load. When the device learns that a queue pair is gone, it wakes threads that
    /// wait for completions of a datagram queue pair.
    #[inline]
    fn is_gone(handle: &Self::AddressHandle) -> bool {
        let _ = handle;
        false
    }

    /// Asks the device of an address, for at most `patience`, whether the queue pair is its own. A server calls this
    /// before it creates anything for a peer, so that peers which do not exist or which its device would refuse cost it
    /// nothing. It blocks, so engines must not call it. A device that cannot ask, such as a NIC, takes the peer's word.
    ///
    /// # Errors
    /// When the answer is no, or no such device exists.
    fn confirm_peer(
        &self,
        address: &EndpointAddress,
        patience: std::time::Duration,
    ) -> Result<PeerConfirmation, VerbsError> {
        let _ = (address, patience);
        Ok(PeerConfirmation::Confirmed { user: None })
    }

    /// Returns `own`, an address of a queue pair of this device, in the form in which the given peer can reach it: a
    /// host in several networks has an address in each. To be called where an answer to that peer is made. A device
    /// that every peer reaches at the same address returns it unchanged.
    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress {
        let _ = peer;
        own
    }

    /// Reads the clock that completions are stamped with, in nanoseconds (`ibv_query_rt_values_ex`). This may take a
    /// microsecond of the caller's time. Returns `None` if the device has no such clock or cannot read it.
    fn query_clock_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the next event that no work request reports, if any.
    fn poll_async_event(&self) -> Option<AsyncEvent>;

    /// Starts a thread that uses this device. `core` is the core of the simulated host on which it runs; it does not
    /// matter for operating system threads.
    ///
    /// # Errors
    /// When the thread cannot be created.
    fn spawn(
        &self,
        name: String,
        core: Option<usize>,
        run: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Running> {
        let _ = core;
        Running::start(name, run)
    }

    /// Number of cores of the device's host.
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// A seed to use instead of the system's random numbers, on a device whose runs can be repeated; each call returns
    /// another one. `None`: use the system's.
    fn seed(&self) -> Option<u64> {
        None
    }

    /// For a device in virtual time, its host and the virtual time. `None`: time is real.
    fn simulation(&self) -> Option<Simulation> {
        None
    }

    /// Records that the calling core did `work`, which is not a verb. Simulated cores are charged for it; in real time
    /// it does nothing.
    #[inline(always)]
    fn charge(work: Work) {
        let _ = work;
    }
}

/// The host of a device in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// The simulated host of this process that the device belongs to.
    pub host: u64,
    /// Virtual time there: the caller's own, or that of the simulation if the caller is not part of it.
    pub now: std::time::Duration,
}
