//! A thread that takes SENDs: it keeps RECEIVEs posted, and may answer.

use dunlin_sim::{Next, SimCompletionQueue, SimDevice, SimRegion, Step};
use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionQueue, Destination, Device, Operation, Payload,
    QueuePair, ReceiveRequest, Segment, SendFlags, SendRequest, Work,
};

use super::posting::Taker;
use super::requester::{way_of, Answer};

/// The thread.
pub(super) struct Receiver {
    takers: Vec<Taker>,
    completions: SimCompletionQueue,
    region: SimRegion,
    /// RECEIVEs of a queue pair, and bytes of each.
    receives: usize,
    bytes: usize,
    /// Distance of their places, and the number of places.
    places: (u64, u64),
    answering: Option<Answering>,
}

/// Settings for answers, including the signaling interval.
pub(super) struct Answering {
    answer: Answer,
    signal_every: u64,
    /// Payload of inline answers.
    bytes: Vec<u8>,
}

impl Answering {
    pub(super) fn new(answer: Answer, signal_every: usize) -> Self {
        Self {
            answer,
            signal_every: signal_every as u64,
            bytes: vec![0; if answer.inline { answer.bytes } else { 0 }],
        }
    }
}

impl Receiver {
    /// Creates a receiver with all RECEIVEs posted, before anything is sent.
    ///
    /// # Panics
    /// When a queue pair accepts no RECEIVE.
    pub(super) fn new(
        (takers, completions): (Vec<Taker>, SimCompletionQueue),
        region: SimRegion,
        (receives, bytes): (usize, usize),
        places: (u64, u64),
        answering: Option<Answering>,
    ) -> Self {
        let mut receiver = Self {
            takers,
            completions,
            region,
            receives,
            bytes,
            places,
            answering,
        };
        for number in 0..receiver.takers.len() * receives {
            receiver.post(number);
        }
        receiver
    }

    /// Posts the RECEIVE of this number, which determines its queue pair and place.
    fn post(&mut self, number: usize) {
        let taker = &mut self.takers[number / self.receives];
        let (distance, places) = self.places;
        let place = (number % self.receives) as u64 % places * distance;
        let segments = [Segment {
            region: &self.region,
            offset: taker.offset + place as usize,
            length: self.bytes,
        }];
        let request = ReceiveRequest {
            id: number as u64,
            segments: &segments,
        };
        taker.pair.post_receive(&[request]).expect("one is free");
    }

    /// Answers the message in the RECEIVE of this number, if there are answers.
    fn answer(&mut self, number: usize, immediate: Option<u32>) {
        let (Some(answering), Some(mark)) = (&self.answering, immediate) else {
            return;
        };
        let taker = &mut self.takers[number / self.receives];
        let destination = taker.askers.get(&way_of(mark));
        let destination = destination.map(|(handle, address)| Destination {
            handle,
            queue_pair: address.queue_pair,
            queue_key: address.queue_key,
        });
        let segments = [Segment {
            region: &self.region,
            offset: 0,
            length: answering.answer.bytes,
        }];
        let payload = match answering.answer.inline {
            true => Payload::Inline(&answering.bytes),
            false => Payload::Segments(&segments),
        };
        taker.answered += 1;
        let mut flags = SendFlags::empty();
        let is_signaled = taker.answered % answering.signal_every == 0;
        flags.set(SendFlags::SIGNALED, is_signaled);
        let operation = Operation::Send {
            immediate: Some(mark),
        };
        let mut request = SendRequest::new(0, operation, payload, flags);
        request.destination = destination;
        let posted = taker.pair.post_send(&[request]);
        posted.expect("the send queue holds an answer to each RECEIVE");
    }
}

impl Step for Receiver {
    fn step(&mut self, _now_ns: u64) -> Next {
        let mut some = [Completion::EMPTY; 16];
        let count = self
            .completions
            .poll(&mut some)
            .expect("the queue holds all RECEIVEs");
        for completion in &some[..count] {
            assert!(completion.is_success(), "{completion:?}");
            // Otherwise the completion reports that answers have left.
            if completion.opcode == CompletionOpcode::Receive {
                SimDevice::charge(Work::Arrived);
                // Answered first: a peer waits for it, and other RECEIVEs are posted.
                self.answer(completion.id as usize, completion.immediate);
                self.post(completion.id as usize);
            }
        }
        match count {
            0 => Next::Poll,
            _ => Next::Again,
        }
    }
}
