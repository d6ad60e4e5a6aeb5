//! A NIC of the hunt: queue pairs over UC, packet by packet, and over RC, work request by work request.
//!
//! It reads the bytes of a work request when it sends them, not when they are posted, and writes those of a WRITE when
//! they arrive: a buffer that is used again too soon shows.

use std::collections::VecDeque;

use dunlin_flor::connection::{Piece, Verb, WorkRequest};
use dunlin_verbs::{EndpointAddress, ENDPOINT_ADDRESS_BYTES};

/// Payload of a packet.
pub(crate) const MTU: usize = 1024;
/// Offers of one work request that RC makes (Flor §6: two retries).
pub(crate) const RC_ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// RC.
    Reliable,
    /// UC that drops what is behind the expected sequence number, as the paper has it.
    Checked,
    /// UC that takes the first packet of a message with any number, as the standard has it.
    Resynchronising,
}

/// What a completion queue says.
#[derive(Debug)]
pub(crate) enum Completion {
    Sent {
        global: u64,
        at_ns: Option<u64>,
    },
    Send {
        path: usize,
        bytes: Vec<u8>,
        at_ns: u64,
        marked: bool,
    },
    Write {
        path: usize,
        immediate: u32,
        bytes: usize,
        at_ns: u64,
        marked: bool,
    },
    /// The device says that a queue pair has failed.
    Failed {
        path: usize,
        incarnation: u64,
    },
}

/// What is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) path: usize,
    /// The queue pair that it is for: one that was made anew does not take what was meant for the one before.
    pub(crate) incarnation: u64,
    pub(crate) number: u64,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) body: Body,
    pub(crate) marked: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Send(Vec<u8>),
    Write {
        address: u64,
        immediate: u32,
        total: usize,
        bytes: Vec<u8>,
    },
    /// RC: all before this number have arrived.
    Acknowledgement,
}

#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) global: u64,
    pub(crate) front: Vec<u8>,
    pub(crate) piece: Option<Piece>,
    pub(crate) write: Option<(u64, u32)>,
    pub(crate) attempts: u32,
}

impl Posted {
    pub(crate) fn new(work: &WorkRequest) -> Self {
        let (front, piece, write) = match &work.verb {
            Verb::Send { front, piece } => (front.bytes().to_vec(), *piece, None),
            Verb::Write {
                piece,
                remote,
                immediate,
            } => (Vec::new(), Some(*piece), Some((remote.address, *immediate))),
        };
        Self {
            global: work.global.0,
            front,
            piece,
            write,
            attempts: 0,
        }
    }

    /// Its packets, with the bytes as they are now. RC has one for all of it.
    pub(crate) fn packets(&self, message: &[u8], service: Service) -> Vec<(bool, bool, Body)> {
        let mut bytes = self.front.clone();
        if let Some(piece) = self.piece {
            let begin = piece.offset as usize;
            bytes.extend_from_slice(&message[begin..begin + piece.bytes as usize]);
        }
        let total = bytes.len();
        let size = if service == Service::Reliable {
            total.max(1)
        } else {
            MTU
        };
        let mut chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let count = chunks.len();
        let packet = |(index, chunk): (usize, &[u8])| {
            let body = match self.write {
                None => Body::Send(chunk.to_vec()),
                Some((address, immediate)) => Body::Write {
                    address: address + (index * size) as u64,
                    immediate,
                    total,
                    bytes: chunk.to_vec(),
                },
            };
            (index == 0, index + 1 == count, body)
        };
        chunks.into_iter().enumerate().map(packet).collect()
    }
}

/// One end of a queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) up: bool,
    pub(crate) incarnation: u64,
    /// What packets of the peer have to be for.
    pub(crate) peer_incarnation: u64,
    /// Nothing comes through and nobody says so.
    pub(crate) black_hole: bool,
    /// Posted, and on UC not sent yet, on RC not acknowledged yet.
    pub(crate) queue: VecDeque<Posted>,
    /// RC: how many of the queue are on their way.
    pub(crate) sent: usize,
    /// The number of the first in the queue (RC), of the next packet (UC).
    pub(crate) number: u64,
    pub(crate) expected: u64,
    pub(crate) receives: u32,
    pub(crate) busy: bool,
    /// UC: what is being sent.
    pub(crate) sending: Option<u64>,
    pub(crate) timer: u64,
    partial: Option<Partial>,
}

#[derive(Debug)]
enum Partial {
    Send(Vec<u8>),
    Write,
}

impl QueuePair {
    pub(crate) fn new(receives: u32) -> Self {
        Self {
            up: true,
            incarnation: 0,
            peer_incarnation: 0,
            black_hole: false,
            queue: VecDeque::new(),
            sent: 0,
            number: 0,
            expected: 0,
            receives,
            busy: false,
            sending: None,
            timer: 0,
            partial: None,
        }
    }

    /// Where it can be reached: the hunt tells its incarnations apart.
    pub(crate) fn address(&self) -> EndpointAddress {
        let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
        bytes[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        EndpointAddress::decode(&bytes)
    }

    /// To Error: what is posted is flushed.
    pub(crate) fn fail(&mut self, completions: &mut VecDeque<Completion>) {
        self.up = false;
        self.sent = 0;
        self.partial = None;
        let sending = self.sending.take().into_iter();
        let queue = self.queue.drain(..).map(|posted| posted.global);
        for global in sending.chain(queue) {
            completions.push_back(Completion::Sent {
                global,
                at_ns: None,
            });
        }
    }

    /// Made anew, not connected yet.
    pub(crate) fn renew(&mut self, receives: u32) {
        let incarnation = self.incarnation + 1;
        *self = Self {
            incarnation,
            up: false,
            ..Self::new(receives)
        };
    }

    /// A packet has arrived: what the software hears of it. `None` for RC's requests that get no acknowledgement.
    pub(crate) fn arrive(
        &mut self,
        packet: &Packet,
        service: Service,
        memory: &mut [u8],
        now_ns: u64,
    ) -> (Option<Completion>, bool) {
        if !self.up || packet.incarnation != self.incarnation {
            return (None, false);
        }
        match service {
            Service::Reliable if packet.number < self.expected => return (None, true),
            Service::Reliable if packet.number > self.expected => return (None, false),
            // Receiver not ready: offered again, which here is as good as lost.
            Service::Reliable if self.receives == 0 => return (None, false),
            Service::Checked if packet.number < self.expected => return (None, false),
            _ => {}
        }
        let in_order = packet.number == self.expected;
        self.expected = packet.number + 1;
        if packet.first || !in_order {
            self.partial = None;
        }
        if !packet.first && self.partial.is_none() {
            return (None, false);
        }
        let path = packet.path;
        let completion = match &packet.body {
            Body::Send(bytes) => {
                if self.receives == 0 {
                    self.partial = None;
                    return (None, false);
                }
                let mut whole = match self.partial.take() {
                    Some(Partial::Send(whole)) => whole,
                    _ => Vec::new(),
                };
                whole.extend_from_slice(bytes);
                if !packet.last {
                    self.partial = Some(Partial::Send(whole));
                    return (None, true);
                }
                Completion::Send {
                    path,
                    bytes: whole,
                    at_ns: now_ns,
                    marked: packet.marked,
                }
            }
            Body::Write {
                address,
                immediate,
                total,
                bytes,
            } => {
                let begin = usize::try_from(*address).unwrap();
                memory[begin..begin + bytes.len()].copy_from_slice(bytes);
                if !packet.last {
                    self.partial = Some(Partial::Write);
                    return (None, true);
                }
                self.partial = None;
                if self.receives == 0 {
                    return (None, false);
                }
                Completion::Write {
                    path,
                    immediate: *immediate,
                    bytes: *total,
                    at_ns: now_ns,
                    marked: packet.marked,
                }
            }
            Body::Acknowledgement => return (None, false),
        };
        self.receives -= 1;
        (Some(completion), true)
    }
}
