//! The sending end of UC: turns requests into packets; a request is done when its last packet has been sent.

use std::collections::VecDeque;

use crate::packet::{
    Header, Psn, Service, DEFAULT_PARTITION_KEY, MAX_PAYLOAD_BYTES, MIN_MTU_BYTES,
};
use crate::reliable::{Request, Transmit};

/// See the module.
#[derive(Debug)]
pub struct Sender {
    peer_queue_pair: u32,
    next: Psn,
    mtu_bytes: u32,
    queue: VecDeque<Request>,
    /// Number of bytes of the first request that have been sent.
    offset: u32,
}

impl Sender {
    /// Creates a sender whose first packet has the sequence number `first`, for a path of 256 to 4096 bytes.
    pub fn new(peer_queue_pair: u32, first: Psn, mtu_bytes: u32) -> Self {
        Self {
            peer_queue_pair,
            next: first,
            mtu_bytes: mtu_bytes.clamp(MIN_MTU_BYTES, MAX_PAYLOAD_BYTES),
            queue: VecDeque::new(),
            offset: 0,
        }
    }

    /// The peer's queue pair.
    pub fn peer_queue_pair(&self) -> u32 {
        self.peer_queue_pair
    }

    /// Posts a SEND or WRITE.
    pub fn post(&mut self, request: Request) {
        self.queue.push_back(request);
    }

    /// Returns the next packet, and whether its request ends with it.
    pub fn poll_transmit(&mut self) -> Option<(Transmit, bool)> {
        let request = *self.queue.front()?;
        let offset = self.offset;
        let bytes = (request.bytes - offset).min(self.mtu_bytes);
        let last = offset + bytes == request.bytes;
        let header = Header {
            service: Service::Unreliable,
            operation: request.operation(offset, bytes, last),
            solicited: request.solicited && last,
            acknowledge: false,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: self.peer_queue_pair,
            psn: self.next,
        };
        self.next = self.next.plus(1);
        self.offset += bytes;
        if last {
            self.queue.pop_front();
            self.offset = 0;
        }
        let transmit = Transmit {
            header,
            id: request.id,
            offset,
            bytes,
        };
        Some((transmit, last))
    }
}
