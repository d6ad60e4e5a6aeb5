//! Machines behind the RPC: requests are calls, one-sided operations go to the regions of their tables.
//!
//! Operations for one machine are sent in the order in which they were requested. Those for which there is no space
//! wait here.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use dunlin_rpc::{CallError, Peers, RemoteRegion};

use super::wire::{Arrival, Kind, Tag, Wire};
use crate::membership::Epoch;
use crate::server::shape::{encode_value, place_of};
use crate::server::TRANSACT;
use crate::types::{Address, MachineId, Value};
use crate::wire::{Answer, Request};
use dunlin_store::Header;

/// Pauses between attempts to reconnect to a machine: the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// Time for which a WRITE may still land after its connection broke: a packet in flight does not depend on the sender
/// waiting for its acknowledgement.
const LATE: Duration = Duration::from_millis(500);

/// A machine as seen by this thread.
#[derive(Debug)]
struct Machine {
    id: MachineId,
    incarnation: u64,
    /// By the number of the table in the catalogue; empty if the protocol does not need them.
    regions: Vec<RemoteRegion>,
    waiting: VecDeque<Operation>,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    since: Instant,
    why: String,
    retry_at: Instant,
    pause: Duration,
}

#[derive(Debug)]
enum Operation {
    Call(Tag, Vec<u8>),
    /// Reads a header, with the key of its item if the flag is set.
    Read(Tag, Address, bool),
    Write(Tag, Address, Vec<u8>),
}

impl Operation {
    fn tag(&self) -> Tag {
        match self {
            Operation::Call(tag, _) | Operation::Read(tag, ..) | Operation::Write(tag, ..) => *tag,
        }
    }
}

/// The WRITEs of one tag.
#[derive(Debug)]
struct Writes {
    left: usize,
    failed: bool,
    /// Headers to write once the first WRITEs are done, where the queue pair does not keep their order.
    then: Vec<(Address, Header)>,
}

/// The connections to the machines of a store.
#[derive(Debug)]
pub(crate) struct RemoteWire {
    peers: Peers,
    /// By the index of the peer.
    machines: Vec<Machine>,
    writes: HashMap<Tag, Writes>,
    /// One-sided operations that have failed, with the time after which they can no longer land.
    late: Vec<(Instant, Tag)>,
    /// Results of the last poll of the peers.
    came: Vec<Came>,
    /// Requests for machines that do not exist.
    lost: Vec<(MachineId, Tag)>,
    /// The number of a database whose machines are replaced when they fail: together with the epoch it identifies the
    /// target of requests. Otherwise the incarnation of each machine does.
    database: Option<u64>,
    /// Each request is sent when it is submitted, not together with the others of this thread.
    alone: bool,
}

#[derive(Debug)]
enum Came {
    Answer(usize, Answer),
    Header(Tag, u64, Option<u64>),
    Done(usize, Tag),
    Error(usize, Tag, String),
}

impl RemoteWire {
    /// Creates the connections to machines, given in the order of the peers, each with its incarnation and the regions
    /// of its tables.
    pub(crate) fn new(
        peers: Peers,
        database: Option<u64>,
        machines: Vec<(MachineId, u64, Vec<RemoteRegion>)>,
        alone: bool,
    ) -> RemoteWire {
        let machine = |(id, incarnation, regions)| Machine {
            id,
            incarnation,
            regions,
            waiting: VecDeque::new(),
            trouble: None,
        };
        RemoteWire {
            peers,
            machines: machines.into_iter().map(machine).collect(),
            writes: HashMap::new(),
            late: Vec::new(),
            came: Vec::new(),
            lost: Vec::new(),
            database,
            alone,
        }
    }

    /// Queues an operation. Operations for a machine that is not a member are reported as lost.
    fn want(&mut self, machine: MachineId, operation: Operation) {
        match self.peer(machine) {
            Some(peer) => self.machines[peer].waiting.push_back(operation),
            None => self.lost.push((machine, operation.tag())),
        }
    }

    fn peer(&self, machine: MachineId) -> Option<usize> {
        self.machines.iter().position(|one| one.id == machine)
    }

    /// Submits operations that wait for a machine, as far as there is space.
    fn submit(&mut self, number: usize, now: Instant, arrived: &mut Vec<Arrival>) {
        while let Some(operation) = self.machines[number].waiting.front() {
            let tag = operation.tag();
            // The last WRITE releases the lock: after one that has failed no further WRITE of its tag may be sent.
            let is_over = |writes: &Writes| writes.failed;
            if tag.kind() == Kind::Write && self.writes.get(&tag).is_some_and(is_over) {
                self.machines[number].waiting.pop_front();
                self.wrote(number, tag, false, now, arrived);
                continue;
            }
            let machine = &self.machines[number];
            let submitted = match operation {
                Operation::Call(tag, bytes) => self.peers.submit(number, TRANSACT, bytes, tag.0),
                Operation::Read(tag, address, item) => match region(machine, *address) {
                    Some((region, offset)) => {
                        let bytes = if *item { 16 } else { 8 };
                        self.peers.read(number, region, (offset, bytes), tag.0)
                    }
                    None => Err(nowhere()),
                },
                Operation::Write(tag, address, bytes) => match region(machine, *address) {
                    Some((region, offset)) => {
                        self.peers.write(number, region, (offset, bytes), tag.0)
                    }
                    None => Err(nowhere()),
                },
            };
            match submitted {
                Ok(true) => {
                    self.machines[number].waiting.pop_front();
                    if self.alone {
                        self.look();
                    }
                }
                Ok(false) => return,
                Err(error) => {
                    if self.peers.is_lost(number) && self.reconnect(number, &error, now) {
                        continue;
                    }
                    if let Some(operation) = self.machines[number].waiting.pop_front() {
                        self.failed(number, operation.tag(), &error.to_string(), now, arrived);
                    }
                }
            }
        }
    }

    /// Sends what was submitted, and stores the results that have arrived.
    fn look(&mut self) {
        let came = &mut self.came;
        self.peers.poll(|peer, tag, result| {
            let tag = Tag(tag);
            came.push(match (result, tag.kind()) {
                (Err(error), _) => Came::Error(peer, tag, error.to_string()),
                (Ok(bytes), Kind::Request) => match Answer::decode(bytes) {
                    Ok(answer) => Came::Answer(peer, answer),
                    Err(error) => Came::Error(peer, tag, error.to_string()),
                },
                (Ok(bytes), Kind::Read) => match header_of(bytes) {
                    Some((word, key)) => Came::Header(tag, word, key),
                    None => Came::Error(peer, tag, "a READ of the wrong length".to_owned()),
                },
                (Ok(_), Kind::Write) => Came::Done(peer, tag),
            });
        });
    }

    /// Returns whether the connection has been re-established.
    fn reconnect(&mut self, number: usize, error: &CallError, now: Instant) -> bool {
        let trouble = &mut self.machines[number].trouble;
        let trouble = trouble.get_or_insert_with(|| Trouble {
            since: now,
            why: error.to_string(),
            retry_at: now,
            pause: RETRY.0,
        });
        if now < trouble.retry_at {
            return false;
        }
        match self.peers.reconnect(number) {
            Ok(()) => true,
            Err(error) => {
                trouble.why = error.to_string();
                trouble.retry_at = dunlin_verbs::thread::now() + trouble.pause;
                trouble.pause = (trouble.pause * 2).min(RETRY.1);
                false
            }
        }
    }

    fn failed(
        &mut self,
        number: usize,
        tag: Tag,
        why: &str,
        now: Instant,
        arrived: &mut Vec<Arrival>,
    ) {
        let trouble = &mut self.machines[number].trouble;
        let trouble = trouble.get_or_insert_with(|| Trouble {
            since: now,
            why: String::new(),
            retry_at: now,
            pause: RETRY.0,
        });
        if trouble.why != why {
            trouble.why = why.to_owned();
        }
        match tag.kind() {
            Kind::Request => arrived.push(Arrival::Lost(self.machines[number].id, tag)),
            Kind::Read => arrived.push(Arrival::Failed(tag)),
            Kind::Write => self.wrote(number, tag, false, now, arrived),
        }
    }

    /// One WRITE of a tag has completed.
    fn wrote(
        &mut self,
        number: usize,
        tag: Tag,
        well: bool,
        now: Instant,
        arrived: &mut Vec<Arrival>,
    ) {
        let Some(writes) = self.writes.get_mut(&tag) else {
            return;
        };
        writes.left -= 1;
        writes.failed |= !well;
        if writes.left > 0 {
            return;
        }
        let then = std::mem::take(&mut writes.then);
        if writes.failed {
            self.writes.remove(&tag);
            self.late.push((now + LATE, tag));
        } else if then.is_empty() {
            self.writes.remove(&tag);
            arrived.push(Arrival::Written(tag));
        } else {
            writes.left = then.len();
            for (address, header) in then {
                let word = header.0.to_ne_bytes().to_vec();
                let write = Operation::Write(tag, address, word);
                self.machines[number].waiting.push_back(write);
            }
        }
    }
}

/// The region of an address and the offset in it.
fn region(machine: &Machine, address: Address) -> Option<(&RemoteRegion, u64)> {
    let (number, offset) = place_of(address);
    Some((machine.regions.get(number)?, offset))
}

/// Decodes a header, and the key stored behind it if it was READ, too.
fn header_of(bytes: &[u8]) -> Option<(u64, Option<u64>)> {
    let (header, behind) = bytes.split_first_chunk()?;
    let key = match behind.is_empty() {
        true => None,
        false => Some(u64::from_ne_bytes(behind.try_into().ok()?)),
    };
    Some((u64::from_ne_bytes(*header), key))
}

fn nowhere() -> CallError {
    CallError::Unreadable("an address outside the regions of the store".to_owned())
}

impl Wire for RemoteWire {
    fn send(&mut self, machine: MachineId, request: &Request, epoch: Epoch, tag: Tag) {
        let fence = match self.database {
            Some(database) => database.wrapping_add(epoch.0),
            None => self
                .peer(machine)
                .map_or(0, |peer| self.machines[peer].incarnation),
        };
        let mut bytes = Vec::with_capacity(160);
        bytes.extend_from_slice(&fence.to_le_bytes());
        request.encode(&mut bytes);
        self.want(machine, Operation::Call(tag, bytes));
    }

    fn read(&mut self, machine: MachineId, address: Address, item: bool, tag: Tag) {
        self.want(machine, Operation::Read(tag, address, item));
    }

    fn write(
        &mut self,
        machine: MachineId,
        items: Vec<(Address, Option<Value>)>,
        headers: Vec<(Address, Header)>,
        tag: Tag,
    ) {
        let mut left = 0;
        for (address, value) in items {
            // Deletions are sent by RPC.
            let Some(value) = value else { continue };
            let mut bytes = Vec::new();
            encode_value(&value, &mut bytes);
            self.want(machine, Operation::Write(tag, address, bytes));
            left += 1;
        }
        let peer = self.peer(machine);
        let in_order = left == 0 || peer.is_none_or(|peer| self.peers.keeps_order(peer));
        let mut then = headers;
        if in_order {
            for (address, header) in then.drain(..) {
                let word = header.0.to_ne_bytes().to_vec();
                self.want(machine, Operation::Write(tag, address, word));
                left += 1;
            }
        }
        let writes = Writes {
            left,
            failed: false,
            then,
        };
        self.writes.insert(tag, writes);
    }

    fn poll(&mut self, now: Instant, arrived: &mut Vec<Arrival>) {
        for (machine, tag) in self.lost.drain(..) {
            arrived.push(match tag.kind() {
                Kind::Request => Arrival::Lost(machine, tag),
                Kind::Read | Kind::Write => Arrival::Failed(tag),
            });
        }
        for number in 0..self.machines.len() {
            self.submit(number, now, arrived);
        }
        self.look();
        let mut came = std::mem::take(&mut self.came);
        for one in came.drain(..) {
            match one {
                Came::Answer(peer, answer) => {
                    self.machines[peer].trouble = None;
                    arrived.push(Arrival::Answer(self.machines[peer].id, answer));
                }
                Came::Header(tag, word, key) => arrived.push(Arrival::Header(tag, word, key)),
                Came::Done(peer, tag) => self.wrote(peer, tag, true, now, arrived),
                Came::Error(peer, tag, why) => self.failed(peer, tag, &why, now, arrived),
            }
        }
        self.came = came;
        if !self.late.is_empty() {
            self.late.retain(|(when, tag)| {
                let over = *when <= now;
                if over {
                    arrived.push(Arrival::Failed(*tag));
                }
                !over
            });
        }
    }

    fn rest(&mut self) {
        self.peers.rest();
    }

    fn trouble(&self, machine: MachineId) -> Option<(Instant, String)> {
        let machine = self.machines.get(self.peer(machine)?)?;
        let trouble = machine.trouble.as_ref()?;
        Some((trouble.since, trouble.why.clone()))
    }
}
