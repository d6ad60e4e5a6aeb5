//! A device: where everything else is made.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::attributes::DeviceAttributes;
use crate::charge::Work;
use crate::completion::{CompletionChannel, CompletionQueue};
use crate::error::VerbsError;
use crate::memory::{Access, AnyRegion, Region};
use crate::queue_pair::{EndpointAddress, QueuePair, QueuePairConfig, SharedReceiveQueue};
use crate::thread::Running;

/// Something that happened to an object without a work request to report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// The queue pair of this number went to the error state.
    QueuePairFatal(u32),
    /// A peer's device went away; its queue pairs are in error.
    PeerGone([u8; 16]),
    /// A completion queue overran.
    CompletionQueueOverrun,
    /// The port of this number can be used.
    PortActive(u8),
    /// The port of this number went down.
    PortDown(u8),
    /// The port of this number has other addresses than before.
    AddressesChanged(u8),
    /// The device failed; all that was made from it is of no use.
    DeviceFatal,
}

/// What a device says of a peer's queue pair ([`Device::confirm_peer`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerConfirmation {
    /// There was no answer in time.
    Silent,
    /// It is one of the peer's device, as far as this device can ask.
    Confirmed {
        /// The user that the peer's process runs as, where the kernel says it.
        user: Option<u32>,
    },
}

/// An RDMA NIC, real or not. Clones are handles on the same open device, which lives until the last object made from it
/// is gone.
///
/// # Safety
/// Unsafe code lends bytes of regions as slices where nothing may change them. So for each region of the device:
/// - its bytes are no other's: those of [`Device::allocate_region`] are new, [`Device::register_again`] and
///   [`Device::adopt_region`] share those of the region that they are asked for and no more,
///   [`Device::register_raw`] takes the caller's.
/// - The device and its queue pairs change them only for work requests that name them, until the completion of each has
///   been polled or its queue pair's end has been reported, and for peers within the access that was asked for.
#[allow(unsafe_code)]
pub unsafe trait Device: Clone + Send + Sync + std::fmt::Debug + 'static {
    /// Protection domain: regions and queue pairs of one domain work together.
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

    /// Limits and habits.
    fn attributes(&self) -> &DeviceAttributes;

    /// A new protection domain.
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
    /// From the call until the last clone of the region is dropped the bytes must stay valid, and the caller must not
    /// hold a reference to them while a work request that names them is outstanding or while a peer has been granted
    /// access.
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

    /// Registers the memory of a region that this device allocated once more: in `domain`, with a key of its own and
    /// this access, of what the region has. The memory lives until both registrations have ended; each is revoked by
    /// itself. (Where grants are mappings a peer of either reaches it until its own mapping ends:
    /// [`DeviceAttributes::grants_are_mappings`].)
    ///
    /// # Errors
    /// As for [`Device::allocate_region`], or the device cannot.
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

    /// A region of another device as one of this device, in `domain` and with this access: the same memory, which lives
    /// until both have ended. `None`: this device cannot have memory of others, as one that shares pages with its
    /// peers.
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

    /// How often something happened to packets since the device was opened, by name: what was dropped and why, what was
    /// sent again. Empty for a device that does not see packets, or does not count them.
    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// A channel for completion events.
    ///
    /// # Errors
    /// When a limit is reached or the system call fails.
    fn create_completion_channel(&self) -> Result<Self::CompletionChannel, VerbsError>;

    /// A completion queue of at least `entries`, with a channel if it is to raise events.
    ///
    /// # Errors
    /// When a limit is reached.
    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&Self::CompletionChannel>,
    ) -> Result<Self::CompletionQueue, VerbsError>;

    /// A queue pair in state Reset.
    ///
    /// # Errors
    /// When a limit is reached or the transport is absent.
    fn create_queue_pair(
        &self,
        domain: &Self::ProtectionDomain,
        config: &QueuePairConfig<'_, Self::CompletionQueue, Self::SharedReceiveQueue>,
    ) -> Result<Self::QueuePair, VerbsError>;

    /// A shared receive queue of `requests` entries of `segments` each.
    ///
    /// # Errors
    /// When a limit is reached or the device has none.
    fn create_shared_receive_queue(
        &self,
        domain: &Self::ProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<Self::SharedReceiveQueue, VerbsError>;

    /// A handle for datagrams to the device of `address`.
    ///
    /// # Errors
    /// When the address is not one of this kind of device.
    fn create_address_handle(
        &self,
        domain: &Self::ProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<Self::AddressHandle, VerbsError>;

    /// The same with a traffic class for what is sent by the handle; see
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

    /// Whether the device has heard that the queue pair at this handle's address is no more: its process died, or its
    /// owner gave it up. It will not come back. A device that has no such news, as real NICs have none of datagrams,
    /// says `false`: then only time tells. One load; whoever waits for completions of a datagram queue pair is woken by
    /// such news.
    #[inline]
    fn is_gone(handle: &Self::AddressHandle) -> bool {
        let _ = handle;
        false
    }

    /// Asks the device of an address whether the queue pair is one of its own, for at most `patience`. For a server
    /// that has only heard of a peer and makes nothing for one that does not exist, or that its device would not let
    /// in. Waits: not for engines. A device that cannot ask, as a NIC cannot, takes the peer's word.
    ///
    /// # Errors
    /// When the answer is no, or nobody is there to give it.
    fn confirm_peer(
        &self,
        address: &EndpointAddress,
        patience: std::time::Duration,
    ) -> Result<PeerConfirmation, VerbsError> {
        let _ = (address, patience);
        Ok(PeerConfirmation::Confirmed { user: None })
    }

    /// `own`, an address of a queue pair of this device, as the peer of another address reaches it: a host in several
    /// networks has an address in each. To be said where an answer to that peer is made. A device that is reached by
    /// everybody at the same address leaves it as it is.
    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress {
        let _ = peer;
        own
    }

    /// What the clock shows that completions are stamped with, in nanoseconds (`ibv_query_rt_values_ex`). Asking may
    /// take a microsecond of the caller. `None`: the device has no such clock, or cannot be asked.
    fn query_clock_ns(&self) -> Option<u64> {
        None
    }

    /// The next event that no work request reports, if there is one.
    fn poll_async_event(&self) -> Option<AsyncEvent>;

    /// Starts a thread that uses this device. `core`: on which of the simulated host's cores; threads of the system
    /// place themselves.
    ///
    /// # Errors
    /// When there is no thread to be had.
    fn spawn(
        &self,
        name: String,
        core: Option<usize>,
        run: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Running> {
        let _ = core;
        Running::start(name, run)
    }

    /// Cores of the host that the device is in.
    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// A number to begin with instead of one of the system's random ones, on a device whose runs can be repeated: each
    /// call gives another. `None`: take the system's.
    fn seed(&self) -> Option<u64> {
        None
    }

    /// Of a device in virtual time, where and when that is. `None`: time is real.
    fn simulation(&self) -> Option<Simulation> {
        None
    }

    /// Says that the calling core did `work`, which is not a verb. Nothing where time is real; simulated cores pay for
    /// it.
    #[inline(always)]
    fn charge(work: Work) {
        let _ = work;
    }
}

/// The host of a device in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Which of the simulated hosts of this process it is in.
    pub host: u64,
    /// Virtual time there: the caller's, or that of the simulation where the caller is not part of it.
    pub now: std::time::Duration,
}
