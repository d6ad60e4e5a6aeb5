//! A connected queue pair, the memory that it may access, and operations with both that no honest client does.

use dunlin_verbs::{
    thread, Access, Completion, CompletionQueue, ConnectAttributes, Device, EndpointAddress,
    Operation, Payload, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest,
    Region, RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest, Transport,
};

use super::{has_marker, wait_for, Random};
use crate::channel::Parameters;

/// Sizes in bytes of the memory in which answers to a hostile peer arrive, and of the memory from which it sends.
pub(crate) const MEMORY_BYTES: usize = 4096 + (64 << 10);
/// The id of work requests; RECEIVEs have another.
const POSTED: u64 = 7;

/// Memory of the server that was granted to a peer, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) at: RemoteAddress,
    pub(crate) bytes: usize,
}

impl Grant {
    /// The grant with these names in a server's answer, of an address and its key.
    pub(crate) fn told(
        parameters: &Parameters,
        (address, key): (&str, &str),
        bytes: usize,
    ) -> Self {
        let at = RemoteAddress {
            address: parameters[address],
            key: RemoteKey(parameters[key] as u32),
        };
        Self { at, bytes }
    }
}

/// A hostile queue pair.
pub(crate) struct Pair<D: Device> {
    pub(crate) queue_pair: D::QueuePair,
    pub(crate) completions: D::CompletionQueue,
    pub(crate) inlet: D::Region,
    pub(crate) staging: D::Region,
}

impl<D: Device> Pair<D> {
    pub(crate) fn new(device: &D, receives: usize) -> Self {
        let domain = device.create_protection_domain().expect("a domain");
        let region = |access| {
            let region = device.allocate_region(&domain, MEMORY_BYTES, access);
            region.expect("memory")
        };
        let completions = device.create_completion_queue(512, None).expect("a queue");
        let config = QueuePairConfig {
            transport: Transport::ReliableConnection,
            send_completions: &completions,
            receive_completions: &completions,
            send_requests: 64,
            receive_queue: ReceiveQueue::Own(64),
            segments: 1,
            inline_bytes: 0,
        };
        let queue_pair = device.create_queue_pair(&domain, &config);
        let mut pair = Self {
            queue_pair: queue_pair.expect("a queue pair"),
            completions,
            // Also readable: the server fetches long requests from where it is told.
            inlet: region(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ),
            staging: region(Access::LOCAL_WRITE),
        };
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        pair.queue_pair.to_init(access).expect("a new queue pair");
        for _ in 0..receives {
            let request = ReceiveRequest {
                id: 0,
                segments: &[],
            };
            pair.queue_pair.post_receive(&[request]).expect("room");
        }
        pair
    }

    pub(crate) fn join(&mut self, peer: &EndpointAddress) {
        // So that it notices soon that a connection is over, and makes another.
        let attributes = ConnectAttributes {
            timeout_ns: 2_000_000,
            retry_count: 3,
            receiver_not_ready_retries: 3,
            ..Default::default()
        };
        let ready = self
            .queue_pair
            .to_ready_to_receive(Some(peer), attributes)
            .and_then(|()| self.queue_pair.to_ready_to_send());
        ready.expect("the server's address");
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.queue_pair.state() == QueuePairState::ReadyToSend
    }

    /// WRITEs. Returns `false` if that failed, and the connection is over.
    pub(crate) fn write_at(
        &mut self,
        remote: RemoteAddress,
        bytes: &[u8],
        immediate: Option<u32>,
    ) -> bool {
        self.staging.memory().write(0, bytes);
        self.operate(Operation::Write { remote, immediate }, bytes.len())
    }

    /// Executes an operation on this many bytes of the staging memory. Returns `false` if it failed.
    pub(crate) fn operate(&mut self, operation: Operation, length: usize) -> bool {
        let segment = [Segment {
            region: &self.staging,
            offset: 0,
            length,
        }];
        let segments = if length == 0 { &[][..] } else { &segment };
        let payload = Payload::Segments(segments);
        let request = SendRequest::new(POSTED, operation, payload, SendFlags::SIGNALED);
        if self.queue_pair.post_send(&[request]).is_err() {
            return false;
        }
        let mut ended = None;
        let mut completions = [Completion::EMPTY; 8];
        wait_for("the end of a request", || {
            let count = self.completions.poll(&mut completions).expect("room");
            let mut own = completions[..count].iter().filter(|c| c.id == POSTED);
            ended = own.next().map(Completion::is_success);
            ended.is_some()
        });
        ended == Some(true)
    }

    /// READs, and checks that it sees no data of others. Returns `false` if the READ failed.
    fn read_at(&mut self, remote: RemoteAddress, length: usize) -> bool {
        let done = self.operate(Operation::Read { remote }, length);
        if done {
            let mut bytes = vec![0; length];
            self.staging.memory().read(0, &mut bytes);
            assert!(!has_marker(&bytes), "{remote:?} shows a good client's call");
        }
        done
    }

    /// Accesses memory that is granted, or any other. Returns `false` if the connection is over. `gone` are the grants
    /// of past connections, `immediate` is immediate data that could be valid.
    pub(crate) fn stray(
        &mut self,
        random: &mut Random,
        grants: &[Grant],
        gone: &[Grant],
        immediate: u32,
    ) -> bool {
        let grant = random.of(grants);
        let word = random.next();
        let offset = random.below(grant.bytes);
        let place = grant.at.plus(offset as u64);
        let immediate = random.of(&[None, Some(immediate), Some(word as u32)]);
        match random.below(16) {
            0..=7 => {
                let most = random.of(&[9, 64, 600, 5000]);
                let length = random.below(most.min(grant.bytes - offset) + 1);
                let noise = random.bytes(length);
                self.write_at(place, &noise, immediate)
            }
            8 => {
                let far = random.of(&[1 << 40, 1 << 63, word | 1 << 44]);
                let done = self.write_at(grant.at.plus(far), &[0xee; 8], immediate);
                assert!(!done, "a WRITE at {far:#x} of {grant:?}");
                false
            }
            9 | 10 => {
                let other = foreign(random, grant, gone);
                if word & 1 == 0 {
                    // It may be a long answer to this very peer.
                    return self.read_at(other, 64);
                }
                let done = self.write_at(other, &[0xee; 8], None);
                let own = grants.iter().any(|own| own.at.key == other.key);
                assert!(!done || own, "{other:?} is not granted");
                done
            }
            11 => {
                // Granted for writing.
                let length = 1 + random.below(64.min(grant.bytes - offset));
                let done = self.read_at(place, length);
                assert!(!done, "a READ of {place:?}");
                false
            }
            12 => {
                let remote = grant.at.plus(offset as u64 & !7);
                let operation = match word & 1 {
                    0 => Operation::FetchAndAdd { remote, add: word },
                    _ => Operation::CompareAndSwap {
                        remote,
                        compare: 0,
                        swap: word,
                    },
                };
                let done = self.operate(operation, 8);
                assert!(!done, "{operation:?} was not granted");
                false
            }
            13 => {
                let length = random.of(&[1, 16, 4096]);
                let noise = random.bytes(length);
                self.staging.memory().write(0, &noise);
                self.operate(Operation::Send { immediate }, length)
            }
            _ => {
                // Only immediate data, which consumes a RECEIVE.
                let operation = match word & 1 {
                    0 => Operation::Send { immediate },
                    _ => Operation::Write {
                        remote: place,
                        immediate,
                    },
                };
                self.operate(operation, 0)
            }
        }
    }

    /// Checks that what was written to the peer belongs to its own calls.
    pub(crate) fn saw_nothing(&self) {
        let mut bytes = vec![0; MEMORY_BYTES];
        self.inlet.memory().read(0, &mut bytes);
        assert!(!has_marker(&bytes), "a good client's call in this inlet");
    }

    /// Pauses, so that the server sees what was written.
    pub(crate) fn rest(random: &mut Random) {
        let microseconds = random.of(&[0, 0, 5, 50, 300]);
        if microseconds > 0 {
            thread::sleep(std::time::Duration::from_micros(microseconds));
        }
    }
}

/// An address with a key that was not granted: a neighbour of one that was, one of a past connection, or a random one.
fn foreign(random: &mut Random, grant: Grant, gone: &[Grant]) -> RemoteAddress {
    let own = grant.at.key.0;
    let key = match random.below(4) {
        0 => own.wrapping_add(random.of(&[1, 2, 3, u32::MAX])),
        1 => own ^ 1 << random.below(32),
        2 if !gone.is_empty() => return random.of(gone).at,
        _ => random.next() as u32,
    };
    RemoteAddress {
        address: random.of(&[grant.at.address, 0, 4096]),
        key: RemoteKey(key),
    }
}
