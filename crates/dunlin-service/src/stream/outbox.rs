//! Frames that one side has sent and the other has not taken yet, and the queue of streams that wait for room for more.

use std::collections::{BTreeMap, VecDeque};

use super::frame::{self, Kind, CHUNK_BYTES};
use crate::varint::Reader;

/// Maximum number of bytes waiting to be sent. A writer that finds more waits until some have been taken; it checks and
/// then sends one thing, so the limit is exceeded by at most one message for each thread that runs streams.
pub(super) const MOST_WAITING: usize = 1 << 20;
/// Maximum number of ends waiting to be sent: it stops a client that opens streams to have them refused, and never
/// takes the answers.
pub(super) const MOST_ENDS: usize = 1 << 17;
/// Number of waiting streams that are woken for the room that a chunk leaves.
const TOLD: usize = 32;

/// The frames waiting to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Size of the call's prefix before the frames of each chunk.
    prefix: usize,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    ends: usize,
    /// Streams that wait for room, by their place in the queue.
    queue: BTreeMap<u64, u64>,
    next_place: u64,
}

/// The frames of a call.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    ends: usize,
}

impl Outbox {
    pub(super) fn new(prefix: usize) -> Self {
        Self {
            prefix,
            chunks: VecDeque::new(),
            bytes: 0,
            ends: 0,
            queue: BTreeMap::new(),
            next_place: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes waiting to be sent.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MOST_WAITING
    }

    pub(super) fn has_ends(&self) -> bool {
        self.ends > 0
    }

    pub(super) fn has_too_many_ends(&self) -> bool {
        self.ends >= MOST_ENDS
    }

    /// A chunk without frames.
    pub(super) fn nothing(&self) -> Vec<u8> {
        vec![0; self.prefix]
    }

    pub(super) fn put(&mut self, kind: Kind, stream: u64, body: &[u8]) {
        let has_room = |chunk: &Chunk| chunk.bytes.len() + body.len() <= CHUNK_BYTES;
        if !self.chunks.back().is_some_and(has_room) {
            let bytes = self.nothing();
            self.bytes += bytes.len();
            self.chunks.push_back(Chunk { bytes, ends: 0 });
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let before = chunk.bytes.len();
            frame::put(&mut chunk.bytes, kind, stream, body);
            self.bytes += chunk.bytes.len() - before;
            let ends = usize::from(kind == Kind::End);
            chunk.ends += ends;
            self.ends += ends;
        }
    }

    /// Takes the next chunk to be sent.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let chunk = self.chunks.pop_front()?;
        self.bytes -= chunk.bytes.len();
        self.ends -= chunk.ends;
        Some(chunk.bytes)
    }

    /// Divides a chunk that the other side does not take because its calls are limited in size: returns the part that
    /// fits, and puts the rest first in the queue. A frame that is too long by itself is replaced by the one that
    /// `instead` makes for its stream.
    pub(super) fn divide(
        &mut self,
        chunk: &[u8],
        most: usize,
        mut instead: impl FnMut(u64) -> (Kind, Vec<u8>),
    ) -> Vec<u8> {
        let mut parts = vec![Chunk {
            bytes: self.nothing(),
            ends: 0,
        }];
        let mut reader = Reader(chunk.get(self.prefix..).unwrap_or_default());
        while let Some(frame) = frame::read(&mut reader) {
            let Some(kind) = frame.kind else { continue };
            let mut bytes = Vec::new();
            frame::put(&mut bytes, kind, frame.stream, frame.body);
            let mut is_end = kind == Kind::End;
            if self.prefix + bytes.len() > most {
                let (kind, body) = instead(frame.stream);
                bytes.clear();
                frame::put(&mut bytes, kind, frame.stream, &body);
                is_end = kind == Kind::End;
            }
            let has_room = |part: &Chunk| part.bytes.len() + bytes.len() <= most;
            if !parts.last().is_some_and(has_room) {
                let bytes = self.nothing();
                parts.push(Chunk { bytes, ends: 0 });
            }
            if let Some(part) = parts.last_mut() {
                part.bytes.append(&mut bytes);
                part.ends += usize::from(is_end);
            }
        }
        for part in parts.into_iter().rev() {
            self.bytes += part.bytes.len();
            self.ends += part.ends;
            self.chunks.push_front(part);
        }
        self.take().unwrap_or_default()
    }

    /// Queues a stream that waits for room; returns its place, which is its previous one if it was woken and found the
    /// room taken by others.
    pub(super) fn wait(&mut self, stream: u64, place: Option<u64>) -> u64 {
        let place = place.unwrap_or(self.next_place);
        self.next_place = self.next_place.max(place + 1);
        self.queue.insert(place, stream);
        place
    }

    /// Removes the stream in this place from the queue.
    pub(super) fn leave(&mut self, place: u64) {
        self.queue.remove(&place);
    }

    /// Returns the streams to be woken because there is room. These are not all that wait, because most would find the
    /// room taken by others, unless nothing is waiting to be sent: then nothing would wake the others later.
    pub(super) fn admitted(&mut self) -> Vec<u64> {
        let count = match (self.is_full(), self.is_empty()) {
            (true, _) => 0,
            (false, true) => self.queue.len(),
            (false, false) => TOLD,
        };
        let first = std::iter::from_fn(|| self.queue.pop_first());
        first.take(count).map(|(_, stream)| stream).collect()
    }

    /// Keeps only the waiting frames of this kind.
    pub(super) fn retain(&mut self, kind: Kind) {
        (self.bytes, self.ends) = (0, 0);
        for chunk in std::mem::take(&mut self.chunks) {
            let mut reader = Reader(chunk.bytes.get(self.prefix..).unwrap_or_default());
            while let Some(frame) = frame::read(&mut reader) {
                if frame.kind == Some(kind) {
                    self.put(kind, frame.stream, frame.body);
                }
            }
        }
    }

    /// Discards all waiting frames.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.prefix);
    }
}
