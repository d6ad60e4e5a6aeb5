//! The handling of reads and writes: a state machine without connections, threads and a clock.
//!
//! Requests are split into *parts*, each in one chunk. A write part goes to every connected copy of its chunk, and is
//! done when all of these have it and a majority of the copies is among them. A read part goes to one copy that is in
//! sync. A copy that fails, or leaves a part unanswered for too long, is *out*: the parts go on without it. When too
//! few are left for a chunk the volume *stalls* until it has been opened again: parts stay, and are sent again in the
//! new epoch.

mod copies;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dunlin::CallError;
use slab::Slab;

use super::VolumeError;
use crate::types::{Shape, Version, BLOCK_BYTES, MOST_BLOCKS_AT_ONCE, MOST_COPIES};
use crate::wire::{call, code, encode_read, Blocks, Head, Kind, Read, LONGEST_RECORD};

/// Maximum number of outstanding parts; a request that has begun is never refused.
pub(in crate::client) const MOST_PARTS: usize = 256;
/// Maximum number of buffers kept for later parts.
const SPARE_BUFFERS: usize = 64;

/// The operation on blocks.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) enum Wanted<'a> {
    Read(u64),
    Write(&'a [u8]),
    Zeros(u64),
}

/// An action for the driver.
#[derive(Debug)]
pub(in crate::client) enum Action {
    /// Send the part to this server.
    Send { server: usize, part: usize },
    /// Close its connection.
    Disconnect { server: usize },
    /// This copy could not deliver blocks of a part: write them again from another copy.
    Rewrite { server: usize, blocks: Blamed },
    /// Open the volume again.
    Reopen,
    /// A request of the user has ended.
    Done {
        tag: u64,
        result: Result<Vec<u8>, VolumeError>,
    },
}

/// Blocks of which at least one could not be read from a copy: the first, and their number.
pub(in crate::client) type Blamed = (u64, u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Connection {
    #[default]
    Out,
    /// It gets all writes, and is being brought up to date.
    Joining,
    InSync,
}

#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    connection: Connection,
    /// It has lost nothing that it has acknowledged.
    whole: bool,
    /// The number of the connection.
    session: u64,
}

#[derive(Debug)]
enum Condition {
    Serving,
    /// Since this time.
    Stalled(Instant),
    Over(VolumeError),
}

#[derive(Debug)]
struct Request {
    tag: u64,
    parts_left: u32,
    /// The data read.
    buffer: Vec<u8>,
    error: Option<VolumeError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Write,
    Read,
    /// The server has replied that it must wait for its disk.
    ReadSlow,
}

#[derive(Debug)]
struct Part {
    request: usize,
    way: Way,
    first: u64,
    count: u32,
    /// The offset of a read in the request's buffer.
    at: usize,
    /// The payload to send.
    payload: Vec<u8>,
    /// The servers that have its chunk.
    set: u64,
    /// Those that have not answered.
    out: u64,
    /// Those that have written it; for a read, those that could not serve it.
    done: u64,
    /// When it was last sent to each server of the set: one that keeps reconnecting does not extend the time of
    /// another.
    sent: [Instant; MOST_COPIES],
}

impl Part {
    /// The index of a server in its set.
    fn nth(&self, server: usize) -> usize {
        (self.set & ((1 << server) - 1)).count_ones() as usize
    }
}

/// The engine; see the module's documentation.
#[derive(Debug)]
pub(in crate::client) struct Engine {
    shape: Shape,
    epoch: u64,
    count: u64,
    copies: Vec<Copy>,
    condition: Condition,
    requests: Slab<Request>,
    parts: Slab<Part>,
    spare: Vec<Vec<u8>>,
    pub(in crate::client) actions: VecDeque<Action>,
    replace_after: Duration,
    patience: Duration,
    /// The last check of the clock.
    ticked: Option<Instant>,
}

impl Engine {
    /// Creates an engine for a volume that is not open yet: see [`Engine::opened`].
    pub(in crate::client) fn new(
        shape: Shape,
        replace_after: Duration,
        patience: Duration,
    ) -> Self {
        Self {
            copies: vec![Copy::default(); usize::from(shape.servers)],
            shape,
            epoch: 0,
            count: 0,
            condition: Condition::Serving,
            requests: Slab::new(),
            parts: Slab::new(),
            spare: Vec::new(),
            actions: VecDeque::new(),
            replace_after,
            patience,
            ticked: None,
        }
    }

    pub(in crate::client) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether there is space for another request.
    pub(in crate::client) fn has_room(&self) -> bool {
        self.parts.len() < MOST_PARTS
    }

    /// Number of requests that have not ended.
    pub(in crate::client) fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// The servers that are up to date.
    pub(in crate::client) fn in_sync(&self) -> u64 {
        self.copies_that(|copy| copy.connection == Connection::InSync)
    }

    fn copies_that(&self, fits: impl Fn(&Copy) -> bool) -> u64 {
        let copies = self.copies.iter().enumerate();
        copies
            .filter(|(_, copy)| fits(copy))
            .fold(0, |set, (server, _)| set | 1 << server)
    }

    /// The payload of a part, and its handler.
    pub(in crate::client) fn payload(&self, part: usize) -> Option<(u16, &[u8])> {
        let part = self.parts.get(part)?;
        let handler = match part.way {
            Way::Write => call::WRITE,
            Way::Read => call::READ,
            Way::ReadSlow => call::READ_SLOW,
        };
        Some((handler, &part.payload))
    }

    /// Begins a request, which ends with [`Action::Done`]. The blocks must be within the volume.
    pub(in crate::client) fn begin(
        &mut self,
        wanted: Wanted<'_>,
        first: u64,
        tag: u64,
        now: Instant,
    ) {
        let blocks = match wanted {
            Wanted::Write(bytes) => (bytes.len() / BLOCK_BYTES) as u64,
            Wanted::Read(blocks) | Wanted::Zeros(blocks) => blocks,
        };
        if self.count + blocks > Version::MOST_WRITES {
            self.over(VolumeError::Exhausted(
                "writes of one open: open the volume again",
            ));
        }
        if let Condition::Over(error) = &self.condition {
            let result = Err(error.clone());
            return self.actions.push_back(Action::Done { tag, result });
        }
        let buffer = match wanted {
            Wanted::Read(blocks) => vec![0; blocks as usize * BLOCK_BYTES],
            _ => Vec::new(),
        };
        let request = Request {
            tag,
            parts_left: 0,
            buffer,
            error: None,
        };
        let request = self.requests.insert(request);
        let most = match wanted {
            Wanted::Zeros(_) => u64::from(self.shape.chunk_blocks),
            _ => u64::from(MOST_BLOCKS_AT_ONCE),
        };
        let (mut from, end) = (first, first + blocks);
        let mut fresh = Vec::new();
        while from < end {
            let chunk = self.shape.chunk(from);
            let chunk_end = (chunk + 1) * u64::from(self.shape.chunk_blocks);
            let count = (end - from).min(most).min(chunk_end - from) as u32;
            let mut payload = self.spare.pop().unwrap_or_default();
            let at = (from - first) as usize * BLOCK_BYTES;
            let way = match wanted {
                Wanted::Read(_) => {
                    let (epoch, volume) = (self.epoch, self.shape.id);
                    let read = Read {
                        epoch,
                        volume,
                        first: from,
                        count,
                    };
                    encode_read(&read, &mut payload);
                    Way::Read
                }
                Wanted::Write(bytes) => {
                    let data = &bytes[at..at + count as usize * BLOCK_BYTES];
                    self.encode(Kind::Data, (from, count), data, &mut payload);
                    Way::Write
                }
                Wanted::Zeros(_) => {
                    self.encode(Kind::Zeros, (from, count), &[], &mut payload);
                    Way::Write
                }
            };
            let part = Part {
                request,
                way,
                first: from,
                count,
                at,
                payload,
                set: self.shape.set_of(chunk),
                out: 0,
                done: 0,
                sent: [now; MOST_COPIES],
            };
            fresh.push(self.parts.insert(part));
            self.requests[request].parts_left += 1;
            from += u64::from(count);
        }
        if fresh.is_empty() {
            self.end(request);
        }
        fresh.into_iter().for_each(|part| self.send(part, now));
    }

    fn encode(&mut self, kind: Kind, (first, count): (u64, u32), data: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let (volume, version) = (self.shape.id, self.next_version());
        Head {
            volume,
            version,
            first,
            count,
            kind,
        }
        .encode(data, out);
    }

    /// Zero is reserved for repairs, so the count begins with one.
    fn next_version(&mut self) -> Version {
        self.count += 1;
        Version::new(self.epoch, self.count)
    }

    /// Sends a part to the servers that should have it and have not got it.
    fn send(&mut self, index: usize, now: Instant) {
        if !matches!(self.condition, Condition::Serving) {
            return;
        }
        let connected = self.copies_that(|copy| copy.connection != Connection::Out);
        let in_sync = self.in_sync();
        let part = &mut self.parts[index];
        let to = match part.way {
            Way::Write => part.set & connected & !(part.done | part.out),
            // The same copy for each read of a block, so that a client that reads it twice during a write does not see
            // it change back.
            _ => {
                let left = part.set & in_sync & !part.done;
                one_of(left, part.first)
            }
        };
        if to == 0 && part.out == 0 && part.way != Way::Write {
            let (first, request) = (part.first, part.request);
            self.requests[request].error = Some(VolumeError::Damaged(first));
            return self.finish(index);
        }
        part.out |= to;
        for server in each(to) {
            part.sent[part.nth(server)] = now;
            self.actions.push_back(Action::Send {
                server,
                part: index,
            });
        }
    }

    /// Handles an answer to a part.
    pub(in crate::client) fn answer(
        &mut self,
        server: usize,
        index: usize,
        result: Result<&[u8], CallError>,
        now: Instant,
    ) {
        let bit = 1 << server;
        let is_out = self.copies[server].connection == Connection::Out;
        let Some(part) = self
            .parts
            .get_mut(index)
            .filter(|part| !is_out && part.out & bit != 0)
        else {
            return;
        };
        match (result, part.way) {
            (Ok(_), Way::Write) => {
                part.out &= !bit;
                part.done |= bit;
                self.look(index);
            }
            (Ok(bytes), _) => {
                part.out &= !bit;
                let found = Blocks::parse(bytes, part.count);
                match found.filter(|found| found.is_whole(part.count)) {
                    Some(found) => {
                        let buffer = &mut self.requests[part.request].buffer;
                        buffer[part.at..part.at + found.data.len()].copy_from_slice(found.data);
                        self.finish(index);
                    }
                    None => self.elsewhere(server, index, now),
                }
            }
            (
                Err(CallError::Handler {
                    code: code::WOULD_WAIT,
                    ..
                }),
                Way::Read,
            ) => {
                part.way = Way::ReadSlow;
                self.actions.push_back(Action::Send {
                    server,
                    part: index,
                });
            }
            (
                Err(CallError::Handler {
                    code: code::DAMAGED,
                    ..
                }),
                Way::Read | Way::ReadSlow,
            ) => {
                part.out &= !bit;
                self.elsewhere(server, index, now);
            }
            (
                Err(CallError::Handler {
                    code: code::REPLACED,
                    ..
                }),
                _,
            ) => {
                self.over(VolumeError::Replaced);
            }
            (Err(error), _) => {
                tracing::warn!(server, %error, "lost a copy of the volume");
                self.lose(server, now);
            }
        }
    }

    /// A block could not be read from a copy: tries another one.
    fn elsewhere(&mut self, server: usize, index: usize, now: Instant) {
        let part = &mut self.parts[index];
        tracing::warn!(
            server,
            block = part.first,
            "a copy could not deliver a block"
        );
        part.done |= 1 << server;
        let blocks = (part.first, part.count);
        self.actions.push_back(Action::Rewrite { server, blocks });
        self.send(index, now);
    }

    /// Checks whether a write part is done.
    fn look(&mut self, index: usize) {
        let whole = self.copies_that(|copy| copy.whole);
        let part = &self.parts[index];
        if part.out == 0 && (part.done & whole).count_ones() >= self.shape.majority() {
            self.finish(index);
        }
    }

    fn finish(&mut self, index: usize) {
        let part = self.parts.remove(index);
        if self.spare.len() < SPARE_BUFFERS && part.payload.capacity() <= 2 * LONGEST_RECORD {
            self.spare.push(part.payload);
        }
        let request = &mut self.requests[part.request];
        request.parts_left -= 1;
        if request.parts_left == 0 {
            self.end(part.request);
        }
    }

    fn end(&mut self, request: usize) {
        let Request {
            tag, buffer, error, ..
        } = self.requests.remove(request);
        let result = error.map_or(Ok(buffer), Err);
        self.actions.push_back(Action::Done { tag, result });
    }
}

/// The servers of a set.
fn each(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |server| set & 1 << server != 0)
}

/// One server of a set, chosen by the block.
fn one_of(set: u64, block: u64) -> u64 {
    match set.count_ones() {
        0 => 0,
        servers => {
            let nth = (block % u64::from(servers)) as usize;
            each(set).nth(nth).map_or(0, |server| 1 << server)
        }
    }
}
