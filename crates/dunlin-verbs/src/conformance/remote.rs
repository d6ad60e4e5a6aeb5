//! Remote control of the passive end: the commands available to a behaviour.

use std::collections::{HashMap, VecDeque};

use crate::{
    Access, Completion, ConnectAttributes, EndpointAddress, QueuePairState, RemoteAddress,
    RemoteKey, ENDPOINT_ADDRESS_BYTES,
};

use super::message::{optional, to_completion, transport_number};
use super::{Message, Op, Options, Peer};

/// A region at the peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerRegion {
    /// Its number there.
    pub number: u32,
    /// Address of its first byte.
    pub remote: RemoteAddress,
    /// Length in bytes.
    pub length: usize,
}

impl PeerRegion {
    /// The address at `offset` bytes from its start.
    pub fn at(&self, offset: usize) -> RemoteAddress {
        self.remote.plus(offset as u64)
    }
}

/// Commands to the passive end. Each panics if it fails there.
#[derive(Debug)]
pub struct Remote {
    peer: Box<dyn Peer>,
    inboxes: HashMap<u32, VecDeque<Completion>>,
}

impl Remote {
    /// Creates the remote control of `peer`.
    pub fn new(peer: Box<dyn Peer>) -> Self {
        Self {
            peer,
            inboxes: HashMap::new(),
        }
    }

    fn attempt(&mut self, command: Message) -> Result<Message, String> {
        let answer = self.peer.call(command);
        if answer.op == Op::Failed {
            return Err(String::from_utf8_lossy(&answer.bytes).into_owned());
        }
        Ok(answer)
    }

    fn call(&mut self, command: Message) -> Message {
        let op = command.op;
        self.attempt(command)
            .unwrap_or_else(|why| panic!("the peer's {op:?}: {why}"))
    }

    /// Creates an endpoint in state Init.
    pub fn endpoint(&mut self, options: &Options) -> (u32, EndpointAddress) {
        let numbers = [
            transport_number(options.transport),
            u64::from(options.access.bits()),
            options.send_requests as u64,
            options.receive_requests as u64,
            options.segments as u64,
            options.inline_bytes as u64,
            options.completions as u64,
            optional(options.shared),
        ];
        let answer = self.call(Message::new(Op::Endpoint, numbers));
        let mut address = [0; ENDPOINT_ADDRESS_BYTES];
        address.copy_from_slice(&answer.bytes);
        (answer.word(0), EndpointAddress::decode(&address))
    }

    /// The current address of an endpoint.
    pub fn address(&mut self, endpoint: u32) -> EndpointAddress {
        let answer = self.on(Op::Address, endpoint);
        let mut address = [0; ENDPOINT_ADDRESS_BYTES];
        address.copy_from_slice(&answer.bytes);
        EndpointAddress::decode(&address)
    }

    /// Moves it to ReadyToSend, from Init, or from Reset with the access that it had.
    pub fn connect(
        &mut self,
        endpoint: u32,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) {
        let numbers = [
            u64::from(endpoint),
            attributes.timeout_ns,
            u64::from(attributes.retry_count),
            attributes.receiver_not_ready_timer_ns,
            u64::from(attributes.receiver_not_ready_retries),
        ];
        let address = remote.map_or(Vec::new(), |address| address.encode().to_vec());
        self.call(Message::new(Op::Connect, numbers).with_bytes(address));
    }

    fn on(&mut self, op: Op, number: u32) -> Message {
        self.call(Message::new(op, [u64::from(number)]))
    }

    /// Destroys an endpoint.
    pub fn drop_endpoint(&mut self, endpoint: u32) {
        self.on(Op::DropEndpoint, endpoint);
        self.inboxes.remove(&endpoint);
    }

    /// Moves it to Error.
    pub fn to_error(&mut self, endpoint: u32) {
        self.on(Op::ToError, endpoint);
    }

    /// Moves it to Reset.
    pub fn to_reset(&mut self, endpoint: u32) {
        self.on(Op::ToReset, endpoint);
    }

    /// Its state.
    pub fn state(&mut self, endpoint: u32) -> QueuePairState {
        let answer = self.on(Op::State, endpoint);
        QueuePairState::from_number(answer.word(0)).expect("a state")
    }

    /// A zeroed region with all remote and local access.
    pub fn blank(&mut self, length: usize) -> PeerRegion {
        self.region(length, Access::all(), 0)
    }

    /// A region in the peer's protection domain number `domain`; all endpoints are in number 0.
    pub fn region(&mut self, length: usize, access: Access, domain: u32) -> PeerRegion {
        let numbers = [length as u64, u64::from(access.bits()), u64::from(domain)];
        let answer = self.call(Message::new(Op::Region, numbers));
        PeerRegion {
            number: answer.word(0),
            remote: RemoteAddress {
                address: answer.number(1),
                key: RemoteKey(answer.word(2)),
            },
            length,
        }
    }

    /// Drops the peer's only handle to a region.
    pub fn drop_region(&mut self, region: PeerRegion) {
        self.on(Op::DropRegion, region.number);
    }

    /// Stores into a region.
    pub fn write(&mut self, region: PeerRegion, offset: usize, bytes: &[u8]) {
        let numbers = [u64::from(region.number), offset as u64];
        self.call(Message::new(Op::Write, numbers).with_bytes(bytes));
    }

    /// Loads from a region.
    pub fn read(&mut self, region: PeerRegion, offset: usize, length: usize) -> Vec<u8> {
        let numbers = [u64::from(region.number), offset as u64, length as u64];
        self.call(Message::new(Op::Read, numbers)).bytes
    }

    /// Loads 8 bytes.
    pub fn read_u64(&mut self, region: PeerRegion, offset: usize) -> u64 {
        let bytes = self.read(region, offset, 8);
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    }

    /// Posts a RECEIVE with segments given as region, offset and length.
    pub fn receive(&mut self, endpoint: u32, id: u64, pieces: &[(PeerRegion, usize, usize)]) {
        self.post(Op::Receive, vec![u64::from(endpoint), id], pieces);
    }

    /// Posts a RECEIVE to a shared queue.
    pub fn shared_receive(&mut self, queue: u32, id: u64, pieces: &[(PeerRegion, usize, usize)]) {
        self.post(Op::SharedReceive, vec![u64::from(queue), id], pieces);
    }

    /// Creates a shared receive queue.
    pub fn shared_queue(&mut self, requests: usize, segments: usize) -> u32 {
        let numbers = [requests as u64, segments as u64];
        self.call(Message::new(Op::SharedQueue, numbers)).word(0)
    }

    /// Posts a signaled SEND of segments of the peer's memory.
    pub fn send(
        &mut self,
        endpoint: u32,
        id: u64,
        solicited: bool,
        pieces: &[(PeerRegion, usize, usize)],
    ) {
        let numbers = vec![u64::from(endpoint), id, u64::from(solicited)];
        self.post(Op::Send, numbers, pieces);
    }

    fn post(&mut self, op: Op, mut numbers: Vec<u64>, pieces: &[(PeerRegion, usize, usize)]) {
        for (region, offset, length) in pieces {
            numbers.extend([u64::from(region.number), *offset as u64, *length as u64]);
        }
        self.call(Message::new(op, numbers));
    }

    /// The next completion of an endpoint, if there is one now.
    pub fn poll(&mut self, endpoint: u32) -> Option<Completion> {
        self.pump(endpoint);
        self.inboxes.get_mut(&endpoint)?.pop_front()
    }

    /// Polls an endpoint and keeps the completions.
    pub fn pump(&mut self, endpoint: u32) {
        let answer = self.on(Op::Poll, endpoint);
        if !answer.numbers.is_empty() {
            let completion = to_completion(&answer);
            self.inboxes
                .entry(endpoint)
                .or_default()
                .push_back(completion);
        }
    }

    /// Starts a thread at the peer that, for each round from 1 to `rounds`, polls the 8 bytes at `flag` until the last
    /// one is the round's number, then checks that all bytes from `start` to `end` are, and stores the number at
    /// `acknowledge`.
    pub fn watch(
        &mut self,
        region: PeerRegion,
        (start, end): (usize, usize),
        flag: usize,
        acknowledge: usize,
        rounds: u8,
    ) {
        let places = [start, end, flag, acknowledge].map(|place| place as u64);
        let mut numbers = vec![u64::from(region.number), u64::from(rounds)];
        numbers.extend(places);
        self.call(Message::new(Op::Watch, numbers));
    }

    /// Ends the watch, and panics if it found an error.
    pub fn watched(&mut self) {
        self.call(Message::new(Op::Watched, []));
    }

    /// Ends the peer without warning: by SIGKILL, or in this process by dropping all its objects.
    pub fn kill(&mut self) {
        self.peer.kill();
    }
}
