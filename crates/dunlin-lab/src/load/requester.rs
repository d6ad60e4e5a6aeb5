//! A thread that keeps a number of requests outstanding, as perftest and rdma_bench do.

use std::sync::Arc;

use dunlin_sim::{
    Next, SimAddressHandle, SimCompletionQueue, SimDevice, SimQueuePair, SimRegion, Step,
};
use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionQueue, Destination, Device, EndpointAddress, Operation,
    Payload, QueuePair, ReceiveRequest, Region, RemoteAddress, Segment, SendFlags, SendRequest,
    Work, GRH_BYTES,
};

use super::Done;

/// The verb posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// SEND.
    Send,
    /// FETCH_AND_ADD, of 8 bytes.
    FetchAndAdd,
}

/// The choice of the next queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A random one.
    Random,
    /// All in turn.
    InTurn,
}

/// The answer to a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of the answer.
    pub bytes: usize,
    /// Whether it is sent inline.
    pub inline: bool,
}

/// Number of bits of the immediate data of an answered SEND that identify its place in its thread's window; the others
/// identify the queue pair. The answer returns both.
const PLACE_BITS: u32 = 10;

/// The immediate data of a SEND and of its answer.
fn mark(way: u32, place: usize) -> u32 {
    way << PLACE_BITS | place as u32
}

/// The queue pair that sent a SEND with this immediate data.
pub(super) fn way_of(mark: u32) -> u32 {
    mark >> PLACE_BITS
}

/// The plan of a requester.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The verb.
    pub verb: Verb,
    /// The answer to SENDs: a request is then done when its answer has arrived, not when it is complete.
    pub answer: Option<Answer>,
    /// Bytes of a request.
    pub bytes: usize,
    /// Whether a WRITE or a SEND is sent inline.
    pub inline: bool,
    /// Maximum number of outstanding requests.
    pub window: usize,
    /// One request in this many is signaled; its completion stands for those before it.
    pub signal_every: usize,
    /// Requests per doorbell.
    pub batch: usize,
    /// The choice of the next queue pair; a batch goes to one.
    pub choice: Choice,
    /// Distance of the remote places, used in turn or at random, and their number.
    pub places: (u64, u64),
    /// Seed of the thread's random choices.
    pub seed: u64,
}

impl Plan {
    /// READs of this size, all signaled, one per doorbell.
    pub fn reads(bytes: usize, window: usize) -> Self {
        Self {
            verb: Verb::Read,
            answer: None,
            bytes,
            inline: false,
            window,
            signal_every: 1,
            batch: 1,
            choice: Choice::Random,
            places: (64, 64),
            seed: 0,
        }
    }

    /// WRITEs of this size.
    pub fn writes(bytes: usize, window: usize) -> Self {
        Self {
            verb: Verb::Write,
            ..Self::reads(bytes, window)
        }
    }
}

/// Maximum number of requests that a step posts before it polls completions again.
const POSTS_OF_A_STEP: usize = 4;

/// A queue pair and its destination.
#[derive(Debug)]
pub struct Way {
    /// Our queue pair.
    pub pair: SimQueuePair,
    /// Its number among all queue pairs.
    pub number: u32,
    /// Memory of the peer.
    pub remote: RemoteAddress,
    /// UD: destinations, one of which is chosen at random each time.
    pub to: Vec<(SimAddressHandle, EndpointAddress)>,
    /// Index of its completion queue in the thread.
    pub queue: usize,
}

/// The thread.
#[derive(Debug)]
pub struct Requester {
    plan: Plan,
    ways: Vec<Way>,
    queues: Vec<SimCompletionQueue>,
    local: SimRegion,
    /// Number of requests posted, and requests of the window known to be done, by place, with the queue of each.
    posted: usize,
    oldest: usize,
    done: Vec<bool>,
    queue_of: Vec<usize>,
    turn: usize,
    random: u64,
    bytes: Vec<u8>,
    /// Counter of completed requests, and the time at which each request of the window was posted.
    counted: Option<Arc<Done>>,
    begun_ns: Vec<u64>,
}

impl Requester {
    /// Creates a requester on these queue pairs and completion queues. With several queues it waits for the oldest
    /// request at its queue, as rdma_bench does.
    pub fn new(
        plan: Plan,
        ways: Vec<Way>,
        queues: Vec<SimCompletionQueue>,
        local: SimRegion,
    ) -> Self {
        let mut requester = Self {
            ways,
            queues,
            local,
            posted: 0,
            oldest: 0,
            done: vec![false; plan.window],
            queue_of: vec![0; plan.window],
            turn: 0,
            random: plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            bytes: vec![0; if plan.inline { plan.bytes } else { 0 }],
            counted: None,
            begun_ns: vec![0; plan.window],
            plan,
        };
        if plan.answer.is_some() {
            for way in 0..requester.ways.len() {
                (0..plan.window).for_each(|_| requester.post_receive(way));
            }
        }
        requester
    }

    /// Posts a RECEIVE for an answer. All share one place, behind what is sent: the answers are not read.
    fn post_receive(&mut self, way: usize) {
        let bytes = self.plan.answer.map_or(0, |answer| answer.bytes);
        let room = bytes + GRH_BYTES;
        let segments = [Segment {
            region: &self.local,
            offset: self.local.memory().len() - room,
            length: room,
        }];
        let request = ReceiveRequest {
            id: way as u64,
            segments: &segments,
        };
        let posted = self.ways[way].pair.post_receive(&[request]);
        posted.expect("the receive queue holds a window");
    }

    /// Counts completed requests in `counted`, and ends when told so there.
    #[must_use]
    pub fn counting(mut self, counted: Arc<Done>) -> Self {
        self.counted = Some(counted);
        self
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    fn take_completions(&mut self, now_ns: u64) {
        let mut some = [Completion::EMPTY; 16];
        let queue = self.queue_of[self.oldest % self.plan.window];
        let count = self.queues[queue]
            .poll(&mut some)
            .expect("the queue holds a window");
        for completion in &some[..count] {
            assert!(completion.is_success(), "{completion:?}");
            if self.plan.answer.is_some() {
                self.take_answer(completion, now_ns);
                continue;
            }
            // The id is the request's number; with selective signaling it stands for those before it on its queue pair.
            let last = completion.id as usize;
            if let Some(counted) = &self.counted {
                counted.time_of(now_ns - self.begun_ns[last % self.plan.window]);
            }
            for number in (last + 1).saturating_sub(self.plan.signal_every)..=last {
                self.done[number % self.plan.window] = true;
            }
        }
        let before = self.oldest;
        while self.oldest < self.posted && self.done[self.oldest % self.plan.window] {
            self.done[self.oldest % self.plan.window] = false;
            self.oldest += 1;
        }
        if let Some(counted) = &self.counted {
            counted.add((self.oldest - before) as u64);
        }
    }

    /// Handles the completion of an answer. If SENDs are answered, their own completions are ignored.
    fn take_answer(&mut self, completion: &Completion, now_ns: u64) {
        if completion.opcode != CompletionOpcode::Receive {
            return;
        }
        SimDevice::charge(Work::Arrived);
        let mark = completion.immediate.expect("an answer brings it back");
        let place = (mark & ((1 << PLACE_BITS) - 1)) as usize;
        if let Some(counted) = &self.counted {
            counted.time_of(now_ns - self.begun_ns[place]);
        }
        self.done[place] = true;
        self.post_receive(completion.id as usize);
    }

    /// Posts a batch on the next queue pair.
    fn post(&mut self, now_ns: u64) {
        let count = self.ways.len();
        let which = match self.plan.choice {
            // With selective signaling a queue pair keeps its turn until its signaled request, so that ids stand for
            // runs.
            _ if self.posted % self.plan.signal_every != 0 => self.turn,
            Choice::Random => (self.random() % count as u64) as usize,
            Choice::InTurn => (self.turn + 1) % count,
        };
        self.turn = which;
        let (distance, places) = self.plan.places;
        let offset = self.random() % places * distance;
        let whom = match self.ways[which].to.len() {
            several @ 2.. => (self.random() % several as u64) as usize,
            _ => 0,
        };
        let plan = self.plan;
        let Way {
            pair,
            number: way,
            remote,
            to,
            queue,
        } = &mut self.ways[which];
        let way = *way;
        let remote = remote.plus(offset);
        let destination = to.get(whom).map(|(handle, address)| Destination {
            handle,
            queue_pair: address.queue_pair,
            queue_key: address.queue_key,
        });
        let segments = [Segment {
            region: &self.local,
            offset: 0,
            length: plan.bytes,
        }];
        let payload = if plan.inline {
            Payload::Inline(&self.bytes)
        } else {
            Payload::Segments(&segments)
        };
        let operation = match plan.verb {
            Verb::Read => Operation::Read { remote },
            Verb::Write => Operation::Write {
                remote,
                immediate: None,
            },
            Verb::Send => Operation::Send { immediate: None },
            Verb::FetchAndAdd => Operation::FetchAndAdd { remote, add: 1 },
        };
        let request = |number: usize| {
            let operation = match plan.answer {
                Some(_) => Operation::Send {
                    immediate: Some(mark(way, number % plan.window)),
                },
                None => operation,
            };
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, (number + 1) % plan.signal_every == 0);
            let mut request = SendRequest::new(number as u64, operation, payload, flags);
            request.destination = destination;
            request
        };
        let first = self.posted;
        for number in first..first + plan.batch {
            self.queue_of[number % plan.window] = *queue;
        }
        if self.counted.is_some() {
            for number in first..first + plan.batch {
                self.begun_ns[number % plan.window] = now_ns;
            }
        }
        if plan.batch == 1 {
            pair.post_send(&[request(first)])
                .expect("the send queue holds a window");
        } else {
            let list: Vec<_> = (first..first + plan.batch).map(request).collect();
            pair.post_send(&list)
                .expect("the send queue holds a window");
        }
        self.posted += plan.batch;
    }
}

impl Step for Requester {
    fn step(&mut self, now_ns: u64) -> Next {
        if self.counted.as_ref().is_some_and(|all| all.are_enough()) {
            return Next::Done;
        }
        if self.posted - self.oldest + self.plan.batch > self.plan.window {
            self.take_completions(now_ns);
            if self.posted - self.oldest + self.plan.batch > self.plan.window {
                return Next::Poll;
            }
        }
        for _ in 0..POSTS_OF_A_STEP {
            if self.posted - self.oldest + self.plan.batch > self.plan.window {
                break;
            }
            self.post(now_ns);
        }
        Next::Again
    }
}
