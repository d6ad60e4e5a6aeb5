//! The device of a host: the verbs traits over the world.

mod channel;
mod completion_queue;
mod post;
mod queue_pair;
mod region;
mod shared_receive;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{
    Access, AsyncEvent, Device, DeviceAttributes, EndpointAddress, PageKind, Placement,
    QueuePairConfig, ReceiveQueue, Simulation, TransportSet, Verbs, VerbsError, Work,
};

use crate::context;
use crate::event::{after, NS};
use crate::inner::Inner;
use crate::memory::REGIONS_MAX;
use crate::parameters::NicParameters;
use crate::priority;
use crate::stack;
use crate::threads::TOO_MANY_THREADS;
use crate::world::QUEUE_PAIRS_MAX;

pub use channel::SimCompletionChannel;
pub use completion_queue::SimCompletionQueue;
pub use queue_pair::SimQueuePair;
pub use region::SimRegion;
pub use shared_receive::SimSharedReceiveQueue;

/// Limits that are not part of the model: what drivers of these NICs report, rounded.
const MAX_REQUESTS: usize = 1 << 15;
const MAX_SEGMENTS: usize = 30;
const MAX_COMPLETIONS: usize = 1 << 22;
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// Maximum number of registered bytes of a simulated host: they are backed by real memory of this machine.
const MAX_REGISTERED_BYTES: usize = 64 << 30;

/// The NIC of a simulated host. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct SimDevice {
    inner: Arc<Inner>,
    host: u16,
    attributes: Arc<DeviceAttributes>,
}

/// A protection domain: regions and queue pairs of one domain work together.
#[derive(Clone, Debug)]
pub struct SimProtectionDomain {
    inner: Arc<Inner>,
    host: u16,
    number: u32,
}

/// The destination of datagrams: a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimAddressHandle {
    host: u16,
    priority: u8,
}

impl SimDevice {
    pub(crate) fn new(inner: Arc<Inner>, host: u16) -> Self {
        let attributes = {
            let world = inner.world(host);
            Arc::new(attributes(
                &world.hosts[usize::from(host)].nic.parameters,
                world.network.paths.lossless & priority::bit(0) != 0,
                host,
            ))
        };
        Self {
            inner,
            host,
            attributes,
        }
    }

    fn check_domain(&self, domain: &SimProtectionDomain) -> Result<(), VerbsError> {
        if domain.host == self.host && Arc::ptr_eq(&domain.inner, &self.inner) {
            return Ok(());
        }
        Err(VerbsError::Invalid {
            argument: "domain",
            why: "of another device".to_owned(),
        })
    }
}

fn attributes(nic: &NicParameters, lossless: bool, host: u16) -> DeviceAttributes {
    let connected =
        Verbs::SEND | Verbs::WRITE | Verbs::WRITE_WITH_IMMEDIATE | Verbs::SHARED_RECEIVE;
    DeviceAttributes {
        name: format!("sim{host} ({})", nic.name),
        transports: TransportSet {
            rc: connected | Verbs::READ | Verbs::ATOMIC,
            uc: connected,
            ud: Verbs::SEND | Verbs::SHARED_RECEIVE,
        },
        placement: if nic.in_order_placement == 0.0 {
            Placement::Unordered
        } else {
            Placement::InOrder
        },
        writes_are_messages: true,
        messages_per_second: Some(nic.messages_per_second()),
        lossless,
        packets_by_software: false,
        max_queue_pairs: QUEUE_PAIRS_MAX,
        max_send_requests: MAX_REQUESTS,
        max_receive_requests: MAX_REQUESTS,
        max_segments: MAX_SEGMENTS,
        max_inline_bytes: nic.max_inline_bytes as usize,
        max_completions: MAX_COMPLETIONS,
        max_regions: REGIONS_MAX,
        max_registered_bytes: MAX_REGISTERED_BYTES,
        max_message_bytes: MAX_MESSAGE_BYTES,
        mtu_bytes: nic.mtu_bytes as usize,
        max_shared_receive_requests: MAX_REQUESTS,
        timestamps: true,
        page_kind: PageKind::Huge,
        raw_memory_remote: true,
        grants_are_mappings: false,
        speaks_roce: false,
    }
}

fn limit(
    resource: &'static str,
    asked: usize,
    available: usize,
    limit: usize,
) -> Result<(), VerbsError> {
    if asked <= available {
        return Ok(());
    }
    Err(VerbsError::Limit {
        resource,
        asked,
        available,
        limit,
    })
}

fn within(resource: &'static str, asked: usize, most: usize) -> Result<(), VerbsError> {
    limit(resource, asked, most, most)
}

/// The gid of a host: the number of the cluster in this process, and the number of the host.
fn gid(cluster: u64, host: u16) -> [u8; 16] {
    let mut gid = *b"dnsm\0\0\0\0\0\0\0\0\0\0\0\0";
    gid[4..12].copy_from_slice(&cluster.to_le_bytes());
    gid[12..14].copy_from_slice(&host.to_le_bytes());
    gid
}

/// The host that an address names.
fn host_of(inner: &Inner, address: &EndpointAddress, from: u16) -> Result<u16, VerbsError> {
    let host = u16::from_le_bytes([address.gid[12], address.gid[13]]);
    if address.gid != gid(inner.id, host) || usize::from(host) >= inner.division.hosts.len() {
        return Err(VerbsError::Address(
            "not of a host of this simulated cluster".to_owned(),
        ));
    }
    if !inner.world(from).network.paths.reaches(from, host) {
        return Err(VerbsError::Address(format!(
            "no way from host {from} to host {host}"
        )));
    }
    Ok(host)
}

/// Virtual time within which a thread that is joined has to end.
const JOIN: Duration = Duration::from_millis(200);

/// Lets time pass until a simulated thread has ended.
fn join(inner: &Inner, ended: &AtomicBool) -> std::thread::Result<()> {
    let over = || ended.load(Ordering::Acquire);
    let is_over = if thread::is_simulated() {
        let begun = thread::now();
        while !over() && thread::now().duration_since(begun) < JOIN {
            thread::sleep(Duration::from_micros(10));
        }
        over()
    } else {
        let until = after(inner.part(0).now, JOIN.as_nanos() as u64);
        inner.run_while(until, |_| over())
    };
    if is_over {
        return Ok(());
    }
    Err(Box::new("a simulated thread does not end"))
}

// SAFETY: each region that is allocated is a block of its own; the model of the NIC moves bytes for work requests
// before their completions, and for peers according to the rights that were granted.
#[allow(unsafe_code)]
unsafe impl Device for SimDevice {
    type ProtectionDomain = SimProtectionDomain;
    type Region = SimRegion;
    type CompletionChannel = SimCompletionChannel;
    type CompletionQueue = SimCompletionQueue;
    type AddressHandle = SimAddressHandle;
    type QueuePair = SimQueuePair;
    type SharedReceiveQueue = SimSharedReceiveQueue;

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    fn create_protection_domain(&self) -> Result<SimProtectionDomain, VerbsError> {
        let mut world = self.inner.world(self.host);
        let host = &mut world.hosts[usize::from(self.host)];
        host.next_domain += 1;
        let number = host.next_domain;
        Ok(SimProtectionDomain {
            inner: Arc::clone(&self.inner),
            host: self.host,
            number,
        })
    }

    fn allocate_region(
        &self,
        domain: &SimProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<SimRegion, VerbsError> {
        self.check_domain(domain)?;
        SimRegion::allocate(&self.inner, domain, length, access)
    }

    #[allow(unsafe_code)]
    unsafe fn register_raw(
        &self,
        domain: &SimProtectionDomain,
        start: std::ptr::NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<SimRegion, VerbsError> {
        self.check_domain(domain)?;
        // SAFETY: the caller's promise is the same.
        unsafe { SimRegion::raw(&self.inner, domain, start, length, access) }
    }

    fn register_again(
        &self,
        domain: &SimProtectionDomain,
        region: &SimRegion,
        access: Access,
    ) -> Result<SimRegion, VerbsError> {
        self.check_domain(domain)?;
        SimRegion::again(&self.inner, domain, region, access)
    }

    fn create_completion_channel(&self) -> Result<SimCompletionChannel, VerbsError> {
        SimCompletionChannel::new(&self.inner, self.host)
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&SimCompletionChannel>,
    ) -> Result<SimCompletionQueue, VerbsError> {
        within("max_completions", entries, MAX_COMPLETIONS)?;
        Ok(SimCompletionQueue::new(
            &self.inner,
            self.host,
            entries.max(1),
            channel,
        ))
    }

    fn create_queue_pair(
        &self,
        domain: &SimProtectionDomain,
        config: &QueuePairConfig<'_, SimCompletionQueue, SimSharedReceiveQueue>,
    ) -> Result<SimQueuePair, VerbsError> {
        self.check_domain(domain)?;
        within("max_send_requests", config.send_requests, MAX_REQUESTS)?;
        within("max_segments", config.segments, MAX_SEGMENTS)?;
        within(
            "max_inline_bytes",
            config.inline_bytes,
            self.attributes.max_inline_bytes,
        )?;
        if let ReceiveQueue::Own(requests) | ReceiveQueue::OwnEmpty(requests) = config.receive_queue
        {
            within("max_receive_requests", requests, MAX_REQUESTS)?;
        }
        SimQueuePair::new(&self.inner, self.host, domain.number, config)
    }

    fn create_shared_receive_queue(
        &self,
        domain: &SimProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<SimSharedReceiveQueue, VerbsError> {
        self.check_domain(domain)?;
        within("max_shared_receive_requests", requests, MAX_REQUESTS)?;
        within("max_segments", segments, MAX_SEGMENTS)?;
        Ok(SimSharedReceiveQueue::new(
            &self.inner,
            self.host,
            domain.number,
            requests.max(1),
            segments,
        ))
    }

    fn create_address_handle(
        &self,
        domain: &SimProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<SimAddressHandle, VerbsError> {
        self.create_address_handle_of_class(domain, address, 0)
    }

    fn create_address_handle_of_class(
        &self,
        domain: &SimProtectionDomain,
        address: &EndpointAddress,
        traffic_class: u8,
    ) -> Result<SimAddressHandle, VerbsError> {
        self.check_domain(domain)?;
        Ok(SimAddressHandle {
            host: host_of(&self.inner, address, self.host)?,
            priority: priority::of_class(traffic_class),
        })
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.inner.world(self.host).hosts[usize::from(self.host)]
            .events
            .pop_front()
    }

    /// The time that the NIC's clock shows halfway through the cost of the query.
    fn query_clock_ns(&self) -> Option<u64> {
        let (price, clock) = {
            let world = self.inner.world(self.host);
            let nic = &world.hosts[usize::from(self.host)].nic;
            (nic.parameters.clock_query_ns, nic.clock)
        };
        if price == 0.0 {
            return None;
        }
        let way = (price * NS as f64 / 2.0) as u64;
        let inside = self.inner.caller_on(self.host).is_some();
        if inside {
            context::charge(way);
        }
        let shown = clock.ns(self.inner.time(&self.inner.world(self.host)));
        if inside {
            context::charge(way);
            stack::settle();
        }
        Some(shown)
    }

    /// Without a named core, uses the core with the fewest threads, the last of them if several: it is the least likely
    /// to be one that the load uses itself.
    fn spawn(
        &self,
        name: String,
        core: Option<usize>,
        run: Box<dyn FnOnce() + Send>,
    ) -> std::io::Result<Running> {
        let core = {
            let world = self.inner.world(self.host);
            let host = &world.hosts[usize::from(self.host)];
            let (first, cores) = (host.first_core, host.cores);
            let threads = |core: u32| world.live_threads(first + core);
            match core {
                Some(core) => core as u32 % cores,
                None => (0..cores)
                    .rev()
                    .min_by_key(|&core| threads(core))
                    .unwrap_or(0),
            }
        };
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let ends = move || {
            run();
            end.store(true, Ordering::Release);
        };
        let thread = self
            .inner
            .spawn_stacked(self.host, core, Box::new(ends))
            .ok_or_else(|| std::io::Error::other(TOO_MANY_THREADS))?;
        self.inner.world(self.host).name_thread(thread, name);
        let inner = Arc::clone(&self.inner);
        Ok(Running::new(move || join(&inner, &ended)))
    }

    fn cores(&self) -> usize {
        self.inner.world(self.host).hosts[usize::from(self.host)].cores as usize
    }

    fn seed(&self) -> Option<u64> {
        let mut world = self.inner.world(self.host);
        Some(world.hosts[usize::from(self.host)].seeds.next())
    }

    fn simulation(&self) -> Option<Simulation> {
        let now = self.inner.time(&self.inner.world(self.host));
        Some(Simulation {
            host: self.inner.host_number(self.host),
            now: Duration::from_nanos(now / NS),
        })
    }

    #[inline]
    fn charge(work: Work) {
        context::charge_work(work);
    }
}
