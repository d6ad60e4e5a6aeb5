//! The device: opening it, and creating all other objects.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin_verbs::{
    random, within, Access, AsyncEvent, Device, DeviceAttributes, EndpointAddress, PageKind,
    PeerConfirmation, Placement, QueuePairConfig, ReceiveQueue, TransportSet, Verbs, VerbsError,
};

use rustix::io::Errno;

use crate::channel::ShmCompletionChannel;
use crate::completion_queue::ShmCompletionQueue;
use crate::config::{ShmConfig, MAX_MESSAGE_BYTES};
use crate::control::{self, Command, Confirmation, ControlQueue};
use crate::core::{Core, NUMBER_INDICES};
use crate::descriptors;
use crate::mapping::system;
use crate::queue_pair::{Limits, Parts, Shared, ShmQueuePair};
use crate::receive::{ReceiveRing, ReceiveSource};
use crate::region::{huge_pages, transparent_pages, ShmRegion};
use crate::region_table::{RegionTable, KEY_INDICES};
use crate::shared_receive::ShmSharedReceiveQueue;

/// Data bytes of a port for messages without payload, about two hundred of which fit.
const EMPTY_PORT_BYTES: usize = 4096;
/// Maximum length of a datagram.
pub(crate) const MTU_BYTES: usize = 4096;
const MAX_REQUESTS: usize = 1 << 16;
const MAX_SEGMENTS: usize = 32;
const MAX_INLINE_BYTES: usize = 64 << 10;
const MAX_COMPLETIONS: usize = 1 << 22;

/// A software RNIC between processes of this host. Clones are handles to the same device.
#[derive(Clone, Debug)]
pub struct ShmDevice {
    handle: Arc<Handle>,
}

/// Ends the control thread when the last object of the device is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.core.made_in.is_current() {
            // A child has no such thread.
            return std::mem::forget(thread);
        }
        self.core.control.stop();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Protection domain: regions and queue pairs can be used together only within one domain.
#[derive(Clone, Debug)]
pub struct ShmProtectionDomain {
    id: u64,
    device: [u8; 16],
    _device: Arc<Handle>,
}

/// The destination of datagrams: a queue pair of a peer's device.
#[derive(Clone, Debug)]
pub struct ShmAddressHandle {
    gid: [u8; 16],
    /// Whether that queue pair is gone.
    gone: Arc<AtomicBool>,
}

impl ShmAddressHandle {
    #[inline]
    pub(crate) fn gid(&self) -> [u8; 16] {
        self.gid
    }
}

impl ShmDevice {
    /// Opens a device and starts its control thread.
    ///
    /// # Errors
    /// When a setting is out of range, or a system call fails.
    pub fn open(config: ShmConfig) -> Result<Self, VerbsError> {
        check(&config)?;
        let mut uid = [0; 16];
        random::fill(&mut uid).map_err(|source| VerbsError::System {
            call: "getrandom for the device's identifier",
            source,
        })?;
        let table = RegionTable::new().map_err(system("memfd of the region table"))?;
        let control = ControlQueue::new().map_err(system("eventfd of the control thread"))?;
        descriptors::make_room(control.event())
            .map_err(system("growing the table of file descriptors"))?;
        let attributes = attributes(&config);
        let core = Arc::new(Core::new(config, attributes, uid, table, control));
        let thread = control::start(&core)?;
        Ok(Self {
            handle: Arc::new(Handle {
                core,
                thread: Some(thread),
            }),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.handle.core()
    }

    fn check_domain(&self, domain: &ShmProtectionDomain) -> Result<(), VerbsError> {
        self.core().made_in.check()?;
        if domain.device == self.core().uid {
            return Ok(());
        }
        Err(VerbsError::Invalid {
            argument: "domain",
            why: "belongs to another device".to_owned(),
        })
    }
}

fn check(config: &ShmConfig) -> Result<(), VerbsError> {
    let invalid = |argument, why: &str| {
        Err(VerbsError::Invalid {
            argument,
            why: why.to_owned(),
        })
    };
    if config.max_regions == 0 || config.max_regions > KEY_INDICES {
        return invalid("max_regions", "must be from 1 to 16384");
    }
    if config.control_timeout.is_zero() {
        return invalid("control_timeout", "must not be zero");
    }
    if config.max_queue_pairs == 0 || config.max_queue_pairs > NUMBER_INDICES {
        return invalid("max_queue_pairs", "must be from 1 to 16384");
    }
    if config.max_message_bytes == 0 || config.max_message_bytes > MAX_MESSAGE_BYTES {
        return invalid("max_message_bytes", "must be from 1 B to 1 GiB");
    }
    let port = |bytes: usize, least| bytes.is_power_of_two() && (least..=1 << 30).contains(&bytes);
    if !port(config.port_bytes, 4096) {
        return invalid("port_bytes", "must be a power of two from 4096 to 1 GiB");
    }
    if !port(config.datagram_port_bytes, 8192) {
        return invalid(
            "datagram_port_bytes",
            "must be a power of two from 8192 to 1 GiB",
        );
    }
    Ok(())
}

fn attributes(config: &ShmConfig) -> DeviceAttributes {
    let connected =
        Verbs::SEND | Verbs::WRITE | Verbs::WRITE_WITH_IMMEDIATE | Verbs::SHARED_RECEIVE;
    DeviceAttributes {
        name: config.name.clone(),
        transports: TransportSet {
            rc: connected | Verbs::READ | Verbs::ATOMIC,
            uc: connected,
            ud: Verbs::SEND | Verbs::SHARED_RECEIVE,
        },
        placement: config.placement,
        writes_are_messages: config.writes_are_messages,
        messages_per_second: None,
        lossless: true,
        packets_by_software: false,
        max_queue_pairs: config.max_queue_pairs,
        max_send_requests: MAX_REQUESTS,
        max_receive_requests: MAX_REQUESTS,
        max_segments: MAX_SEGMENTS,
        max_inline_bytes: MAX_INLINE_BYTES,
        max_completions: MAX_COMPLETIONS,
        max_regions: config.max_regions,
        max_registered_bytes: config.max_registered_bytes,
        max_message_bytes: config.max_message_bytes,
        mtu_bytes: MTU_BYTES,
        max_shared_receive_requests: MAX_REQUESTS,
        timestamps: false,
        page_kind: if huge_pages() {
            PageKind::Huge
        } else if transparent_pages() {
            PageKind::Transparent
        } else {
            PageKind::Base
        },
        raw_memory_remote: false,
        grants_are_mappings: true,
        speaks_roce: false,
    }
}

// SAFETY: each allocated region is a mapping of its own; the executor accesses only those that work requests name,
// whose rights it checks, before their completions, and peers map only those that grant them access.
#[allow(unsafe_code)]
unsafe impl Device for ShmDevice {
    type ProtectionDomain = ShmProtectionDomain;
    type Region = ShmRegion;
    type CompletionChannel = ShmCompletionChannel;
    type CompletionQueue = ShmCompletionQueue;
    type AddressHandle = ShmAddressHandle;
    type QueuePair = ShmQueuePair;
    type SharedReceiveQueue = ShmSharedReceiveQueue;

    fn attributes(&self) -> &DeviceAttributes {
        &self.core().attributes
    }

    fn create_protection_domain(&self) -> Result<ShmProtectionDomain, VerbsError> {
        self.core().made_in.check()?;
        Ok(ShmProtectionDomain {
            id: self.core().next_domain(),
            device: self.core().uid,
            _device: Arc::clone(&self.handle),
        })
    }

    fn allocate_region(
        &self,
        domain: &ShmProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<ShmRegion, VerbsError> {
        self.check_domain(domain)?;
        ShmRegion::allocate(&self.handle, domain.id, length, access)
    }

    unsafe fn register_raw(
        &self,
        domain: &ShmProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<ShmRegion, VerbsError> {
        self.check_domain(domain)?;
        // SAFETY: the caller makes the same promise.
        unsafe { ShmRegion::raw(&self.handle, domain.id, start, length, access) }
    }

    fn register_again(
        &self,
        domain: &ShmProtectionDomain,
        region: &ShmRegion,
        access: Access,
    ) -> Result<ShmRegion, VerbsError> {
        self.check_domain(domain)?;
        if !Arc::ptr_eq(region.device(), &self.handle) {
            return Err(VerbsError::Invalid {
                argument: "region",
                why: "belongs to another device".to_owned(),
            });
        }
        ShmRegion::again(&self.handle, domain.id, region, access)
    }

    fn create_completion_channel(&self) -> Result<ShmCompletionChannel, VerbsError> {
        self.core().made_in.check()?;
        ShmCompletionChannel::new()
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&ShmCompletionChannel>,
    ) -> Result<ShmCompletionQueue, VerbsError> {
        self.core().made_in.check()?;
        within("max_completions", entries, MAX_COMPLETIONS)?;
        Ok(ShmCompletionQueue::new(&self.handle, entries, channel))
    }

    fn create_queue_pair(
        &self,
        domain: &ShmProtectionDomain,
        config: &QueuePairConfig<'_, ShmCompletionQueue, ShmSharedReceiveQueue>,
    ) -> Result<ShmQueuePair, VerbsError> {
        self.check_domain(domain)?;
        within("max_send_requests", config.send_requests, MAX_REQUESTS)?;
        within("max_segments", config.segments, MAX_SEGMENTS)?;
        within("max_inline_bytes", config.inline_bytes, MAX_INLINE_BYTES)?;
        let core = self.core();
        let mut segments = config.segments;
        let mut port_bytes = core.config.port_bytes;
        if matches!(config.receive_queue, ReceiveQueue::OwnEmpty(_)) {
            segments = 0;
            port_bytes = port_bytes.min(EMPTY_PORT_BYTES);
        }
        let source = match config.receive_queue {
            ReceiveQueue::Own(requests) | ReceiveQueue::OwnEmpty(requests) => {
                within("max_receive_requests", requests, MAX_REQUESTS)?;
                ReceiveSource::Own(ReceiveRing::new(requests, segments))
            }
            ReceiveQueue::Shared(queue) if queue.core().domain == domain.id => {
                ReceiveSource::Shared(Arc::clone(queue.core()))
            }
            ReceiveQueue::Shared(_) => {
                return Err(VerbsError::Invalid {
                    argument: "receive_queue",
                    why: "belongs to another protection domain".to_owned(),
                })
            }
        };
        let send_cq = Arc::clone(config.send_completions.core());
        let receive_cq = Arc::clone(config.receive_completions.core());
        let shared = core.insert_queue_pair(|number| {
            let send_place = send_cq.reserve();
            let receive_place = receive_cq.reserve();
            Ok(Shared::new(Parts {
                core: Arc::clone(core),
                number,
                transport: config.transport,
                domain: domain.id,
                send_cq,
                receive_cq,
                send_place,
                receive_place,
                source,
                segments,
                port_bytes,
            }))
        })?;
        shared.send_cq.join(shared.send_place, &shared, false);
        shared.receive_cq.join(shared.receive_place, &shared, true);
        Ok(ShmQueuePair::new(
            &self.handle,
            shared,
            Limits {
                send_requests: config.send_requests,
                segments: config.segments,
                receive_segments: segments,
                inline_bytes: config.inline_bytes,
                in_order: core.attributes.placement == Placement::InOrder,
                message_bytes: core.attributes.max_message_bytes,
            },
        ))
    }

    fn create_shared_receive_queue(
        &self,
        domain: &ShmProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<ShmSharedReceiveQueue, VerbsError> {
        self.check_domain(domain)?;
        within("max_shared_receive_requests", requests, MAX_REQUESTS)?;
        within("max_segments", segments, MAX_SEGMENTS)?;
        Ok(ShmSharedReceiveQueue::new(
            &self.handle,
            domain.id,
            requests.max(1),
            segments,
        ))
    }

    fn create_address_handle(
        &self,
        domain: &ShmProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<ShmAddressHandle, VerbsError> {
        self.check_domain(domain)?;
        if address.gid == [0; 16] || address.lid != 0 {
            return Err(VerbsError::Address(
                "not an address of a shared-memory device".to_owned(),
            ));
        }
        let core = self.core();
        let handle = ShmAddressHandle {
            gid: address.gid,
            gone: core.destinations.flag(address.gid, address.queue_pair),
        };
        if address.gid != core.uid {
            // From now on the end of its process is detected, whether or not anything is sent.
            core.control.push(Command::Meet(address.gid));
        }
        Ok(handle)
    }

    #[inline]
    fn is_gone(handle: &ShmAddressHandle) -> bool {
        handle.gone.load(Ordering::Relaxed)
    }

    fn confirm_peer(
        &self,
        address: &EndpointAddress,
        patience: Duration,
    ) -> Result<PeerConfirmation, VerbsError> {
        // A child has no thread that could ask.
        self.core().made_in.check()?;
        let (answer, answered) = mpsc::sync_channel(1);
        let remote = *address;
        let control = &self.core().control;
        control.push(Command::Confirm { remote, answer });
        Err(VerbsError::Peer(match answered.recv_timeout(patience) {
            Ok(Confirmation::Confirmed(user)) => {
                return Ok(PeerConfirmation::Confirmed { user: Some(user) })
            }
            Ok(Confirmation::Silent) | Err(_) => return Ok(PeerConfirmation::Silent),
            Ok(Confirmation::Denied) => "its device does not have such a queue pair".to_owned(),
            Ok(Confirmation::Unknown(Errno::ACCESS)) => {
                "its device belongs to another user, whose folder is not accessible or is a different one"
                    .to_owned()
            }
            Ok(Confirmation::Unknown(errno)) => format!("cannot reach its device: {errno}"),
        }))
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.core().pop_event()
    }
}
