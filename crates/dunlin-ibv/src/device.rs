//! The device: opening it, and creating all other objects.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    within, Access, AnyRegion, AsyncEvent, Device, DeviceAttributes, EndpointAddress,
    QueuePairConfig, ReceiveQueue, Transport, Verbs, VerbsError,
};

use crate::address::IbvAddressHandle;
use crate::channel::IbvCompletionChannel;
use crate::completion_queue::IbvCompletionQueue;
use crate::config::IbvConfig;
use crate::context::{Core, Keys, Shared};
use crate::error::{absent, invalid, last};
use crate::events::{EventThread, Events};
use crate::last_receive::LastReceives;
use crate::limits::{attributes, query, reads, try_out};
use crate::link::{self, Link};
use crate::list::{library, DeviceList};
use crate::placement::{is_soft_roce, placement, PlacementReason};
use crate::port::{choose_port, examine, PortReport};
use crate::queue_pair::IbvQueuePair;
use crate::region::IbvRegion;
use crate::shared_receive::IbvSharedReceiveQueue;
use crate::sys::extended::Extended;
use crate::sys::{types, Api};
use crate::work_table::Registry;

/// An RDMA NIC accessed through libibverbs. Clones are handles to the same open device.
#[derive(Clone, Debug)]
pub struct IbvDevice {
    device: Arc<EventThread>,
}

/// The part of a protection domain that its objects hold.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) raw: Shared<types::Pd>,
    pub(crate) device: Arc<EventThread>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        let core = self.device.core();
        if !core.made_in.is_current() {
            return;
        }
        // SAFETY: all objects of the domain hold this value, so none is left; it ends once.
        let errno = unsafe { (core.api.dealloc_pd)(self.raw.0) };
        if errno != 0 {
            tracing::warn!(device = %core.nic, errno, "ibv_dealloc_pd failed");
        }
    }
}

/// Protection domain: regions and queue pairs can be used together only within one domain.
#[derive(Clone, Debug)]
pub struct IbvProtectionDomain {
    domain: Arc<Domain>,
}

/// Closes a context that has no [`Core`] yet.
struct Opened<'a> {
    api: &'a Api,
    context: Shared<types::Context>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by `IbvDevice::open_with`, and no object was made from it.
        unsafe { (self.api.close_device)(self.context.0) };
    }
}

impl IbvDevice {
    /// Opens the device that `config` asks for, or the first with an active port and a usable GID.
    ///
    /// # Errors
    /// The library is missing; there is no device, or not the requested one; its port is down or has no GID. Each error
    /// says what to do.
    pub fn open(config: IbvConfig) -> Result<Self, VerbsError> {
        let api = library(&config.library)?;
        Self::open_with(api, config)
    }

    pub(crate) fn open_with(api: Api, config: IbvConfig) -> Result<Self, VerbsError> {
        let list = DeviceList::new(&api)?;
        let names = list.names();
        if names.is_empty() {
            return Err(absent(
                "ibv_get_device_list",
                "no RDMA device found: is its driver loaded (mlx5_ib, irdma, bnxt_re, ...; for soft-RoCE: modprobe \
                 rdma_rxe && rdma link add rxe0 type rxe netdev IFACE), and are ib_uverbs loaded and ibverbs-providers \
                 installed?",
            ));
        }
        let mut first = None;
        let mut found = false;
        for (raw, nic) in &names {
            if config.device.as_ref().is_some_and(|wanted| wanted != nic) {
                continue;
            }
            found = true;
            match Self::open_one(api, &list, *raw, nic, &config) {
                Ok(device) => return Ok(device),
                Err(error) => first = first.or(Some(error)),
            }
        }
        if found {
            if let Some(error) = first {
                return Err(error);
            }
        }
        let all: Vec<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
        let wanted = config.device.unwrap_or_default();
        Err(absent(
            "ibv_get_device_list",
            format!("no such device `{wanted}`; available: {}", all.join(", ")),
        ))
    }

    fn open_one(
        api: Api,
        list: &DeviceList<'_>,
        raw: *mut types::Device,
        nic: &str,
        config: &IbvConfig,
    ) -> Result<Self, VerbsError> {
        let context = Shared(list.open(raw, nic)?);
        let opened = Opened { api: &api, context };
        let device = query(&api, context, nic)?;
        let port = choose_port(&api, context.0, nic, device.ports, config)?;
        let soft_roce = is_soft_roce(&config.sysfs, nic, device.vendor_id);
        let mut core = Core {
            made_in: Generation::current(),
            api,
            context,
            config: config.clone(),
            nic: nic.to_owned(),
            attributes: attributes(config, nic, &device, &port),
            placement_reason: PlacementReason::NotPromised,
            link: Link::new(port),
            reads_initiated: reads(device.max_qp_initiated_reads),
            reads_answered: reads(device.max_qp_reads),
            tables: Registry::default(),
            queues: Mutex::new(HashMap::new()),
            last_receives: LastReceives::default(),
            events: Events::default(),
            keys: Keys::default(),
            extended: if config.extended.unwrap_or(!soft_roce) {
                // SAFETY: the context is open, and stays so as long as the core.
                unsafe { Extended::of(context.0) }
            } else {
                None
            },
            clock: None,
            posts_by_calls: false,
            soft_roce,
            registered: AtomicUsize::new(0),
            next_vector: AtomicUsize::new(0),
        };
        // From here on `core` closes the context.
        std::mem::forget(opened);
        let tried = try_out(&core)?;
        core.attributes.max_inline_bytes = tried.inline_bytes;
        core.clock = tried.clock;
        core.attributes.timestamps = core.clock.is_some();
        core.attributes.packets_by_software = soft_roce;
        core.posts_by_calls = tried.posts_by_calls;
        for transport in tried.absent {
            let transports = &mut core.attributes.transports;
            match transport {
                Transport::ReliableConnection => transports.rc = Verbs::empty(),
                Transport::UnreliableConnection => transports.uc = Verbs::empty(),
                Transport::UnreliableDatagram => transports.ud = Verbs::empty(),
            }
        }
        (core.attributes.placement, core.placement_reason) =
            placement(config.placement, core.soft_roce, tried.in_order);
        // The kernel stores a packet by string moves, which are in order up to cache line granularity. That is all that
        // a batch needs whose first line is written last.
        core.attributes.writes_are_messages = !core.soft_roce;
        Ok(Self {
            device: Arc::new(EventThread::start(Arc::new(core))?),
        })
    }

    pub(crate) fn core(&self) -> &Core {
        self.device.core()
    }

    #[cfg(test)]
    pub(crate) fn context(&self) -> *mut types::Context {
        self.core().context.0
    }

    /// The NIC's own name.
    pub fn nic(&self) -> &str {
        &self.core().nic
    }

    /// The port, path MTU and GID that were chosen, and why, in their current state.
    pub fn port(&self) -> Arc<PortReport> {
        self.core().link.port()
    }

    /// Whether the chosen GID has this IP address, or belongs to the interface that has it.
    pub fn is_at(&self, address: IpAddr) -> bool {
        let core = self.core();
        let number = core.link.port().number;
        let of_address = IbvConfig {
            local_address: Some(address),
            gid_index: None,
            ..core.config.clone()
        };
        examine(
            &core.api,
            core.context.0,
            &core.nic,
            number,
            &of_address,
            None,
        )
        .is_ok()
    }

    /// Queries the port again, as the event thread does by itself. New connections use the result.
    pub fn look_again(&self) {
        link::look_again(self.core());
    }

    /// Why the device assumes the order of WRITEs that its attributes state.
    pub fn placement_reason(&self) -> PlacementReason {
        self.core().placement_reason
    }

    /// What was chosen and why, each as a name and a sentence, for display.
    pub fn choices(&self) -> Vec<(&'static str, String)> {
        let (core, port) = (self.core(), self.port());
        let state = match core.link.down() {
            None => "active",
            Some(_) => "not usable now",
        };
        let link = if port.ethernet {
            "Ethernet (RoCE)"
        } else {
            "InfiniBand"
        };
        let says =
            |choice: String, variable: &str| format!("{choice}; otherwise: DUNLIN_IBV_{variable}");
        let attributes = &core.attributes;
        let depth = format!(
            "{} requested at once, {} answered",
            core.reads_initiated, core.reads_answered
        );
        vec![
            (
                "port",
                says(
                    format!("{} of {}, {state}, {link}", port.number, core.nic),
                    "PORT",
                ),
            ),
            (
                "address",
                says(format!("{}: {}", port.gid, port.why), "GID_INDEX, _ADDRESS"),
            ),
            ("path MTU", says(format!("{} bytes", port.mtu_bytes), "MTU")),
            (
                "order of placement",
                says(core.placement_reason.to_string(), "PLACEMENT"),
            ),
            ("READs and atomics", depth),
            (
                "traffic class",
                says(core.config.traffic_class.to_string(), "TRAFFIC_CLASS"),
            ),
            (
                "service level",
                says(core.config.service_level.to_string(), "SERVICE_LEVEL"),
            ),
            ("extended calls", says(core.extended_words(), "EXTENDED")),
            (
                "inline bytes",
                format!("{}, by trial", attributes.max_inline_bytes),
            ),
        ]
    }

    fn check_domain(&self, domain: &IbvProtectionDomain) -> Result<(), VerbsError> {
        self.core().made_in.check()?;
        self.check_device("domain", &domain.domain.device)
    }

    /// Checks that an object belongs to this device: objects of different open devices must not be combined, and
    /// providers do not check that.
    fn check_device(&self, what: &'static str, of: &Arc<EventThread>) -> Result<(), VerbsError> {
        if Arc::ptr_eq(of, &self.device) {
            return Ok(());
        }
        Err(invalid(what, "belongs to another device"))
    }
}

// SAFETY: each allocated region has memory of its own, and the NIC keeps to what verbs promise about work requests and
// access rights.
#[allow(unsafe_code)]
unsafe impl Device for IbvDevice {
    type ProtectionDomain = IbvProtectionDomain;
    type Region = IbvRegion;
    type CompletionChannel = IbvCompletionChannel;
    type CompletionQueue = IbvCompletionQueue;
    type AddressHandle = IbvAddressHandle;
    type QueuePair = IbvQueuePair;
    type SharedReceiveQueue = IbvSharedReceiveQueue;

    fn attributes(&self) -> &DeviceAttributes {
        &self.core().attributes
    }

    fn create_protection_domain(&self) -> Result<IbvProtectionDomain, VerbsError> {
        let core = self.core();
        core.made_in.check()?;
        // SAFETY: the context is open.
        let raw = unsafe { (core.api.alloc_pd)(core.context.0) };
        if raw.is_null() {
            return Err(last(
                "ibv_alloc_pd",
                format!("a protection domain on {}", core.nic),
            ));
        }
        Ok(IbvProtectionDomain {
            domain: Arc::new(Domain {
                raw: Shared(raw),
                device: Arc::clone(&self.device),
            }),
        })
    }

    fn allocate_region(
        &self,
        domain: &IbvProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<IbvRegion, VerbsError> {
        self.check_domain(domain)?;
        IbvRegion::allocate(&domain.domain, length, access)
    }

    unsafe fn register_raw(
        &self,
        domain: &IbvProtectionDomain,
        start: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<IbvRegion, VerbsError> {
        self.check_domain(domain)?;
        // SAFETY: the caller makes the same promise.
        unsafe { IbvRegion::raw(&domain.domain, start, length, access) }
    }

    fn register_again(
        &self,
        domain: &IbvProtectionDomain,
        region: &IbvRegion,
        access: Access,
    ) -> Result<IbvRegion, VerbsError> {
        self.check_domain(domain)?;
        IbvRegion::again(&domain.domain, region, access)
    }

    fn adopt_region(
        &self,
        domain: &IbvProtectionDomain,
        region: &Arc<dyn AnyRegion>,
        access: Access,
    ) -> Result<Option<IbvRegion>, VerbsError> {
        self.check_domain(domain)?;
        IbvRegion::adopt(&domain.domain, region, access).map(Some)
    }

    fn create_completion_channel(&self) -> Result<IbvCompletionChannel, VerbsError> {
        self.core().made_in.check()?;
        IbvCompletionChannel::new(&self.device)
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&IbvCompletionChannel>,
    ) -> Result<IbvCompletionQueue, VerbsError> {
        self.core().made_in.check()?;
        within(
            "max_completions",
            entries,
            self.attributes().max_completions,
        )?;
        if let Some(channel) = channel {
            self.check_device("channel", &channel.inner().device)?;
        }
        IbvCompletionQueue::new(&self.device, entries, channel)
    }

    fn create_queue_pair(
        &self,
        domain: &IbvProtectionDomain,
        config: &QueuePairConfig<'_, IbvCompletionQueue, IbvSharedReceiveQueue>,
    ) -> Result<IbvQueuePair, VerbsError> {
        self.check_domain(domain)?;
        for (what, queue) in [
            ("send_completions", config.send_completions),
            ("receive_completions", config.receive_completions),
        ] {
            self.check_device(what, &queue.core().device)?;
        }
        let most = self.attributes();
        let verbs = most.transports.verbs(config.transport);
        let lacks = |what: String| VerbsError::Unsupported {
            device: most.name.clone(),
            what,
        };
        if verbs.is_empty() {
            return Err(lacks(config.transport.to_string()));
        }
        within(
            "max_send_requests",
            config.send_requests,
            most.max_send_requests,
        )?;
        within("max_segments", config.segments, most.max_segments)?;
        within(
            "max_inline_bytes",
            config.inline_bytes,
            most.max_inline_bytes,
        )?;
        match config.receive_queue {
            ReceiveQueue::Own(requests) | ReceiveQueue::OwnEmpty(requests) => {
                within("max_receive_requests", requests, most.max_receive_requests)?;
            }
            ReceiveQueue::Shared(_) if !verbs.contains(Verbs::SHARED_RECEIVE) => {
                return Err(lacks(format!(
                    "shared receive queues on {}",
                    config.transport
                )));
            }
            ReceiveQueue::Shared(_) => {}
        }
        IbvQueuePair::new(&domain.domain, config)
    }

    fn create_shared_receive_queue(
        &self,
        domain: &IbvProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<IbvSharedReceiveQueue, VerbsError> {
        self.check_domain(domain)?;
        let most = self.attributes();
        within(
            "max_shared_receive_requests",
            requests,
            most.max_shared_receive_requests,
        )?;
        within("max_segments", segments, most.max_segments)?;
        IbvSharedReceiveQueue::new(&domain.domain, requests, segments)
    }

    fn create_address_handle(
        &self,
        domain: &IbvProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<IbvAddressHandle, VerbsError> {
        self.create_address_handle_of_class(domain, address, 0)
    }

    fn create_address_handle_of_class(
        &self,
        domain: &IbvProtectionDomain,
        address: &EndpointAddress,
        traffic_class: u8,
    ) -> Result<IbvAddressHandle, VerbsError> {
        self.check_domain(domain)?;
        IbvAddressHandle::new(&domain.domain, address, traffic_class)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        let core = self.core();
        core.made_in
            .is_current()
            .then(|| core.events.pop())
            .flatten()
    }
}
