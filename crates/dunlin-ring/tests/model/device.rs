//! A device whose every step a test decides: when a WRITE lands, in which halves, and when its completion is told.
//!
//! The bytes of a WRITE are taken from the poster's memory when it lands, as a NIC does, not when it is posted: who
//! reuses a buffer before its completion sends the wrong bytes, and the tests notice.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dunlin_verbs::{
    Access, AsyncEvent, Completion, CompletionChannel, CompletionOpcode, CompletionQueue,
    CompletionQueueError, CompletionStatus, ConnectAttributes, Device, DeviceAttributes,
    EndpointAddress, LocalKey, Memory, Notify, Operation, PageKind, Payload, Placement, PostError,
    PostErrorKind, QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest,
    Region, RemoteAddress, RemoteKey, SendFlags, SendRequest, SharedReceiveQueue, Transport,
    TransportSet, Verbs, VerbsError,
};

/// Heap memory that lives as long as anyone names it.
#[derive(Debug)]
struct Heap {
    _words: Box<[u64]>,
    memory: Memory,
    access: Access,
    key: u32,
}

/// A registered region.
#[derive(Clone, Debug)]
pub struct ModelRegion(Arc<Heap>);

// SAFETY: the window is of a block that the region keeps.
unsafe impl Region for ModelRegion {
    fn memory(&self) -> &Memory {
        &self.0.memory
    }
    fn access(&self) -> Access {
        self.0.access
    }
    fn local_key(&self) -> LocalKey {
        LocalKey(self.0.key)
    }
    fn remote(&self) -> RemoteAddress {
        RemoteAddress {
            address: 0,
            key: RemoteKey(self.0.key),
        }
    }
    fn page_kind(&self) -> PageKind {
        PageKind::Base
    }
}

#[derive(Debug)]
enum Bytes {
    Inline(Vec<u8>),
    Segment(ModelRegion, usize, usize),
}

impl Bytes {
    fn now(&self) -> Vec<u8> {
        match self {
            Bytes::Inline(bytes) => bytes.clone(),
            Bytes::Segment(region, offset, length) => {
                let mut bytes = vec![0; *length];
                region.memory().read(*offset, &mut bytes);
                bytes
            }
        }
    }
}

#[derive(Debug)]
struct Posted {
    operation: Operation,
    bytes: Bytes,
    signaled: bool,
    id: u64,
    /// Half of it has landed.
    begun: bool,
}

#[derive(Debug, Default)]
struct Pair {
    number: u32,
    peer: Option<u32>,
    sends: usize,
    receives: usize,
    posted: VecDeque<Posted>,
    /// Landed, not told yet.
    landed: VecDeque<Completion>,
    /// Entries of the send queue in use.
    used: usize,
    /// Requests since the last signaled one, given back with it.
    unsignaled: usize,
    retire: VecDeque<usize>,
    completions: VecDeque<Completion>,
    state: Option<QueuePairState>,
}

#[derive(Debug, Default)]
struct Net {
    regions: Vec<ModelRegion>,
    pairs: Vec<Pair>,
}

/// The device; both sides are on the same one.
#[derive(Clone, Debug)]
pub struct ModelDevice {
    net: Arc<Mutex<Net>>,
    attributes: Arc<DeviceAttributes>,
}

impl ModelDevice {
    pub fn new(placement: Placement) -> Self {
        let all = Verbs::all() - Verbs::SHARED_RECEIVE;
        let attributes = DeviceAttributes {
            name: "model".into(),
            transports: TransportSet {
                rc: all,
                uc: Verbs::empty(),
                ud: Verbs::empty(),
            },
            placement,
            writes_are_messages: true,
            messages_per_second: None,
            lossless: true,
            packets_by_software: false,
            max_queue_pairs: 16,
            max_send_requests: 4096,
            max_receive_requests: 4096,
            max_segments: 1,
            max_inline_bytes: 64,
            max_completions: 1 << 16,
            max_regions: 64,
            max_registered_bytes: 1 << 30,
            max_message_bytes: 1 << 30,
            mtu_bytes: 4096,
            max_shared_receive_requests: 0,
            timestamps: false,
            page_kind: PageKind::Base,
            raw_memory_remote: false,
            grants_are_mappings: false,
            speaks_roce: false,
        };
        Self {
            net: Arc::default(),
            attributes: Arc::new(attributes),
        }
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap()
    }

    /// Queue pairs.
    pub fn pairs(&self) -> usize {
        self.net().pairs.len()
    }

    /// Requests of a queue pair that have not landed.
    pub fn pending(&self, pair: usize) -> usize {
        self.net().pairs[pair].posted.len()
    }

    /// A peer that writes a word where it may: into the region that was allocated as that number.
    pub fn write_word(&self, region: usize, at: usize, word: u64) {
        let memory = &self.net().regions[region].0.memory;
        memory.write(at, &word.to_le_bytes());
    }

    /// Lets the next request of a queue pair land: half of it first, if `half` and it is a WRITE of some length.
    /// `false`: there is none, or its receiver is not ready.
    pub fn land(&self, pair: usize, half: bool) -> bool {
        let in_order = self.attributes.placement == Placement::InOrder;
        let mut net = self.net();
        let Some(mut next) = net.pairs[pair].posted.pop_front() else {
            return false;
        };
        let bytes = next.bytes.now();
        let opcode = match next.operation {
            Operation::Write { remote, immediate } => {
                let peer = net.pairs[pair].peer.unwrap() as usize;
                if immediate.is_some() && net.pairs[peer].receives == 0 {
                    net.pairs[pair].posted.push_front(next);
                    return false;
                }
                if !bytes.is_empty() {
                    let target = net.regions[remote.key.0 as usize].clone();
                    assert!(target.access().contains(Access::REMOTE_WRITE));
                    let (at, middle) = (remote.address as usize, bytes.len() / 2);
                    // Single words are placed whole; what is longer may be seen half.
                    if half && !next.begun && bytes.len() > 8 {
                        if in_order {
                            target.memory().write(at, &bytes[..middle]);
                        } else {
                            target.memory().write(at + middle, &bytes[middle..]);
                        }
                        next.begun = true;
                        net.pairs[pair].posted.push_front(next);
                        return true;
                    }
                    target.memory().write(at, &bytes);
                }
                if immediate.is_some() {
                    net.pairs[peer].receives -= 1;
                    let number = net.pairs[peer].number;
                    net.pairs[peer].completions.push_back(Completion {
                        status: CompletionStatus::Success,
                        opcode: CompletionOpcode::ReceiveWriteWithImmediate,
                        immediate,
                        queue_pair: number,
                        ..Completion::EMPTY
                    });
                }
                CompletionOpcode::Write
            }
            Operation::Read { remote } => {
                let source = net.regions[remote.key.0 as usize].clone();
                assert!(source.access().contains(Access::REMOTE_READ));
                let mut found = vec![0; bytes.len()];
                source.memory().read(remote.address as usize, &mut found);
                let Bytes::Segment(region, offset, _) = &next.bytes else {
                    panic!("a READ into nothing")
                };
                region.memory().write(*offset, &found);
                CompletionOpcode::Read
            }
            other => panic!("{other:?}"),
        };
        let pair = &mut net.pairs[pair];
        pair.unsignaled += 1;
        if next.signaled {
            let count = std::mem::take(&mut pair.unsignaled);
            pair.retire.push_back(count);
            pair.landed.push_back(Completion {
                id: next.id,
                status: CompletionStatus::Success,
                opcode,
                queue_pair: pair.number,
                ..Completion::EMPTY
            });
        }
        true
    }

    /// Tells of the next request of a queue pair that has landed.
    pub fn complete(&self, pair: usize) -> bool {
        let mut net = self.net();
        let pair = &mut net.pairs[pair];
        let Some(completion) = pair.landed.pop_front() else {
            return false;
        };
        pair.used -= pair.retire.pop_front().unwrap();
        pair.completions.push_back(completion);
        true
    }

    /// Everything lands and is told.
    pub fn settle(&self) {
        for pair in 0..self.pairs() {
            while self.land(pair, false) {}
            while self.complete(pair) {}
        }
    }
}

/// A domain; there is only one.
#[derive(Clone, Debug)]
pub struct Domain;

#[derive(Clone, Debug)]
pub struct NoChannel;

impl AsFd for NoChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        panic!("the model has no events")
    }
}

impl CompletionChannel for NoChannel {
    fn wait(&self, _: Duration) -> Result<bool, VerbsError> {
        Ok(true)
    }
    fn wake(&self) {}
}

#[derive(Debug)]
pub struct ModelQueue {
    net: Arc<Mutex<Net>>,
    /// The queue pair that uses it; each has its own here.
    pair: Arc<Mutex<Option<usize>>>,
}

impl CompletionQueue for ModelQueue {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        let Some(pair) = *self.pair.lock().unwrap() else {
            return Ok(0);
        };
        let mut net = self.net.lock().unwrap();
        let waiting = &mut net.pairs[pair].completions;
        let count = waiting.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(waiting.drain(..count)) {
            *place = completion;
        }
        Ok(count)
    }

    fn request_notify(&mut self, _: Notify) -> Result<(), VerbsError> {
        Ok(())
    }
}

#[derive(Debug)]
pub struct ModelPair {
    net: Arc<Mutex<Net>>,
    index: usize,
}

impl ModelPair {
    fn with<T>(&self, f: impl FnOnce(&mut Pair) -> T) -> T {
        f(&mut self.net.lock().unwrap().pairs[self.index])
    }
}

impl QueuePair for ModelPair {
    type Region = ModelRegion;
    type AddressHandle = ();
    type Mapped = dunlin_verbs::NotMapped;

    fn number(&self) -> u32 {
        self.index as u32
    }
    fn transport(&self) -> Transport {
        Transport::ReliableConnection
    }
    fn state(&self) -> QueuePairState {
        self.with(|pair| pair.state.unwrap_or(QueuePairState::Reset))
    }
    fn address(&self) -> EndpointAddress {
        let mut address = EndpointAddress::decode(&[0; 48]);
        address.queue_pair = self.index as u32;
        address
    }
    fn to_init(&mut self, _: Access) -> Result<(), VerbsError> {
        self.with(|pair| pair.state = Some(QueuePairState::Init));
        Ok(())
    }
    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        _: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        self.with(|pair| pair.peer = remote.map(|remote| remote.queue_pair));
        Ok(())
    }
    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        self.with(|pair| pair.state = Some(QueuePairState::ReadyToSend));
        Ok(())
    }
    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        Ok(())
    }
    fn to_error(&mut self) {
        self.with(|pair| pair.state = Some(QueuePairState::Error));
    }
    fn to_reset(&mut self) {}

    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, ModelRegion, ()>],
    ) -> Result<(), PostError> {
        self.with(|pair| {
            for (index, request) in requests.iter().enumerate() {
                if pair.used == pair.sends {
                    let limit = pair.sends;
                    let kind = PostErrorKind::Full { limit };
                    return Err(PostError { index, kind });
                }
                pair.used += 1;
                pair.posted.push_back(Posted {
                    operation: request.operation,
                    bytes: match request.payload {
                        Payload::Inline(bytes) => {
                            assert!(bytes.len() <= 64, "more than the device takes inline");
                            Bytes::Inline(bytes.to_vec())
                        }
                        Payload::Segments([one]) => {
                            Bytes::Segment(one.region.clone(), one.offset, one.length)
                        }
                        Payload::Segments(_) => panic!("one segment"),
                    },
                    signaled: request.flags.contains(SendFlags::SIGNALED),
                    id: request.id,
                    begun: false,
                });
            }
            Ok(())
        })
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, ModelRegion>],
    ) -> Result<(), PostError> {
        self.with(|pair| pair.receives += requests.len());
        Ok(())
    }
}

#[derive(Debug)]
pub struct NoSharedReceives;

impl SharedReceiveQueue for NoSharedReceives {
    type Region = ModelRegion;

    fn post_receive(&mut self, _: &[ReceiveRequest<'_, ModelRegion>]) -> Result<(), PostError> {
        panic!("the model has none")
    }
}

// SAFETY: each region is a block of its own, which work requests change before they complete.
unsafe impl Device for ModelDevice {
    type ProtectionDomain = Domain;
    type Region = ModelRegion;
    type CompletionChannel = NoChannel;
    type CompletionQueue = ModelQueue;
    type AddressHandle = ();
    type QueuePair = ModelPair;
    type SharedReceiveQueue = NoSharedReceives;

    fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }
    fn create_protection_domain(&self) -> Result<Domain, VerbsError> {
        Ok(Domain)
    }
    fn allocate_region(
        &self,
        _: &Domain,
        length: usize,
        access: Access,
    ) -> Result<ModelRegion, VerbsError> {
        let mut words = vec![0u64; length.div_ceil(8)].into_boxed_slice();
        let start = NonNull::new(words.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: the box is aligned to 8, has `length` bytes, is never touched again but through the window, and lives
        // beside it.
        let memory = unsafe { Memory::new(start, length) };
        let mut net = self.net();
        let region = ModelRegion(Arc::new(Heap {
            _words: words,
            memory,
            access,
            key: net.regions.len() as u32,
        }));
        net.regions.push(region.clone());
        Ok(region)
    }
    unsafe fn register_raw(
        &self,
        _: &Domain,
        _: NonNull<u8>,
        _: usize,
        _: Access,
    ) -> Result<ModelRegion, VerbsError> {
        panic!("the ring owns no memory of its own")
    }
    fn create_completion_channel(&self) -> Result<NoChannel, VerbsError> {
        Ok(NoChannel)
    }
    fn create_completion_queue(
        &self,
        _: usize,
        _: Option<&NoChannel>,
    ) -> Result<ModelQueue, VerbsError> {
        Ok(ModelQueue {
            net: Arc::clone(&self.net),
            pair: Arc::default(),
        })
    }
    fn create_queue_pair(
        &self,
        _: &Domain,
        config: &QueuePairConfig<'_, ModelQueue, NoSharedReceives>,
    ) -> Result<ModelPair, VerbsError> {
        let ReceiveQueue::Own(_) = config.receive_queue else {
            panic!("the model has no shared receive queues")
        };
        let mut net = self.net();
        let index = net.pairs.len();
        *config.send_completions.pair.lock().unwrap() = Some(index);
        net.pairs.push(Pair {
            number: index as u32,
            sends: config.send_requests,
            ..Pair::default()
        });
        Ok(ModelPair {
            net: Arc::clone(&self.net),
            index,
        })
    }
    fn create_shared_receive_queue(
        &self,
        _: &Domain,
        _: usize,
        _: usize,
    ) -> Result<NoSharedReceives, VerbsError> {
        panic!("the model has none")
    }
    fn create_address_handle(&self, _: &Domain, _: &EndpointAddress) -> Result<(), VerbsError> {
        Ok(())
    }
    fn poll_async_event(&self) -> Option<AsyncEvent> {
        None
    }
}
