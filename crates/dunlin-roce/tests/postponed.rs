//! Short requests that are posted one by one while others are under way wait for the next look of whoever polls. They
//! go out although nobody looks again, or whoever did goes to sleep, or gives the queue pair up.

use std::net::Ipv4Addr;
use std::ops::Range;

use dunlin_roce::{RoceConfig, RoceDevice, RoceRegion};
use dunlin_verbs::conformance::{pattern, piece, wait, Endpoint, Options};
use dunlin_verbs::{
    Access, CompletionQueue, CompletionStatus, ConnectAttributes, Device, Notify, Operation,
    Payload, QueuePair, Region, SendFlags, SendRequest, Transport,
};

const SEND: Operation = Operation::Send { immediate: None };
/// Requests that are under way, and those that are posted after them, one by one.
const UNDER_WAY: usize = 4;
const POSTED: usize = 5;
const BYTES: usize = 48;
/// Situations differ by when the device's thread comes round.
const ROUNDS: u64 = 20;

fn sent_from(number: usize) -> usize {
    (32 + number) * BYTES
}

struct End {
    endpoint: Endpoint<RoceDevice>,
    region: RoceRegion,
    _device: RoceDevice,
}

impl End {
    fn open(transport: Transport) -> Self {
        let mut config = RoceConfig::from_environment().expect("the environment");
        config.local_address = Some(Ipv4Addr::LOCALHOST.into());
        let device = RoceDevice::open(config).expect("a device");
        let domain = device.create_protection_domain().expect("a domain");
        let mut options = Options::new(transport);
        options.channel = true;
        let region = device
            .allocate_region(&domain, 64 * BYTES, Access::all())
            .expect("a region");
        Self {
            endpoint: Endpoint::new(&device, &domain, &options, None).expect("an endpoint"),
            region,
            _device: device,
        }
    }

    fn receive(&mut self, count: usize) {
        for slot in 0..count {
            let place = piece(&self.region, slot * BYTES, BYTES);
            self.endpoint.receive(slot as u64, &[place]);
        }
    }

    /// Posts SENDs, as many at once as is said.
    fn post(&mut self, numbers: Range<usize>, at_once: usize, seed: u64) {
        for number in numbers.clone() {
            let bytes = pattern(seed + number as u64, BYTES);
            self.region.memory().write(sent_from(number), &bytes);
        }
        let places =
            Vec::from_iter(numbers.map(|number| [piece(&self.region, sent_from(number), BYTES)]));
        for (call, places) in places.chunks(at_once).enumerate() {
            let requests = places.iter().enumerate().map(|(index, place)| {
                let id = (call * at_once + index) as u64;
                let payload = Payload::Segments(place);
                SendRequest::new(id, SEND, payload, SendFlags::empty())
            });
            let posted = self
                .endpoint
                .queue_pair
                .post_send(&Vec::from_iter(requests));
            posted.expect("there is room");
        }
    }

    /// Waits for so many messages, and checks them.
    fn expect(&mut self, count: usize, seed: u64) {
        for number in 0..count {
            let completion = wait("a message", || self.endpoint.poll());
            assert_eq!(completion.status, CompletionStatus::Success);
            let mut bytes = [0; BYTES];
            self.region
                .memory()
                .read(completion.id as usize * BYTES, &mut bytes);
            assert_eq!(bytes[..], pattern(seed + number as u64, BYTES));
        }
    }
}

/// Two connected ends. The first has just looked and found a message; then it has posted what the second is to get.
fn posted(transport: Transport, seed: u64) -> (End, End) {
    let (mut ours, mut theirs) = (End::open(transport), End::open(transport));
    ours.receive(1);
    theirs.receive(UNDER_WAY + POSTED);
    let addresses = [&ours, &theirs].map(|end| end.endpoint.queue_pair.address());
    for (end, remote) in [(&mut ours, &addresses[1]), (&mut theirs, &addresses[0])] {
        end.endpoint
            .connect(Some(remote), ConnectAttributes::default())
            .expect("a connection");
    }
    theirs.post(0..1, 1, seed);
    ours.expect(1, seed);
    ours.post(0..UNDER_WAY, UNDER_WAY, seed);
    ours.post(UNDER_WAY..UNDER_WAY + POSTED, 1, seed);
    (ours, theirs)
}

fn in_each_round(check: impl Fn(Transport, u64)) {
    for transport in [
        Transport::ReliableConnection,
        Transport::UnreliableConnection,
    ] {
        (0..ROUNDS).for_each(|seed| check(transport, 100 * seed));
    }
}

#[test]
fn who_posts_and_never_looks_again_has_sent() {
    in_each_round(|transport, seed| {
        let (_ours, mut theirs) = posted(transport, seed);
        theirs.expect(UNDER_WAY + POSTED, seed);
    });
}

#[test]
fn who_posts_and_goes_to_sleep_has_sent() {
    in_each_round(|transport, seed| {
        let (mut ours, mut theirs) = posted(transport, seed);
        ours.endpoint
            .completions
            .request_notify(Notify::Next)
            .expect("it has a channel");
        theirs.expect(UNDER_WAY + POSTED, seed);
    });
}

#[test]
fn who_posts_and_gives_the_queue_pair_up_has_sent() {
    in_each_round(|transport, seed| {
        let (mut ours, mut theirs) = posted(transport, seed);
        ours.endpoint.queue_pair.to_error();
        theirs.expect(UNDER_WAY + POSTED, seed);

        let (ours, mut theirs) = posted(transport, seed);
        drop(ours);
        theirs.expect(UNDER_WAY + POSTED, seed);
    });
}
