//! A poller on one thread, without a client process.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

use super::{Newcomer, Poller, PollerHandle};
use crate::channel::datagram::connect::route_in;
use crate::channel::datagram::endpoint::receives_of_session;
use crate::channel::datagram::packet::Head;
use crate::channel::datagram::{Greeting, Protocol};
use crate::channel::ChannelError;
use crate::server::caller::Caller;
use crate::server::connection::Context;
use crate::server::deadlines::Deadlines;
use crate::server::dispatch::Dispatch;
use crate::server::mailbox::Mail;
use crate::server::rounds::Rounds;
use crate::server::statistics::{Counters, ServerStatistics};

const PATIENCE: Duration = Duration::from_secs(20);

/// A poller, its part for other threads, and its counters.
type Parts = (
    Poller<ShmDevice>,
    Arc<PollerHandle<ShmDevice>>,
    Arc<Counters>,
);

fn poller(device: &ShmDevice) -> Parts {
    let wake = device.create_completion_channel().unwrap();
    let endpoint = Poller::endpoint(device, &wake, &Default::default()).unwrap();
    let handle = PollerHandle::new(&endpoint);
    let counters = Arc::<Counters>::default();
    let context = Context {
        handlers: Default::default(),
        dispatch: Dispatch::new(None, None, Arc::new(|_, _| {})),
        counters: Arc::clone(&counters),
    };
    let (outside, share) = (Arc::clone(&handle), Arc::default());
    let poller = Poller::new(outside, 0, context, endpoint, (1 << 20, 4096), share);
    (poller, handle, counters)
}

/// Accepts a client as the acceptor's thread does; the client then waits to be adopted.
fn accept(device: &ShmDevice, handle: &PollerHandle<ShmDevice>) {
    let told = handle.address().unwrap();
    let mut slots = handle.session_slots();
    let number = slots.places.take().unwrap().0;
    let wanted = slots.places.clients() > slots.provided;
    let block = wanted.then(|| {
        let stock = &mut slots.stock;
        let places = receives_of_session();
        let taken = stock.take(device, &handle.domain, places, handle.packet_bytes);
        taken.unwrap()
    });
    slots.provided += usize::from(wanted);
    drop(slots);
    handle.waiting.fetch_add(1, Ordering::Relaxed);
    handle.mailbox.connections.fetch_add(1, Ordering::Relaxed);
    let newcomer = Newcomer {
        id: u64::from(number),
        number,
        protocol: Protocol::Bare,
        cookie: 7,
        told,
        theirs: Greeting {
            to: Head::default(),
            packet_bytes: handle.packet_bytes,
            longest: 1 << 20,
            calls: 32,
        },
        deadlines: Deadlines::new(&Default::default()),
        caller: Caller::new(Default::default(), None, Default::default()),
        // To any existing queue pair.
        route: route_in(device, &handle.domain, &told).unwrap(),
        block,
        zone: None,
    };
    handle.mailbox.send(Mail::Adopt(Box::new(newcomer)));
}

fn closed(counters: &Counters) -> u64 {
    let mut sum = ServerStatistics::default();
    counters.add_to(&mut sum);
    sum.closed
}

/// It was told the address of a queue pair that no longer exists, and would wait there forever.
#[test]
fn who_was_accepted_before_the_queue_pair_failed_is_sent_away() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let (mut poller, handle, counters) = poller(&device);
    // RECEIVEs of a client that has left serve the next one, which posts none.
    accept(&device, &handle);
    poller.pass();
    poller.end(0, &ChannelError::peer_gone());
    assert_eq!(closed(&counters), 1);
    accept(&device, &handle);
    poller.fail(&ChannelError::queue_pair("its port is down".to_owned()));
    poller.pass();
    assert_eq!(closed(&counters), 2);
    assert!(!handle.mailbox.has_clients());
    // There is a new queue pair in time for later clients.
    let started = Instant::now();
    while handle.address().is_none() {
        assert!(started.elapsed() < PATIENCE, "no other queue pair");
        poller.pass();
    }
    accept(&device, &handle);
    poller.pass();
    assert_eq!(closed(&counters), 2);
    assert!(handle.mailbox.has_clients());
}
