//! A backup that the device does not connect at once is asked for again, so it is there when the primary fails.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_flor::connection::Deployment;
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Access, AsyncEvent, ConnectAttributes, Device, DeviceAttributes, EndpointAddress, PostError,
    QueuePair, QueuePairConfig, QueuePairState, ReceiveRequest, SendRequest, Transport, VerbsError,
};

/// How long a run may take before it counts as standing still.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often queue pairs are not connected, and how often they were.
#[derive(Debug, Default)]
struct Counts {
    refusals: AtomicUsize,
    connected: AtomicUsize,
}

/// A device that does not connect queue pairs at once: a NIC may wait in vain for the way to its peer.
#[derive(Clone, Debug)]
struct Reluctant(ShmDevice, Arc<Counts>);

type Below = <ShmDevice as Device>::QueuePair;

#[derive(Debug)]
struct ReluctantPair(Below, Arc<Counts>);

// SAFETY: all that has to do with memory is the device's below.
#[allow(unsafe_code)]
unsafe impl Device for Reluctant {
    type ProtectionDomain = <ShmDevice as Device>::ProtectionDomain;
    type Region = <ShmDevice as Device>::Region;
    type CompletionChannel = <ShmDevice as Device>::CompletionChannel;
    type CompletionQueue = <ShmDevice as Device>::CompletionQueue;
    type AddressHandle = <ShmDevice as Device>::AddressHandle;
    type QueuePair = ReluctantPair;
    type SharedReceiveQueue = <ShmDevice as Device>::SharedReceiveQueue;

    fn attributes(&self) -> &DeviceAttributes {
        self.0.attributes()
    }

    fn create_protection_domain(&self) -> Result<Self::ProtectionDomain, VerbsError> {
        self.0.create_protection_domain()
    }

    fn allocate_region(
        &self,
        domain: &Self::ProtectionDomain,
        length: usize,
        access: Access,
    ) -> Result<Self::Region, VerbsError> {
        self.0.allocate_region(domain, length, access)
    }

    #[allow(unsafe_code)]
    unsafe fn register_raw(
        &self,
        _: &Self::ProtectionDomain,
        _: NonNull<u8>,
        _: usize,
        _: Access,
    ) -> Result<Self::Region, VerbsError> {
        panic!("nobody asks for it")
    }

    fn create_completion_channel(&self) -> Result<Self::CompletionChannel, VerbsError> {
        self.0.create_completion_channel()
    }

    fn create_completion_queue(
        &self,
        entries: usize,
        channel: Option<&Self::CompletionChannel>,
    ) -> Result<Self::CompletionQueue, VerbsError> {
        self.0.create_completion_queue(entries, channel)
    }

    fn create_queue_pair(
        &self,
        domain: &Self::ProtectionDomain,
        config: &QueuePairConfig<'_, Self::CompletionQueue, Self::SharedReceiveQueue>,
    ) -> Result<ReluctantPair, VerbsError> {
        let pair = self.0.create_queue_pair(domain, config)?;
        Ok(ReluctantPair(pair, Arc::clone(&self.1)))
    }

    fn create_shared_receive_queue(
        &self,
        domain: &Self::ProtectionDomain,
        requests: usize,
        segments: usize,
    ) -> Result<Self::SharedReceiveQueue, VerbsError> {
        self.0
            .create_shared_receive_queue(domain, requests, segments)
    }

    fn create_address_handle(
        &self,
        domain: &Self::ProtectionDomain,
        address: &EndpointAddress,
    ) -> Result<Self::AddressHandle, VerbsError> {
        self.0.create_address_handle(domain, address)
    }

    fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.0.poll_async_event()
    }
}

impl QueuePair for ReluctantPair {
    type Region = <Below as QueuePair>::Region;
    type AddressHandle = <Below as QueuePair>::AddressHandle;
    type Mapped = <Below as QueuePair>::Mapped;

    fn number(&self) -> u32 {
        self.0.number()
    }

    fn transport(&self) -> Transport {
        self.0.transport()
    }

    fn state(&self) -> QueuePairState {
        self.0.state()
    }

    fn address(&self) -> EndpointAddress {
        self.0.address()
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        self.0.to_init(access)
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        let (take, order) = (|left: usize| left.checked_sub(1), Ordering::SeqCst);
        if self.1.refusals.fetch_update(order, order, take).is_ok() {
            return Err(VerbsError::System {
                call: "ibv_modify_qp",
                source: std::io::ErrorKind::TimedOut.into(),
            });
        }
        self.0.to_ready_to_receive(remote, attributes)?;
        self.1.connected.fetch_add(1, order);
        Ok(())
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        self.0.to_ready_to_send()
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        self.0.to_send_queue_drained()
    }

    fn to_error(&mut self) {
        self.0.to_error();
    }

    fn to_reset(&mut self) {
        self.0.to_reset();
    }

    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, Self::Region, Self::AddressHandle>],
    ) -> Result<(), PostError> {
        self.0.post_send(requests)
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError> {
        self.0.post_receive(requests)
    }
}

/// Polls both ends until this is so of the messages that each was given.
fn until(
    ends: &mut [LogicalConnection<Reluctant>; 2],
    began: Instant,
    is: &dyn Fn([usize; 2]) -> bool,
) {
    let mut came = [0; 2];
    while !is(came) {
        assert!(began.elapsed() < PATIENCE, "{came:?}");
        let now_ns = began.elapsed().as_nanos() as u64;
        for (link, came) in ends.iter_mut().zip(&mut came) {
            while let Some(event) = link.poll(now_ns).expect("a device") {
                match event {
                    LinkEvent::Message(_) => *came += 1,
                    LinkEvent::Finished(_, outcome) => outcome.expect("delivered"),
                    LinkEvent::Lost => panic!("lost: {:?}", link.connection().lost_by()),
                    _ => panic!("nobody writes"),
                }
            }
        }
        std::thread::yield_now();
    }
}

fn exchange(ends: &mut [LogicalConnection<Reluctant>; 2], began: Instant) {
    for link in ends.iter_mut() {
        let region = link.allocate(64).expect("memory");
        let source = Source {
            region,
            offset: 0,
            bytes: 64,
        };
        let now_ns = began.elapsed().as_nanos() as u64;
        link.submit(now_ns, source).expect("taken");
    }
    until(ends, began, &|came| came == [1, 1]);
}

#[test]
fn a_backup_that_was_not_connected_at_once_takes_over() {
    for deployment in [Deployment::IntraPodReliable, Deployment::CrossPod] {
        let counts = Arc::<Counts>::default();
        let began = Instant::now();
        let mut ends = [Arc::clone(&counts), Arc::default()].map(|counts| {
            let device = ShmDevice::open(ShmConfig::default()).expect("a device");
            let config = LinkConfig::new(deployment);
            LogicalConnection::new(Reluctant(device, counts), config).expect("a connection")
        });
        let addresses = [0, 1].map(|end| ends[end].address());
        for (link, peer) in ends.iter_mut().zip([addresses[1], addresses[0]]) {
            link.connect(&peer, 0, 0).expect("connected");
        }
        let paths = LinkConfig::new(deployment).connection.paths;
        let before = counts.connected.load(Ordering::SeqCst);
        counts.refusals.store(3 * (paths - 1), Ordering::SeqCst);

        exchange(&mut ends, began);
        let backups = || counts.connected.load(Ordering::SeqCst) - before;
        until(&mut ends, began, &|_| backups() >= paths - 1);
        // Behind what each end has said of its backups.
        exchange(&mut ends, began);
        let primary = ends[0].connection().primary();
        ends[0].fail_path(primary);
        exchange(&mut ends, began);
        assert_eq!(ends[0].connection().counters().switches, 1);
    }
}
