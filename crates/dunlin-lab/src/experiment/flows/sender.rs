//! The thread of a host that posts its flows when they begin, message by message, until they have ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_sim::{Next, SimCompletionQueue, SimQueuePair, SimRegion, Step};
use dunlin_verbs::{
    Completion, CompletionQueue, Operation, Payload, QueuePair, RemoteAddress, Segment, SendFlags,
    SendRequest,
};

/// Maximum number of WRITEs that a step posts before it polls completions again.
const POSTS_OF_A_STEP: usize = 4;
/// The time of the beginning, before the load has begun.
pub(super) const NOT_YET: u64 = u64::MAX;

/// A flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Finished {
    /// Index of the flow among all flows.
    pub(in super::super) flow: usize,
    /// Time from its start to the completion of its last WRITE; `None` if its queue pair has failed.
    pub(in super::super) took_ns: Option<u64>,
}

/// State shared by all senders and the measuring code.
#[derive(Debug)]
pub(super) struct Shared {
    /// Virtual time at which the load begins.
    pub(super) zero_ns: AtomicU64,
    finished: Mutex<Vec<Finished>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            zero_ns: AtomicU64::new(NOT_YET),
            finished: Mutex::default(),
        }
    }
}

impl Shared {
    /// Flows that have ended since the last call.
    pub(super) fn take(&self) -> Vec<Finished> {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *finished)
    }

    fn finish(&self, flow: usize, took_ns: Option<u64>) {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.push(Finished { flow, took_ns });
    }
}

/// A flow of this host.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Its index among all flows.
    pub(super) number: usize,
    pub(super) pair: SimQueuePair,
    pub(super) remote: RemoteAddress,
    pub(super) start_ns: u64,
    pub(super) bytes: u64,
    pub(super) message_bytes: u64,
    pub(super) outstanding: u64,
    /// Number of WRITEs posted, and completed.
    pub(super) posted: u64,
    pub(super) done: u64,
    /// Whether it waits for its turn to post.
    pub(super) queued: bool,
}

impl Outgoing {
    fn messages(&self) -> u64 {
        self.bytes.div_ceil(self.message_bytes)
    }

    fn may_post(&self) -> bool {
        self.posted < self.messages() && self.posted - self.done < self.outstanding
    }

    /// Posts the next WRITE. Returns whether it could.
    fn post(&mut self, local: &SimRegion, place: usize) -> bool {
        let sent = self.posted * self.message_bytes;
        let segments = [Segment {
            region: local,
            offset: 0,
            length: self.message_bytes.min(self.bytes - sent) as usize,
        }];
        let operation = Operation::Write {
            remote: self.remote,
            immediate: None,
        };
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(place as u64, operation, payload, SendFlags::SIGNALED);
        self.posted += 1;
        self.pair.post_send(&[request]).is_ok()
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Sender {
    completions: SimCompletionQueue,
    local: SimRegion,
    /// Flows in the order in which they begin.
    flows: Vec<Outgoing>,
    /// Number of flows that have begun, and that have ended.
    begun: usize,
    ended: usize,
    turns: VecDeque<usize>,
    shared: Arc<Shared>,
}

impl Sender {
    pub(super) fn new(
        completions: SimCompletionQueue,
        local: SimRegion,
        mut flows: Vec<Outgoing>,
        shared: Arc<Shared>,
    ) -> Self {
        flows.sort_by_key(|flow| flow.start_ns);
        Self {
            completions,
            local,
            flows,
            begun: 0,
            ended: 0,
            turns: VecDeque::new(),
            shared,
        }
    }

    fn take_completions(&mut self, since_ns: u64) -> bool {
        let mut some = [Completion::EMPTY; 16];
        let count = self
            .completions
            .poll(&mut some)
            .expect("the queue holds all that may be out");
        for completion in &some[..count] {
            let place = completion.id as usize;
            let flow = &mut self.flows[place];
            let messages = flow.messages();
            if flow.done == messages {
                // Flushed by the queue pair after its failure.
                continue;
            }
            if !completion.is_success() {
                self.fail(place);
                continue;
            }
            flow.done += 1;
            if flow.done == messages {
                let took = since_ns.saturating_sub(flow.start_ns);
                self.shared.finish(flow.number, Some(took));
                self.ended += 1;
            }
            self.queue(place);
        }
        count > 0
    }

    /// Ends a flow whose queue pair has failed.
    fn fail(&mut self, place: usize) {
        let flow = &mut self.flows[place];
        (flow.posted, flow.done) = (flow.messages(), flow.messages());
        self.shared.finish(flow.number, None);
        self.ended += 1;
    }

    fn queue(&mut self, place: usize) {
        let flow = &mut self.flows[place];
        if !flow.queued && flow.may_post() {
            flow.queued = true;
            self.turns.push_back(place);
        }
    }

    fn begin_due(&mut self, since_ns: u64) {
        while let Some(flow) = self.flows.get(self.begun) {
            if flow.start_ns > since_ns {
                break;
            }
            self.queue(self.begun);
            self.begun += 1;
        }
    }

    /// Lets flows post in turn. Returns whether any did.
    fn post(&mut self) -> bool {
        let mut posted = false;
        for _ in 0..POSTS_OF_A_STEP {
            let Some(place) = self.turns.pop_front() else {
                break;
            };
            let flow = &mut self.flows[place];
            flow.queued = false;
            if flow.may_post() {
                // It may have failed since its completions were polled.
                match flow.post(&self.local, place) {
                    true => self.queue(place),
                    false => self.fail(place),
                }
                posted = true;
            }
        }
        posted
    }
}

impl Step for Sender {
    fn step(&mut self, now_ns: u64) -> Next {
        let zero_ns = self.shared.zero_ns.load(Ordering::Relaxed);
        if zero_ns == NOT_YET {
            return Next::Block;
        }
        let since_ns = now_ns.saturating_sub(zero_ns);
        let found = self.take_completions(since_ns);
        self.begin_due(since_ns);
        let posted = self.post();
        if found || posted {
            return Next::Again;
        }
        match self.flows.get(self.begun) {
            Some(next) => Next::PollUntil(zero_ns + next.start_ns),
            None if self.ended == self.flows.len() => Next::Done,
            None => Next::Poll,
        }
    }
}
