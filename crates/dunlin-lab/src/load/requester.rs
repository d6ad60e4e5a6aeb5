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

/// What is posted.
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

/// Which queue pair is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// A random one.
    Random,
    /// One after the other.
    InTurn,
}

/// What answers a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of it.
    pub bytes: usize,
    /// Whether it carries them inline.
    pub inline: bool,
}

/// Bits of the immediate data of a SEND that is answered which say the place in its thread's window; the others say
/// which of all queue pairs it left by. The answer brings both back.
const PLACE_BITS: u32 = 10;

/// What a SEND of a queue pair says, and its answer with it.
fn mark(way: u32, place: usize) -> u32 {
    way << PLACE_BITS | place as u32
}

/// By which queue pair a SEND left that said so.
pub(super) fn way_of(mark: u32) -> u32 {
    mark >> PLACE_BITS
}

/// What a requester does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is posted.
    pub verb: Verb,
    /// What SENDs are answered with: then a request is done when its answer has come, not when it is completed.
    pub answer: Option<Answer>,
    /// Bytes of a request.
    pub bytes: usize,
    /// Whether a WRITE or a SEND carries its bytes inline.
    pub inline: bool,
    /// Requests outstanding at most.
    pub window: usize,
    /// One request in so many is signaled; those between are taken as done with it.
    pub signal_every: usize,
    /// Requests of a doorbell.
    pub batch: usize,
    /// Which queue pair is next; a batch goes to one.
    pub choice: Choice,
    /// Distance of the remote places that are used in turn or at random, and their number.
    pub places: (u64, u64),
    /// Each place is used by a thread of its own: first place and number of places.
    pub seed: u64,
}

impl Plan {
    /// READs of so many bytes, all signaled, one a doorbell.
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

    /// WRITEs of so many bytes.
    pub fn writes(bytes: usize, window: usize) -> Self {
        Self {
            verb: Verb::Write,
            ..Self::reads(bytes, window)
        }
    }
}

/// Requests that a step posts at most before it looks at completions again.
const POSTS_OF_A_STEP: usize = 4;

/// A queue pair and what it leads to.
#[derive(Debug)]
pub struct Way {
    /// Ours.
    pub pair: SimQueuePair,
    /// Which of all queue pairs it is.
    pub number: u32,
    /// Memory of the peer.
    pub remote: RemoteAddress,
    /// UD: to whom it sends; the next is a random one of them.
    pub to: Vec<(SimAddressHandle, EndpointAddress)>,
    /// Which of the thread's queues its completions go to.
    pub queue: usize,
}

/// The thread.
#[derive(Debug)]
pub struct Requester {
    plan: Plan,
    ways: Vec<Way>,
    queues: Vec<SimCompletionQueue>,
    local: SimRegion,
    /// Requests posted, and of the window those known to be done by place, with the queue of each.
    posted: usize,
    oldest: usize,
    done: Vec<bool>,
    queue_of: Vec<usize>,
    turn: usize,
    random: u64,
    bytes: Vec<u8>,
    /// Who counts what is done, and when each request of the window was posted.
    counted: Option<Arc<Done>>,
    begun_ns: Vec<u64>,
}

impl Requester {
    /// On these queue pairs, whose completions go to these queues. With several it waits for the oldest request at its
    /// queue, as rdma_bench does.
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

    /// Posts a RECEIVE for an answer. All have one place, behind what is sent: nobody reads them.
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

    /// Counts there what is done, and ends when it is told so there.
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

    /// That a SEND has been sent says nothing where it is to be answered.
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
