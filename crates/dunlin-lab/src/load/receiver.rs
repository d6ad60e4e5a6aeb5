//! A thread that takes SENDs: it keeps RECEIVEs posted.

use dunlin_sim::{Next, SimCompletionQueue, SimDevice, SimRegion, Step};
use dunlin_verbs::{Completion, CompletionQueue, Device, QueuePair, ReceiveRequest, Segment, Work};

use super::posting::Taker;

/// The thread.
pub(super) struct Receiver {
    takers: Vec<Taker>,
    completions: SimCompletionQueue,
    region: SimRegion,
    /// RECEIVEs of a queue pair, and bytes of each.
    receives: usize,
    bytes: usize,
    /// Distance of their places, and the number of them.
    places: (u64, u64),
}

impl Receiver {
    /// With all RECEIVEs posted: nothing is sent before.
    ///
    /// # Panics
    /// When a queue pair takes no RECEIVE.
    pub(super) fn new(
        (takers, completions): (Vec<Taker>, SimCompletionQueue),
        region: SimRegion,
        (receives, bytes): (usize, usize),
        places: (u64, u64),
    ) -> Self {
        let mut receiver = Self {
            takers,
            completions,
            region,
            receives,
            bytes,
            places,
        };
        for number in 0..receiver.takers.len() * receives {
            receiver.post(number);
        }
        receiver
    }

    /// Posts the RECEIVE of this number, which says where it belongs.
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
            SimDevice::charge(Work::Arrived);
            self.post(completion.id as usize);
        }
        match count {
            0 => Next::Poll,
            _ => Next::Again,
        }
    }
}
