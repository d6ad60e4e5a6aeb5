//! The device: opening it, and creating all other objects.

use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_verbs::progress::{self, Progress};
use dunlin_verbs::{
    best_pages, within, Access, AnyRegion, AsyncEvent, Device, DeviceAttributes, EndpointAddress,
    PeerConfirmation, Placement, QueuePairConfig, ReceiveQueue as ReceiveQueueConfig, Transport,
    TransportSet, Verbs, VerbsError,
};

use crate::address::{gid, limit_payload, Peer, RoceAddressHandle};
use crate::channel::RoceCompletionChannel;
use crate::completion_queue::{RoceCompletionQueue, RoceCompletions};

use crate::config::{RoceConfig, ROCE_PORT};
use crate::core::Core;
use crate::engine::{Parts, Shared};
use crate::memory::MAX_REGIONS;
use crate::packet::{Psn, MAX_PAYLOAD_BYTES};
use crate::port::{Driver, Port, MAX_QUEUE_PAIRS};
use crate::queue_pair::{Limits, RoceQueuePair};
use crate::region::RoceRegion;
use crate::shared_receive::RoceSharedReceiveQueue;
use crate::socket::{link_of_interface, Count, Link, Route, COUNTS};
use crate::sync::{lock, random_u32};
use crate::work::ReceiveQueue;

const MAX_REQUESTS: usize = 1 << 16;
const MAX_SEGMENTS: usize = 32;
const MAX_INLINE_BYTES: usize = 4096;
const MAX_COMPLETIONS: usize = 1 << 22;
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// A software RNIC on UDP. Clones are handles to the same device.
#[derive(Clone, Debug)]
pub struct RoceDevice {
    handle: Arc<Handle>,
    /// The local address, if one was chosen.
    local: Option<IpAddr>,
    /// The limits of the path from there, as far as the configuration allows.
    link: Link,
    attributes: Arc<DeviceAttributes>,
}

/// The open device; its thread ends when the last handle and the last queue pair are gone.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) port: Arc<Port>,
    /// Its thread, once the first queue pair has been created.
    driver: Mutex<Option<Driver>>,
}

impl Handle {
    /// Starts the device's thread, unless it is running.
    fn drive(&self) -> Result<(), VerbsError> {
        let mut driver = lock(&self.driver);
        if driver.is_none() {
            *driver = Some(Driver::start(&self.port)?);
            let port: Arc<dyn Progress> = self.port.clone();
            progress::register(Arc::downgrade(&port));
        }
        Ok(())
    }
}

/// Protection domain: regions and queue pairs can be used together only within one domain.
#[derive(Clone, Debug)]
pub struct RoceProtectionDomain {
    id: u64,
    device: Arc<Handle>,
}

impl RoceDevice {
    /// Opens a device: binds its UDP port and starts its thread.
    ///
    /// # Errors
    /// When a setting is out of range, the port is in use, or another system call fails.
    pub fn open(config: RoceConfig) -> Result<Self, VerbsError> {
        check(&config)?;
        let local = config.local_address.map(|address| address.to_canonical());
        let of_interface = link_of_interface(local);
        let link = config.link(local.map(|_| of_interface));
        let attributes = attributes(&config, of_interface.mtu_bytes);
        let port = Arc::new(Port::new(Arc::new(Core::open(config)?)));
        Ok(Self {
            handle: Arc::new(Handle {
                port,
                driver: Mutex::new(None),
            }),
            local,
            link,
            attributes: Arc::new(attributes),
        })
    }

    /// Returns the same device for one peer: queue pairs created with it have the local address and path MTU that the
    /// routing table gives for that peer. Unchanged if the device was opened for one address, or there is no route.
    #[must_use]
    pub fn towards(&self, peer: IpAddr) -> Self {
        let config = &self.core().config;
        let route = match config.local_address {
            Some(_) => None,
            None => Route::find(None, peer.to_canonical()),
        };
        let Some(route) = route else {
            return self.clone();
        };
        Self {
            handle: Arc::clone(&self.handle),
            local: Some(route.local),
            link: config.link(Some(route.link)),
            attributes: Arc::new(attributes(config, route.link.mtu_bytes)),
        }
    }

    /// The local address of its queue pairs, if one was chosen.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.local
    }

    /// Its UDP port.
    pub fn port(&self) -> u16 {
        self.core().socket.port()
    }

    /// Maximum payload in bytes of a packet between two Dunlin devices, on the path for which this device was opened or
    /// which [`RoceDevice::towards`] found; 0 if all packets respect the MTU. The receive buffers of both ends may
    /// limit it further.
    pub fn payload_bytes(&self) -> usize {
        self.link.payload_bytes
    }

    /// Size of the socket's receive buffer in bytes, as granted by the system.
    pub fn receive_buffer_bytes(&self) -> usize {
        self.core().socket.receive_buffer_bytes()
    }

    /// Number of such events since the device was opened.
    pub fn count(&self, what: Count) -> u64 {
        self.core().socket.statistics.get(what)
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Arc<Port> {
        &self.handle.port
    }

    fn core(&self) -> &Arc<Core> {
        &self.handle.port.core
    }

    fn check_domain(&self, domain: &RoceProtectionDomain) -> Result<(), VerbsError> {
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

fn check(config: &RoceConfig) -> Result<(), VerbsError> {
    let invalid = |argument, why: &str| {
        Err(VerbsError::Invalid {
            argument,
            why: why.to_owned(),
        })
    };
    if ![256, 512, 1024, 2048, 4096].contains(&config.mtu_bytes) {
        return invalid("mtu_bytes", "must be 256, 512, 1024, 2048 or 4096");
    }
    if config.payload_bytes > MAX_PAYLOAD_BYTES as usize {
        return invalid("payload_bytes", "must be at most 57344");
    }
    if config.max_regions == 0 || config.max_regions > MAX_REGIONS {
        return invalid("max_regions", "must be from 1 to 65536");
    }
    if config.max_queue_pairs == 0 || config.max_queue_pairs > MAX_QUEUE_PAIRS {
        return invalid("max_queue_pairs", "must be from 1 to 32768");
    }
    if config
        .local_address
        .is_some_and(|address| address.is_unspecified())
    {
        return invalid("local_address", "must be an address of this host, or unset");
    }
    Ok(())
}

fn attributes(config: &RoceConfig, link_mtu_bytes: usize) -> DeviceAttributes {
    let connected =
        Verbs::SEND | Verbs::WRITE | Verbs::WRITE_WITH_IMMEDIATE | Verbs::SHARED_RECEIVE;
    DeviceAttributes {
        name: config.name.clone(),
        transports: TransportSet {
            rc: connected | Verbs::READ | Verbs::ATOMIC,
            uc: connected,
            ud: Verbs::SEND | Verbs::SHARED_RECEIVE,
        },
        placement: Placement::InOrder,
        writes_are_messages: true,
        messages_per_second: None,
        lossless: false,
        packets_by_software: true,
        max_queue_pairs: config.max_queue_pairs,
        max_send_requests: MAX_REQUESTS,
        max_receive_requests: MAX_REQUESTS,
        max_segments: MAX_SEGMENTS,
        max_inline_bytes: MAX_INLINE_BYTES,
        max_completions: MAX_COMPLETIONS,
        max_regions: config.max_regions,
        max_registered_bytes: config.max_registered_bytes,
        max_message_bytes: MAX_MESSAGE_BYTES,
        mtu_bytes: config.mtu_bytes.min(link_mtu_bytes),
        max_shared_receive_requests: MAX_REQUESTS,
        timestamps: false,
        page_kind: best_pages(config.huge_pages),
        raw_memory_remote: true,
        grants_are_mappings: false,
        speaks_roce: config.port == ROCE_PORT,
    }
}

// SAFETY: each allocated region has memory of its own; packets change only what a work request or a grant names, by the
// checks of the responder and the requester.
#[allow(unsafe_code)]
unsafe impl Device for RoceDevice {
    type ProtectionDomain = RoceProtectionDomain;
    type Region = RoceRegion;
    type CompletionChannel = RoceCompletionChannel;
    type CompletionQueue = RoceCompletionQueue;
    type AddressHandle = RoceAddressHandle;
    type QueuePair = RoceQueuePair;
    type SharedReceiveQueue = RoceSharedReceiveQueue;

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        let all = COUNTS.iter();
        all.map(|&what| (what.name(), self.count(what))).collect()
    }

    fn create_protection_domain(&self) -> Result<RoceProtectionDomain, VerbsError> {
        self.core().made_in.check()?;
        Ok(RoceProtectionDomain {
            id: self.core().next_domain(),
            device: Arc::clone(&self.handle),
        })
    }

    fn allocate_region(
        &self,
        domain: &RoceProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<RoceRegion, VerbsError> {
        self.check_domain(domain)?;
        RoceRegion::allocate(self.core(), domain.id, length, access)
    }

    #[allow(unsafe_code)]
    unsafe fn register_raw(
        &self,
        domain: &RoceProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<RoceRegion, VerbsError> {
        self.check_domain(domain)?;
        // SAFETY: the caller makes the same promise.
        unsafe { RoceRegion::raw(self.core(), domain.id, start, length, access) }
    }

    fn register_again(
        &self,
        domain: &RoceProtectionDomain,
        region: &RoceRegion,
        access: Access,
    ) -> Result<RoceRegion, VerbsError> {
        self.check_domain(domain)?;
        region.again(self.core(), domain.id, access)
    }

    fn adopt_region(
        &self,
        domain: &RoceProtectionDomain,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Option<RoceRegion>, VerbsError> {
        self.check_domain(domain)?;
        RoceRegion::adopt(self.core(), domain.id, region, access).map(Some)
    }

    fn create_completion_channel(&self) -> Result<RoceCompletionChannel, VerbsError> {
        self.core().made_in.check()?;
        RoceCompletionChannel::new()
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&RoceCompletionChannel>,
    ) -> Result<RoceCompletionQueue, VerbsError> {
        let core = self.core();
        core.made_in.check()?;
        within("max_completions", entries, MAX_COMPLETIONS)?;
        let completions = RoceCompletions::new(entries, channel.cloned());
        Ok(RoceCompletionQueue::new(&self.handle.port, completions))
    }

    fn create_queue_pair(
        &self,
        domain: &RoceProtectionDomain,
        config: &QueuePairConfig<'_, RoceCompletionQueue, RoceSharedReceiveQueue>,
    ) -> Result<RoceQueuePair, VerbsError> {
        self.check_domain(domain)?;
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
            ReceiveQueueConfig::Shared(queue) if queue.queue().domain == domain.id => {
                Arc::clone(queue.queue())
            }
            ReceiveQueueConfig::Shared(_) => {
                return Err(VerbsError::Invalid {
                    argument: "receive_queue",
                    why: "belongs to another protection domain".to_owned(),
                })
            }
        };
        let shares_receives = matches!(config.receive_queue, ReceiveQueueConfig::Shared(_));
        let queue_key = match self.core().config.queue_key {
            Some(key) => key,
            None => random_u32()?,
        };
        let first_psn = Psn::new(random_u32()?);
        let make = |number| {
            let parts = Parts {
                core: Arc::clone(self.core()),
                number,
                transport: config.transport,
                domain: domain.id,
                queue_key,
                send_completions: Arc::clone(config.send_completions.completions()),
                receive_completions: Arc::clone(config.receive_completions.completions()),
                receives,
                shares_receives,
                send_requests: config.send_requests.max(1),
            };
            Shared::new(parts, first_psn)
        };
        self.handle.drive()?;
        let shared = self.handle.port.pairs.insert(make)?;
        let limits = Limits {
            segments: config.segments,
            inline_bytes: config.inline_bytes,
            message_bytes: match config.transport {
                Transport::UnreliableDatagram => self.attributes.mtu_bytes,
                _ => MAX_MESSAGE_BYTES,
            },
            link: self.link,
        };
        Ok(RoceQueuePair::new(&self.handle, shared, limits, self.local))
    }

    fn create_shared_receive_queue(
        &self,
        domain: &RoceProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<RoceSharedReceiveQueue, VerbsError> {
        self.check_domain(domain)?;
        within("max_shared_receive_requests", requests, MAX_REQUESTS)?;
        within("max_segments", segments, MAX_SEGMENTS)?;
        let queue = ReceiveQueue::new(requests.max(1), segments, domain.id);
        Ok(RoceSharedReceiveQueue::new(queue, self.core().made_in))
    }

    fn create_address_handle(
        &self,
        domain: &RoceProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<RoceAddressHandle, VerbsError> {
        self.check_domain(domain)?;
        let peer = Peer::new(address, &self.core().habits())?;
        let route = || Route::find(None, peer.address).map(|route| route.local);
        let local = self.local.or_else(route);
        Ok(RoceAddressHandle {
            // Without a route the system reports that for each datagram.
            local: local.unwrap_or(Ipv6Addr::UNSPECIFIED.into()),
            peer,
        })
    }

    fn address_for(&self, own: EndpointAddress, peer: &EndpointAddress) -> EndpointAddress {
        let remote = Ipv6Addr::from(peer.gid).to_canonical();
        let chosen = (own.gid != [0; 16]).then(|| Ipv6Addr::from(own.gid).to_canonical());
        let route = Route::find(chosen, remote);
        let carried = Link {
            mtu_bytes: own.mtu_bytes as usize,
            payload_bytes: route.map_or(0, |route| route.link.payload_bytes),
        };
        // If the local address was chosen, what was determined about the MTU before still holds.
        let (gid, carried) = match route {
            Some(route) if chosen.is_none() => (gid(route.local), carried.min(route.link)),
            _ => (own.gid, carried),
        };
        // The value given to the peer here is also used by the queue pair itself when it is connected.
        let carried = self.handle.port.probes.limit(remote, carried);
        EndpointAddress {
            gid,
            mtu_bytes: carried.mtu_bytes as u32,
            token: limit_payload(own.token, carried.payload_bytes),
            ..own
        }
    }

    fn confirm_peer(
        &self,
        address: &EndpointAddress,
        patience: Duration,
    ) -> Result<PeerConfirmation, VerbsError> {
        self.core().made_in.check()?;
        let peer = Peer::new(address, &self.core().habits())?;
        let port = &self.handle.port;
        port.find_out(peer, self.local, self.link, patience);
        // The peer's handshake came by TCP, from the address that it states.
        Ok(PeerConfirmation::Confirmed { user: None })
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.core().pop_event()
    }
}
