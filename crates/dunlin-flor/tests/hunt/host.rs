//! A host of the hunt: its driver carries out what the connection wants, its application checks what it is given.

use std::collections::{HashMap, HashSet, VecDeque};

use dunlin_flor::connection::{
    Action, Config, Connection, Delivery, Failure, Incoming, MessageId, Received, SubmitError,
    WorkRequest,
};
use dunlin_flor::number::GlobalNumber;
use dunlin_flor::wire::{MAX_BODY_BYTES, SEND_HEADER_BYTES};
use dunlin_verbs::{RemoteAddress, RemoteKey};

use crate::nic::{Completion, Posted, QueuePair};
use crate::random::{mix, Random};

/// Receive buffers of a queue pair.
pub(crate) const RECEIVES: u32 = 64;
/// Places that messages are written to, and their bytes.
pub(crate) const SLOTS: usize = 6;
pub(crate) const SLOT_BYTES: usize = 320 << 10;
/// What memory holds that nobody uses.
const FREE: u8 = 0xEE;

/// What stands in a message: each byte follows from the seed, who sends it, which it is and where.
pub(crate) fn contents(seed: u64, sender: usize, index: u32, bytes: usize) -> Vec<u8> {
    let key = mix(seed ^ (sender as u64) << 40 ^ u64::from(index) << 8);
    let mut message: Vec<u8> = (0..bytes as u64)
        .map(|at| (mix(key ^ (at / 8)) >> (8 * (at % 8))) as u8)
        .collect();
    let length = bytes.min(4);
    message[..length].copy_from_slice(&index.to_le_bytes()[..length]);
    message
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Free,
    Granted,
    /// The application has it, and has filled it with this.
    Held(u8),
    Resting,
}

/// What a host asks of the world.
#[derive(Debug)]
pub(crate) enum Wish {
    Transmit { path: usize },
    Acknowledge(Vec<u8>),
    Release { slot: usize, after_ns: u64 },
    Rested { slot: usize, after_ns: u64 },
    Provide { message: u32, after_ns: u64 },
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) seed: u64,
    pub(crate) connection: Connection,
    pub(crate) memory: Vec<u8>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) acks: VecDeque<(Vec<u8>, u64)>,
    pub(crate) waiting: VecDeque<u32>,
    /// What is to be submitted.
    pub(crate) backlog: VecDeque<(u32, usize)>,
    pub(crate) poll_ns: Option<u64>,
    /// Bytes of messages under way, by their ids.
    pub(crate) sources: HashMap<u64, (u32, Vec<u8>)>,
    receives: HashMap<u64, (usize, u64, Vec<u8>)>,
    next_receive: u64,
    landings: HashMap<u32, (usize, u32)>,
    assemblies: HashMap<u32, Vec<u8>>,
    /// Indexes of the peer's messages that were delivered here.
    pub(crate) delivered: HashSet<u32>,
    pub(crate) finished: HashMap<u32, Result<(), Failure>>,
    pub(crate) lost: bool,
    pub(crate) refusals: f64,
}

impl Host {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        mut connection: Connection,
        config: &Config,
    ) -> Self {
        let mut queue_pairs: Vec<_> = (0..config.paths)
            .map(|_| QueuePair::new(RECEIVES))
            .collect();
        for (path, queue_pair) in queue_pairs.iter_mut().enumerate() {
            if path >= config.connected_paths {
                queue_pair.up = false;
                connection.renewed(path, queue_pair.address());
            }
        }
        Self {
            number,
            seed,
            connection,
            memory: vec![FREE; SLOTS * SLOT_BYTES],
            slots: vec![Slot::Free; SLOTS],
            queue_pairs,
            completions: VecDeque::new(),
            acks: VecDeque::new(),
            waiting: VecDeque::new(),
            backlog: VecDeque::new(),
            poll_ns: None,
            sources: HashMap::new(),
            receives: HashMap::new(),
            next_receive: 0,
            landings: HashMap::new(),
            assemblies: HashMap::new(),
            delivered: HashSet::new(),
            finished: HashMap::new(),
            lost: false,
            refusals: 0.0,
        }
    }

    /// What a run that stands still is to be understood by.
    pub(crate) fn state(&self, now_ns: u64) -> String {
        format!(
            "primary {} lost {} idle {} deadline {:?} finished {} delivered {} {:?} {:?}",
            self.connection.primary(),
            self.lost,
            self.connection.is_idle(),
            self.connection.next_deadline(now_ns),
            self.finished.len(),
            self.delivered.len(),
            self.connection.counters(),
            self.slots,
        )
    }

    /// The application submits what it can; whether that was anything.
    pub(crate) fn submit(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while let Some((index, bytes)) = self.backlog.pop_front() {
            // Every fourth has a tag, so that short messages are written, too.
            let tag = if index % 4 == 0 { index } else { 0 };
            match self.connection.submit(now_ns, bytes as u32, tag) {
                Ok(id) => {
                    let message = contents(self.seed, self.number, index, bytes);
                    self.sources.insert(id.0, (index, message));
                    any = true;
                }
                Err(SubmitError::Full { .. }) => {
                    self.backlog.push_front((index, bytes));
                    break;
                }
                Err(SubmitError::Lost) => {
                    self.finished.insert(index, Err(Failure::ConnectionLost));
                }
                Err(error) => panic!("{error}"),
            }
        }
        any
    }

    /// One look of the driver: acknowledgements first, then everything else, then what is to be done.
    pub(crate) fn poll(&mut self, now_ns: u64, random: &mut Random) -> Vec<Wish> {
        let mut wishes = Vec::new();
        while let Some((bytes, at_ns)) = self.acks.pop_front() {
            self.connection.received_ack(now_ns, &bytes, at_ns).unwrap();
            self.act(now_ns, random, &mut wishes);
        }
        while let Some(completion) = self.completions.pop_front() {
            self.handle(now_ns, completion);
            self.act(now_ns, random, &mut wishes);
        }
        self.act(now_ns, random, &mut wishes);
        wishes
    }

    fn handle(&mut self, now_ns: u64, completion: Completion) {
        match completion {
            Completion::Sent { global, at_ns } => {
                self.connection
                    .completed(now_ns, GlobalNumber(global), at_ns);
            }
            Completion::Send {
                path,
                bytes,
                at_ns,
                marked,
            } => {
                let received = self.receive(path, at_ns, marked, bytes);
                let bytes = self.receives[&received.receive].2.clone();
                let front = &bytes[..bytes.len().min(SEND_HEADER_BYTES + MAX_BODY_BYTES)];
                self.connection
                    .received_send(now_ns, received, front, bytes.len())
                    .expect("the network tears nothing");
            }
            Completion::Write {
                path,
                immediate,
                bytes,
                at_ns,
                marked,
            } => {
                let received = self.receive(path, at_ns, marked, Vec::new());
                self.connection
                    .received_write(now_ns, received, immediate, bytes);
            }
            Completion::Failed { path, incarnation } => {
                if self.queue_pairs[path].incarnation == incarnation {
                    self.connection.path_failed(now_ns, path);
                }
            }
        }
    }

    fn receive(&mut self, path: usize, arrived_ns: u64, marked: bool, bytes: Vec<u8>) -> Received {
        let receive = self.next_receive;
        self.next_receive += 1;
        let incarnation = self.queue_pairs[path].incarnation;
        self.receives.insert(receive, (path, incarnation, bytes));
        Received {
            path,
            receive,
            arrived_ns,
            marked,
        }
    }

    fn recycle(&mut self, receive: u64) {
        let (path, incarnation, _) = self.receives.remove(&receive).expect("recycled twice");
        let queue_pair = &mut self.queue_pairs[path];
        if queue_pair.incarnation == incarnation {
            queue_pair.receives += 1;
        }
    }

    fn act(&mut self, now_ns: u64, random: &mut Random, wishes: &mut Vec<Wish>) {
        while let Some(action) = self.connection.poll(now_ns) {
            match action {
                Action::Post(work) => self.post(&work, wishes),
                Action::Acknowledge(ack) => {
                    let mut bytes = [0; dunlin_flor::ack::MAX_ACK_BYTES];
                    let length = ack.encode(&mut bytes);
                    wishes.push(Wish::Acknowledge(bytes[..length].to_vec()));
                }
                Action::Place {
                    receive,
                    message,
                    offset,
                    bytes,
                    total,
                } => {
                    self.place(receive, message, (offset, bytes, total));
                }
                Action::Recycle(receive) => self.recycle(receive),
                Action::Provide { message, bytes, .. } => {
                    self.landings.insert(message, (usize::MAX, bytes));
                    let after_ns = random.below(50_000);
                    wishes.push(Wish::Provide { message, after_ns });
                }
                Action::Deliver(delivery) => self.deliver(delivery, random, wishes),
                Action::Discard(message) => match message {
                    Incoming::Assembled(message) => drop(self.assemblies.remove(&message)),
                    Incoming::Written(message) => self.free(message),
                },
                Action::Finished(id, outcome) => self.finish(id, outcome),
                Action::Fence { path } => {
                    self.queue_pairs[path].fail(&mut self.completions);
                }
                Action::Renew { path } => {
                    self.queue_pairs[path].renew(RECEIVES);
                    let address = self.queue_pairs[path].address();
                    self.connection.renewed(path, address);
                }
                Action::Connect { path, address } => {
                    self.queue_pairs[path].peer_incarnation = address.token;
                    self.queue_pairs[path].up = true;
                    self.connection.connected(path);
                }
                // Acknowledgements find their way here.
                Action::AcknowledgeTo(_) => {}
                Action::Lost => self.lost = true,
            }
        }
    }

    fn post(&mut self, work: &WorkRequest, wishes: &mut Vec<Wish>) {
        let queue_pair = &mut self.queue_pairs[work.path];
        if queue_pair.up {
            queue_pair.queue.push_back(Posted::new(work));
            wishes.push(Wish::Transmit { path: work.path });
        } else {
            let global = work.global.0;
            self.completions.push_back(Completion::Sent {
                global,
                at_ns: None,
            });
        }
    }

    fn place(&mut self, receive: u64, message: Incoming, (offset, bytes, total): (u32, u32, u32)) {
        let source = &self.receives[&receive].2[SEND_HEADER_BYTES..];
        assert_eq!(source.len(), bytes as usize);
        let begin = offset as usize;
        let target = match message {
            Incoming::Assembled(message) => {
                let memory = self.assemblies.entry(message);
                memory.or_insert_with(|| vec![FREE; total as usize])
            }
            Incoming::Written(message) => {
                let (slot, length) = self.landings[&message];
                assert_eq!(self.slots[slot], Slot::Granted);
                let begin = slot * SLOT_BYTES;
                &mut self.memory[begin..begin + length as usize]
            }
        };
        target[begin..begin + bytes as usize].copy_from_slice(source);
    }

    /// Memory for a message that was announced: `true` if the connection was answered.
    pub(crate) fn provide(&mut self, message: u32, random: &mut Random) -> bool {
        if self.lost {
            return true;
        }
        if random.chance(self.refusals) {
            self.landings.remove(&message);
            self.connection.refuse(message);
            return true;
        }
        let Some(slot) = self.slots.iter().position(|slot| *slot == Slot::Free) else {
            self.waiting.push_back(message);
            return false;
        };
        let begin = slot * SLOT_BYTES;
        let memory = &self.memory[begin..begin + SLOT_BYTES];
        assert!(
            memory.iter().all(|byte| *byte == FREE),
            "free memory was written"
        );
        self.slots[slot] = Slot::Granted;
        self.landings.get_mut(&message).expect("announced").0 = slot;
        let place = RemoteAddress {
            address: begin as u64,
            key: RemoteKey(7),
        };
        self.connection.provide(message, place);
        true
    }

    fn deliver(&mut self, delivery: Delivery, random: &mut Random, wishes: &mut Vec<Wish>) {
        match delivery {
            Delivery::Whole { receive, bytes } => {
                let message = self.receives[&receive].2[SEND_HEADER_BYTES..].to_vec();
                assert_eq!(message.len(), bytes as usize);
                self.check(&message);
                self.recycle(receive);
            }
            Delivery::Pieces {
                message: Incoming::Assembled(message),
                bytes,
                ..
            } => {
                let message = self.assemblies.remove(&message).expect("placed");
                assert_eq!(message.len(), bytes as usize);
                self.check(&message);
            }
            Delivery::Pieces {
                message: Incoming::Written(message),
                bytes,
                quarantine_ns,
            } => {
                let (slot, length) = self.landings.remove(&message).expect("provided");
                assert_eq!(length, bytes);
                let begin = slot * SLOT_BYTES;
                let memory = begin..begin + length as usize;
                let copy = self.memory[memory.clone()].to_vec();
                self.check(&copy);
                if let Some(after_ns) = quarantine_ns {
                    self.slots[slot] = Slot::Resting;
                    wishes.push(Wish::Rested { slot, after_ns });
                } else {
                    // The application writes what it likes into it, and nobody else does.
                    let filling = random.next() as u8;
                    self.memory[memory].fill(filling);
                    self.slots[slot] = Slot::Held(filling);
                    let after_ns = random.below(2_000_000);
                    wishes.push(Wish::Release { slot, after_ns });
                }
            }
        }
    }

    fn check(&mut self, message: &[u8]) {
        let mut index = [0; 4];
        index.copy_from_slice(&message[..4]);
        let index = u32::from_le_bytes(index);
        let sent = contents(self.seed, 1 - self.number, index, message.len());
        assert!(
            sent == message,
            "message {index} of {} bytes is torn",
            message.len()
        );
        assert!(self.delivered.insert(index), "message {index} came twice");
    }

    fn finish(&mut self, id: MessageId, outcome: Result<(), Failure>) {
        // From here on the bytes are the application's, which uses them for something else.
        let (index, _) = self.sources.remove(&id.0).expect("finished twice");
        let before = self.finished.insert(index, outcome);
        assert!(before.is_none(), "message {index} finished twice");
    }

    fn free(&mut self, message: u32) {
        let slot = self.landings.remove(&message).map(|(slot, _)| slot);
        if let Some(slot) = slot.filter(|slot| *slot < SLOTS) {
            self.release(slot);
        }
    }

    /// The application gives memory back, and sees that nobody else wrote into it.
    pub(crate) fn released(&mut self, slot: usize) {
        if let Slot::Held(filling) = self.slots[slot] {
            let begin = slot * SLOT_BYTES;
            let memory = &self.memory[begin..begin + SLOT_BYTES];
            let touched = memory.iter().any(|byte| *byte != filling && *byte != FREE);
            assert!(!touched, "memory of the application was written");
        }
        self.release(slot);
    }

    pub(crate) fn release(&mut self, slot: usize) {
        let begin = slot * SLOT_BYTES;
        self.memory[begin..begin + SLOT_BYTES].fill(FREE);
        self.slots[slot] = Slot::Free;
    }
}
