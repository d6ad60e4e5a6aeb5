//! Flor as a device: its queue pairs are logical connections over the queue pairs of any other device, with the service
//! and all verbs of RC, so that everything that runs on a queue pair runs on them (docs/flor.md).

mod completions;
mod config;
mod core;
mod frame;
mod pair;
mod queue_pair;
mod region;
mod shared_receive;
mod staging;
mod sync;
mod work;

use std::ptr::NonNull;
use std::sync::Arc;

use dunlin_verbs::software::Completions;
use dunlin_verbs::{
    within, Access, AnyRegion, AsyncEvent, Device, DeviceAttributes, EndpointAddress,
    PeerConfirmation, Placement, QueuePairConfig, ReceiveQueue as ReceiveQueueConfig, Transport,
    TransportSet, Verbs, VerbsError,
};

pub use completions::FlorCompletionQueue;
pub use config::FlorConfig;
pub use queue_pair::FlorQueuePair;
pub use region::FlorRegion;
pub use shared_receive::FlorSharedReceiveQueue;

use self::core::{Core, Handle};
use pair::{Engine, Parts, Place, Shared};
use region::inner_access;
use work::{Limits, ReceiveQueue};

const MAX_REQUESTS: usize = 1 << 16;
const MAX_SEGMENTS: usize = 32;
const MAX_INLINE_BYTES: usize = 4096;
const MAX_COMPLETIONS: usize = 1 << 22;

/// A device whose queue pairs are Flor's, over those of `D`. Clones are handles to the same device. Peers need one too,
/// over a device that reaches this one, with the same configuration.
#[derive(Clone, Debug)]
pub struct FlorDevice<D: Device> {
    handle: Arc<Handle<D>>,
}

/// Protection domain: regions and queue pairs can be used together only within one domain.
#[derive(Clone, Debug)]
pub struct FlorProtectionDomain<D: Device> {
    inner: D::ProtectionDomain,
    id: u64,
    device: Arc<Handle<D>>,
}

impl<D: Device> FlorDevice<D> {
    /// Creates a Flor device over `device`.
    ///
    /// # Errors
    /// When the device lacks what the configuration requires.
    pub fn new(device: D, config: FlorConfig) -> Result<Self, VerbsError> {
        let transport = config.transport();
        let written = Verbs::SEND | Verbs::WRITE | Verbs::WRITE_WITH_IMMEDIATE;
        let transports = device.attributes().transports;
        let mut missing = written - transports.verbs(transport);
        if transport == Transport::UnreliableConnection {
            missing |= Verbs::SEND - transports.ud;
        }
        if !missing.is_empty() {
            return Err(VerbsError::Unsupported {
                device: device.attributes().name.clone(),
                what: format!("{missing:?}, required by Flor over {transport}"),
            });
        }
        let attributes = attributes(device.attributes(), &config);
        let core = Core::new(device, config, attributes)?;
        Ok(Self {
            handle: Arc::new(Handle::new(core)),
        })
    }

    /// The underlying device.
    pub fn inner(&self) -> &D {
        &self.core().device
    }

    fn core(&self) -> &Arc<Core<D>> {
        self.handle.core()
    }

    fn check_domain(&self, domain: &FlorProtectionDomain<D>) -> Result<(), VerbsError> {
        self.core().made_in.check()?;
        if Arc::ptr_eq(&domain.device, &self.handle) {
            return Ok(());
        }
        Err(VerbsError::Invalid {
            argument: "domain",
            why: "belongs to another device".to_owned(),
        })
    }
}

fn attributes(below: &DeviceAttributes, config: &FlorConfig) -> DeviceAttributes {
    let all = Verbs::SEND
        | Verbs::WRITE
        | Verbs::WRITE_WITH_IMMEDIATE
        | Verbs::READ
        | Verbs::ATOMIC
        | Verbs::SHARED_RECEIVE;
    // The queue pair for acknowledgements is an additional one.
    let of_each = config.link.connection.paths + 1;
    DeviceAttributes {
        name: format!("flor-{}", below.name),
        transports: TransportSet {
            rc: all,
            uc: Verbs::empty(),
            ud: Verbs::empty(),
        },
        // A processor places data, in order.
        placement: Placement::InOrder,
        writes_are_messages: true,
        max_queue_pairs: below.max_queue_pairs / of_each,
        max_send_requests: MAX_REQUESTS,
        max_receive_requests: MAX_REQUESTS,
        max_segments: MAX_SEGMENTS,
        max_inline_bytes: MAX_INLINE_BYTES,
        max_completions: MAX_COMPLETIONS,
        max_message_bytes: config.max_message_bytes().min(below.max_message_bytes),
        max_shared_receive_requests: MAX_REQUESTS,
        timestamps: false,
        // Peers access the user's memory only by requests that this device checks.
        raw_memory_remote: true,
        grants_are_mappings: false,
        speaks_roce: false,
        ..below.clone()
    }
}

// SAFETY: memory is that of the underlying device, one region for each; its work requests are posted there, or bytes
// are copied, before those here complete, and peers reach only what was granted, by frames whose rights are checked.
#[allow(unsafe_code)]
unsafe impl<D: Device> Device for FlorDevice<D> {
    type ProtectionDomain = FlorProtectionDomain<D>;
    type Region = FlorRegion<D::Region>;
    type CompletionChannel = D::CompletionChannel;
    type CompletionQueue = FlorCompletionQueue<D>;
    type AddressHandle = D::AddressHandle;
    type QueuePair = FlorQueuePair<D>;
    type SharedReceiveQueue = FlorSharedReceiveQueue<D>;

    fn attributes(&self) -> &DeviceAttributes {
        &self.core().attributes
    }

    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        self.core().device.packet_counts()
    }

    fn create_protection_domain(&self) -> Result<FlorProtectionDomain<D>, VerbsError> {
        Ok(FlorProtectionDomain {
            inner: self.core().device.create_protection_domain()?,
            id: self.core().next_domain(),
            device: Arc::clone(&self.handle),
        })
    }

    fn allocate_region(
        &self,
        domain: &FlorProtectionDomain<D>,
        length: usize,
        access: Access,
    ) -> Result<FlorRegion<D::Region>, VerbsError> {
        self.check_domain(domain)?;
        let core = self.core();
        let below = inner_access(access);
        let region = core.device.allocate_region(&domain.inner, length, below)?;
        Ok(FlorRegion::new(&core.regions, region, access, domain.id))
    }

    #[allow(unsafe_code)]
    unsafe fn register_raw(
        &self,
        domain: &FlorProtectionDomain<D>,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<FlorRegion<D::Region>, VerbsError> {
        self.check_domain(domain)?;
        let core = self.core();
        let below = inner_access(access);
        // SAFETY: the caller makes the same promise.
        let region = unsafe {
            core.device
                .register_raw(&domain.inner, start, length, below)?
        };
        Ok(FlorRegion::new(&core.regions, region, access, domain.id))
    }

    fn register_again(
        &self,
        domain: &FlorProtectionDomain<D>,
        region: &FlorRegion<D::Region>,
        access: Access,
    ) -> Result<FlorRegion<D::Region>, VerbsError> {
        self.check_domain(domain)?;
        let core = self.core();
        let access = dunlin_verbs::Region::access(region) & access;
        if region.is_adopted() {
            let inner = region.inner().clone();
            return Ok(FlorRegion::adopt(&core.regions, inner, access, domain.id));
        }
        let again =
            core.device
                .register_again(&domain.inner, region.inner(), inner_access(access))?;
        Ok(FlorRegion::new(&core.regions, again, access, domain.id))
    }

    fn adopt_region(
        &self,
        domain: &FlorProtectionDomain<D>,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Option<FlorRegion<D::Region>>, VerbsError> {
        self.check_domain(domain)?;
        let below = match region.region().downcast_ref::<D::Region>() {
            Some(below) => Some(below.clone()),
            None => {
                let device = &self.core().device;
                device.adopt_region(&domain.inner, region, inner_access(access))?
            }
        };
        let regions = &self.core().regions;
        Ok(below.map(|below| FlorRegion::adopt(regions, below, access, domain.id)))
    }

    fn create_completion_channel(&self) -> Result<D::CompletionChannel, VerbsError> {
        self.core().device.create_completion_channel()
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&D::CompletionChannel>,
    ) -> Result<FlorCompletionQueue<D>, VerbsError> {
        self.core().made_in.check()?;
        within("max_completions", entries, MAX_COMPLETIONS)?;
        let completions = Completions::new(entries, channel.cloned());
        Ok(FlorCompletionQueue::new(&self.handle, completions))
    }

    fn create_queue_pair(
        &self,
        domain: &FlorProtectionDomain<D>,
        config: &QueuePairConfig<'_, FlorCompletionQueue<D>, FlorSharedReceiveQueue<D>>,
    ) -> Result<FlorQueuePair<D>, VerbsError> {
        self.check_domain(domain)?;
        if config.transport != Transport::ReliableConnection {
            return Err(VerbsError::Unsupported {
                device: self.attributes().name.clone(),
                what: format!("{}: its queue pairs are RC", config.transport),
            });
        }
        within("max_send_requests", config.send_requests, MAX_REQUESTS)?;
        within("max_segments", config.segments, MAX_SEGMENTS)?;
        within("max_inline_bytes", config.inline_bytes, MAX_INLINE_BYTES)?;
        let own = |requests, segments| {
            within("max_receive_requests", requests, MAX_REQUESTS)?;
            let queue = ReceiveQueue::new(requests, segments, domain.id);
            Ok::<_, VerbsError>(Arc::new(queue))
        };
        let receives = match config.receive_queue {
            ReceiveQueueConfig::Own(requests) => own(requests, config.segments)?,
            ReceiveQueueConfig::OwnEmpty(requests) => own(requests, 0)?,
            ReceiveQueueConfig::Shared(queue) if queue.queue().domain() == domain.id => {
                Arc::clone(queue.queue())
            }
            ReceiveQueueConfig::Shared(_) => {
                return Err(VerbsError::Invalid {
                    argument: "receive_queue",
                    why: "belongs to another protection domain".to_owned(),
                })
            }
        };
        let core = self.core();
        let engine = Engine::new(Place {
            device: core.device.clone(),
            domain: domain.inner.clone(),
            regions: Arc::clone(&core.regions),
            config: Arc::clone(&core.config),
            channel: core.channel.clone(),
        });
        let parts = Parts {
            number: core.next_number(),
            domain: domain.id,
            send_completions: Arc::clone(config.send_completions.completions()),
            receive_completions: Arc::clone(config.receive_completions.completions()),
            receives,
            shares_receives: matches!(config.receive_queue, ReceiveQueueConfig::Shared(_)),
        };
        let shared = Arc::new(Shared::new(parts, engine));
        core.add(Arc::clone(&shared))?;
        let limits = Limits {
            segments: config.segments,
            inline_bytes: config.inline_bytes,
            message_bytes: self.attributes().max_message_bytes,
        };
        let requests = config.send_requests;
        Ok(FlorQueuePair::new(&self.handle, shared, limits, requests))
    }

    fn create_shared_receive_queue(
        &self,
        domain: &FlorProtectionDomain<D>,
        requests: usize,
        segments: usize,
    ) -> Result<FlorSharedReceiveQueue<D>, VerbsError> {
        self.check_domain(domain)?;
        within("max_shared_receive_requests", requests, MAX_REQUESTS)?;
        within("max_segments", segments, MAX_SEGMENTS)?;
        let queue = ReceiveQueue::new(requests.max(1), segments, domain.id);
        Ok(FlorSharedReceiveQueue::new(&self.handle, queue))
    }

    fn create_address_handle(
        &self,
        domain: &FlorProtectionDomain<D>,
        address: &EndpointAddress,
    ) -> Result<D::AddressHandle, VerbsError> {
        let device = &self.core().device;
        device.create_address_handle(&domain.inner, address)
    }

    fn create_address_handle_of_class(
        &self,
        domain: &FlorProtectionDomain<D>,
        address: &EndpointAddress,
        traffic_class: u8,
    ) -> Result<D::AddressHandle, VerbsError> {
        let device = &self.core().device;
        device.create_address_handle_of_class(&domain.inner, address, traffic_class)
    }

    fn is_gone(handle: &D::AddressHandle) -> bool {
        D::is_gone(handle)
    }

    fn confirm_peer(
        &self,
        address: &EndpointAddress,
        patience: std::time::Duration,
    ) -> Result<PeerConfirmation, VerbsError> {
        let below = queue_pair::inner(address);
        self.core().device.confirm_peer(&below, patience)
    }

    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress {
        let peer = queue_pair::inner(peer);
        let device = &self.core().device;
        queue_pair::with_inner(own, |own| device.address_for(own, &peer))
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        // Events of underlying queue pairs are handled here, and their numbers mean nothing above.
        let event = self.core().device.poll_async_event()?;
        let own = matches!(
            event,
            AsyncEvent::QueuePairFatal(_) | AsyncEvent::CompletionQueueOverrun
        );
        (!own).then_some(event)
    }

    fn spawn(
        &self,
        name: String,
        core: Option<usize>,
        run: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<dunlin_verbs::thread::Running> {
        self.core().device.spawn(name, core, run)
    }

    fn cores(&self) -> usize {
        self.core().device.cores()
    }

    fn seed(&self) -> Option<u64> {
        self.core().device.seed()
    }

    fn simulation(&self) -> Option<dunlin_verbs::Simulation> {
        self.core().device.simulation()
    }

    fn charge(work: dunlin_verbs::Work) {
        D::charge(work);
    }
}
