//! A connection and its client's channel on one thread: the client receives exactly the answers that were sent,
//! whatever room its ring has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::Device;

use super::caller::Caller;
use super::connection::{Connection, Context};
use super::deadlines::Deadlines;
use super::dispatch::Dispatch;
use super::handler::{Execution, HandlerTable};
use super::region::ServedRegions;
use super::statistics::Counters;
use crate::channel::message::Kind;
use crate::channel::ring::RingChannel;
use crate::channel::Channel;
use crate::config::ChannelConfig;

/// Answers with as many bytes as the request asks for.
const LENGTH: u16 = 1;
const EAGER: usize = 4096;
const RING: usize = 16 << 10;
const LINE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

type Ring = RingChannel<ShmDevice>;

fn byte(call: u64, place: usize) -> u8 {
    (call as usize * 31 + place) as u8
}

struct Pair {
    served: Connection<Ring>,
    client: Ring,
    context: Context,
    next: u64,
    /// Bytes that each call asked for, in order.
    asked: Vec<usize>,
}

impl Pair {
    fn new(device: &ShmDevice) -> Self {
        let config = ChannelConfig {
            ring_bytes: RING,
            eager_bytes: EAGER,
            answer_each_message: true,
            ..ChannelConfig::default()
        };
        let ring = || {
            let wake = device.create_completion_channel().unwrap();
            RingChannel::open(device, &wake, &config).unwrap()
        };
        let (dialled, called) = (ring(), ring());
        let (address, parameters) = (called.address, called.parameters);
        let called = (called.join)(&dialled.address, &dialled.parameters).unwrap();
        let mut client = (dialled.join)(&address, &parameters).unwrap();
        client.greet().unwrap();
        let mut handlers = HandlerTable::default();
        handlers.insert(
            LENGTH,
            Execution::Inline(Arc::new(|request, reply| {
                let (call, length) = request.payload().split_at(8);
                let call = u64::from_le_bytes(call.try_into().unwrap());
                let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
                let bytes: Vec<u8> = (0..length).map(|place| byte(call, place)).collect();
                reply.write(&bytes)
            })),
        );
        let context = Context {
            handlers,
            dispatch: Dispatch::new(None, None, Arc::new(|_, _| {})),
            counters: Arc::<Counters>::default(),
        };
        let regions = Arc::new(ServedRegions::allocate(device, &[]).unwrap());
        let caller = Caller::new(Default::default(), None, Default::default());
        let said = (None, Deadlines::new(&Default::default()), caller);
        Self {
            served: Connection::new(1, 0, called, said, regions),
            client,
            context,
            next: 0,
            asked: Vec::new(),
        }
    }

    /// Sends one request in a message of its own.
    fn ask(&mut self, length: usize) {
        let call = self.next;
        self.next += 1;
        self.asked.push(length);
        let mut payload = call.to_le_bytes().to_vec();
        payload.extend_from_slice(&(length as u64).to_le_bytes());
        assert!(self.client.make_room(payload.len()).unwrap());
        self.client.push(Kind::Request, LENGTH, call, &payload);
        self.client.flush().unwrap();
    }

    /// Takes `count` requests, which are on their way.
    fn take_requests(&mut self, count: usize, take: impl Fn(&mut Self) -> usize) {
        let patience = Instant::now() + PATIENCE;
        let mut taken = 0;
        while taken < count {
            taken += take(self);
            assert!(Instant::now() < patience, "{taken} of {count} came");
        }
    }

    fn serve(&mut self) -> usize {
        self.served.poll(&self.context).unwrap()
    }

    /// Takes every answer, and checks all of its bytes.
    fn take_all(&mut self) {
        let patience = Instant::now() + PATIENCE;
        let mut taken = 0;
        while taken < self.asked.len() {
            while let Some(header) = self.client.receive().unwrap() {
                assert_eq!((header.kind, header.call), (Kind::Response, taken as u64));
                let payload = self.client.payload(header);
                assert_eq!(payload.len(), self.asked[taken]);
                let whole = (0..)
                    .zip(payload)
                    .all(|(place, &b)| b == byte(taken as u64, place));
                assert!(whole, "the bytes of answer {taken} are others");
                taken += 1;
            }
            self.client.tell_consumed().unwrap();
            self.serve();
            assert!(
                Instant::now() < patience,
                "{taken} of {} came",
                self.asked.len()
            );
        }
    }
}

/// Two requests arrive when the client's ring has room for only a few lines: the answer to the first is written before
/// the second request is taken, and uses whole lines of the room that the second answer was to have.
fn answers_fit(device: &ShmDevice, filled: usize, first: usize, second: usize) {
    let mut pair = Pair::new(device);
    for _ in 0..filled {
        pair.ask(8);
        pair.take_requests(1, Pair::serve);
    }
    pair.ask(first);
    pair.ask(second);
    // Until there is no room left.
    while pair.serve() > 0 {}
    pair.take_all();
}

#[test]
fn answers_to_each_message_keep_to_the_room_that_there_is() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let lines = RING / LINE;
    for first in [64, 1000, EAGER - 40] {
        // Requests are taken as long as there is room for the longest answer.
        for filled in lines - 150..lines - 66 {
            answers_fit(&device, filled, first, EAGER);
        }
    }
}

#[test]
fn one_request_is_taken_only_when_its_answer_has_room() {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let mut pair = Pair::new(&device);
    for _ in 0..8 {
        pair.ask(EAGER);
    }
    let one = |pair: &mut Pair| pair.served.poll_one(&pair.context).unwrap().0;
    // There is room for three of them.
    pair.take_requests(3, one);
    for _ in 0..8 {
        assert_eq!(one(&mut pair), 0);
    }
    pair.take_all();
}
