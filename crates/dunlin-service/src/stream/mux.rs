//! One side of a session as a state machine: the streams that exist, what each may send and has received, and the
//! frames to be sent to the other side. It makes no calls, and has no clock and no lock.
//!
//! Its memory is bounded: for each stream, received messages by the credit granted for them plus one message; for all
//! streams together, frames waiting to be sent by [`outbox`](super::outbox), however much the other side takes. Credit
//! to be granted is kept as a number for each stream.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Instant;

use super::frame::{self, Kind, MAX_MESSAGE_BYTES, MESSAGE_COST, MOST_CREDIT};
pub(crate) use super::one::News;
use super::one::{keep, Stream};
use super::outbox::Outbox;
use crate::varint::{self, Reader};
use crate::wire;
use crate::{MetadataMap, Status};

/// The side of the session that this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Server,
}

/// One side of a session.
#[derive(Debug)]
pub(crate) struct Mux {
    side: Side,
    /// Ordered, so that all of them end in a reproducible order.
    streams: BTreeMap<u64, Stream>,
    /// Frames waiting to be sent.
    outbox: Outbox,
    /// Streams that have credit to grant.
    owing: BTreeSet<u64>,
    /// Streams of calls with a deadline. Those that have already ended are removed: their number and deadlines are
    /// chosen by the peer.
    deadlines: BTreeSet<(Instant, u64)>,
    /// Streams are numbered upwards, so that no number is reused.
    next_id: u64,
    /// Wakers to be woken when the lock is released.
    pub(super) woken: Vec<Waker>,
}

/// The peer has violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

/// A stream that a client opens.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: u64,
    pub(crate) body: Vec<u8>,
}

impl Mux {
    pub(crate) fn new(side: Side) -> Self {
        let prefix = match side {
            Side::Client => frame::PUSH_PREFIX,
            Side::Server => frame::PULL_PREFIX,
        };
        Self {
            side,
            streams: BTreeMap::new(),
            outbox: Outbox::new(prefix),
            owing: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            next_id: 1,
            woken: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn contains(&self, stream: u64) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Bytes of messages held for readers, with their costs.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.streams.values().map(|stream| stream.held).sum()
    }

    /// Bytes waiting to be sent.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Whether there is anything to send.
    pub(crate) fn has_chunk(&self) -> bool {
        !self.outbox.is_empty() || !self.owing.is_empty()
    }

    /// Whether the end of a stream is waiting to be sent.
    pub(crate) fn has_ends(&self) -> bool {
        self.outbox.has_ends()
    }

    /// A chunk without frames.
    pub(crate) fn nothing(&self) -> Vec<u8> {
        self.outbox.nothing()
    }

    /// Takes the next chunk to send; its first bytes are reserved for the call's prefix.
    pub(crate) fn take_chunk(&mut self) -> Option<Vec<u8>> {
        for id in std::mem::take(&mut self.owing) {
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.owes = false;
            let bytes = std::mem::take(&mut stream.taken);
            stream.granted += bytes as isize;
            let mut body = Vec::with_capacity(4);
            varint::put(&mut body, bytes as u64);
            self.outbox.put(Kind::Credit, id, &body);
        }
        let chunk = self.outbox.take();
        for id in self.outbox.admitted() {
            let stream = self.streams.get_mut(&id);
            self.woken
                .extend(stream.and_then(|stream| stream.writer.take()));
        }
        chunk
    }

    /// Divides a chunk that the other side does not take because its calls are limited to `most` bytes. A stream with a
    /// longer frame ends at the place of that frame.
    pub(crate) fn divide(&mut self, chunk: &[u8], most: usize) -> Vec<u8> {
        let words = "a message is longer than the limit (max_message_bytes)";
        let status = Status::resource_exhausted(words);
        let mut ended = Vec::new();
        let part = self.outbox.divide(chunk, most, |stream| {
            ended.push(stream);
            let mut body = Vec::new();
            match self.side {
                Side::Client => (Kind::Reset, body),
                Side::Server => {
                    wire::put_status(&mut body, &status);
                    (Kind::End, body)
                }
            }
        });
        for id in ended {
            match self.side {
                Side::Client => drop(self.end_here(id, status.clone())),
                Side::Server => drop(self.remove(id)),
            }
        }
        part
    }

    /// Removes a stream; its waiting tasks are woken.
    fn remove(&mut self, id: u64) -> Option<Stream> {
        let mut stream = self.streams.remove(&id)?;
        self.owing.remove(&id);
        if let Some(deadline) = stream.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(place) = stream.place {
            self.outbox.leave(place);
        }
        let wakers = [&mut stream.reader, &mut stream.writer, &mut stream.task];
        self.woken
            .extend(wakers.into_iter().filter_map(Option::take));
        Some(stream)
    }

    /// Opens a client's stream; returns its number. `first`: the initial credit; `body`: the body of the OPEN.
    pub(crate) fn open(&mut self, body: &[u8], first: usize, window: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.streams.insert(id, Stream::new(first, window, window));
        self.outbox.put(Kind::Open, id, body);
        id
    }

    /// Accepts a stream at the server. Returns `false` if the number is in use. `granted`: the credit that the client
    /// assumes.
    pub(crate) fn accept(&mut self, id: u64, credit: usize, granted: usize, window: usize) -> bool {
        if self.streams.contains_key(&id) {
            return false;
        }
        let mut stream = Stream::new(credit.min(MOST_CREDIT), granted, window);
        // The rest of the window is still to be granted.
        stream.taken = window.saturating_sub(granted);
        if stream.taken > 0 {
            stream.owes = true;
            self.owing.insert(id);
        }
        self.streams.insert(id, stream);
        true
    }

    /// Sets the deadline of a new stream's call.
    pub(crate) fn set_deadline(&mut self, id: u64, deadline: Instant) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.deadline = Some(deadline);
            self.deadlines.insert((deadline, id));
        }
    }

    /// The earliest deadline of the streams.
    pub(crate) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns a stream whose deadline has passed, once.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<u64> {
        let (deadline, id) = *self.deadlines.first()?;
        (deadline <= now).then(|| {
            self.deadlines.pop_first();
            id
        })
    }

    /// Refuses, at a server, a stream that was not accepted.
    pub(crate) fn refuse(&mut self, id: u64, status: &Status) {
        let mut body = Vec::new();
        wire::put_status(&mut body, status);
        self.outbox.put(Kind::End, id, &body);
    }

    /// Whether a stream may send something that needs no credit, because not too much is waiting to be sent; if not,
    /// the waker is woken when that changes. `None`: the stream has ended.
    pub(crate) fn has_room(&mut self, id: u64, waker: &Waker) -> Option<bool> {
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.ended)?;
        keep(&mut stream.writer, waker);
        if self.outbox.is_full() {
            stream.place = Some(self.outbox.wait(id, stream.place));
            return Some(false);
        }
        if let Some(place) = stream.place.take() {
            self.outbox.leave(place);
        }
        Some(true)
    }

    /// Whether a stream may send a message now; otherwise like `has_room`.
    pub(crate) fn may_send(&mut self, id: u64, waker: &Waker) -> Option<bool> {
        let has_room = self.has_room(id, waker)?;
        Some(has_room && self.streams.get(&id)?.credit > 0)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, id: u64, message: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.credit -= (message.len() + MESSAGE_COST) as isize;
            self.outbox.put(Kind::Message, id, message);
        }
    }

    /// Sends, at a server, the head that precedes the messages.
    pub(crate) fn send_head(&mut self, id: u64, metadata: &MetadataMap) {
        if self.streams.contains_key(&id) {
            let mut body = Vec::new();
            metadata.encode(&mut body);
            self.outbox.put(Kind::Head, id, &body);
        }
    }

    /// A client has sent all its messages.
    pub(crate) fn half_close(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.ended) {
            stream.ended = true;
            self.outbox.put(Kind::End, id, &[]);
        }
    }

    /// Ends a stream at a server.
    pub(crate) fn finish(&mut self, id: u64, status: &Status) {
        if self.remove(id).is_some() {
            self.refuse(id, status);
        }
    }

    /// Gives up a stream at a client, or drops one that has ended.
    pub(crate) fn release(&mut self, id: u64) {
        if self.remove(id).is_some_and(|stream| !stream.peer_ended) {
            // The reset also covers frames of the stream that wait to be sent before it.
            self.outbox.put(Kind::Reset, id, &[]);
        }
    }

    /// Gives up all streams of a client. Of the frames waiting to be sent the server needs only those that say so.
    pub(crate) fn give_up_all(&mut self) {
        self.owing.clear();
        self.outbox.retain(Kind::Reset);
        for (id, stream) in &self.streams {
            if !stream.peer_ended {
                self.outbox.put(Kind::Reset, *id, &[]);
            }
        }
    }

    /// A server's handler stops reading.
    pub(crate) fn stop_reading(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.deaf = true;
            stream.news.clear();
            // The messages are discarded, and the writer must not wait for them to be read.
            let unread = std::mem::take(&mut stream.held);
            if stream.take(unread) {
                self.owing.insert(id);
            }
        }
    }

    /// Takes the next event of a stream; `None`: there is none yet, and the waker will be woken. A stream that does not
    /// exist has ended.
    pub(crate) fn next(&mut self, id: u64, waker: &Waker) -> Option<News> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Some(News::End(Status::cancelled("the stream has ended")));
        };
        let Some(news) = stream.news.pop_front() else {
            if stream.peer_ended {
                return Some(News::End(Status::ok("")));
            }
            keep(&mut stream.reader, waker);
            return None;
        };
        if let News::Message(message) = &news {
            let cost = message.len() + MESSAGE_COST;
            stream.held -= cost;
            if stream.take(cost) {
                self.owing.insert(id);
            }
        }
        Some(news)
    }

    /// Whether the client still wants the stream; if so, the waker is woken when that changes.
    pub(crate) fn is_wanted(&mut self, id: u64, waker: &Waker) -> bool {
        match self.streams.get_mut(&id) {
            Some(stream) => {
                keep(&mut stream.task, waker);
                true
            }
            None => false,
        }
    }

    /// Ends a stream here, with a status that was not received, and resets it at the other side.
    pub(crate) fn end_locally(&mut self, id: u64, status: Status) {
        if self.end_here(id, status) {
            self.outbox.put(Kind::Reset, id, &[]);
        }
    }

    /// The same, without telling the other side. Returns `false` if the stream has ended already.
    fn end_here(&mut self, id: u64, status: Status) -> bool {
        let stream = self.streams.get_mut(&id);
        let Some(stream) = stream.filter(|stream| !stream.peer_ended) else {
            return false;
        };
        stream.end(status);
        self.woken.extend(stream.reader.take());
        self.woken.extend(stream.writer.take());
        true
    }

    /// Ends all streams: the other side is gone.
    pub(crate) fn end_all(&mut self, status: &Status) {
        self.outbox.clear();
        self.owing.clear();
        self.deadlines.clear();
        for stream in self.streams.values_mut() {
            if !stream.peer_ended {
                stream.end(status.clone());
            }
            self.woken.extend(stream.reader.take());
            self.woken.extend(stream.writer.take());
            self.woken.extend(stream.task.take());
        }
        if self.side == Side::Server {
            self.streams.clear();
        }
    }

    /// Takes the frames of a call; passes the streams that a client opens to `opened`. Each must be accepted or refused
    /// immediately.
    ///
    /// # Errors
    /// If they violate the protocol, which ends the session.
    pub(crate) fn receive(
        &mut self,
        frames: &[u8],
        mut opened: impl FnMut(&mut Self, Opened),
    ) -> Result<(), Violation> {
        let mut reader = Reader(frames);
        while !reader.is_empty() {
            let frame = frame::read(&mut reader).ok_or(Violation("malformed frame"))?;
            let Some(kind) = frame.kind else {
                continue;
            };
            if kind == Kind::Open {
                if self.side == Side::Client || frame.stream < self.next_id {
                    return Err(Violation(
                        "a stream's number is not greater than the previous ones, or is from the server",
                    ));
                }
                if self.outbox.has_too_many_ends() {
                    return Err(Violation("it opens streams without reading their ends"));
                }
                let next = frame.stream.checked_add(1);
                self.next_id = next.ok_or(Violation("the stream numbers are exhausted"))?;
                let body = frame.body.to_vec();
                opened(
                    self,
                    Opened {
                        stream: frame.stream,
                        body,
                    },
                );
                continue;
            }
            self.take_frame(kind, frame.stream, frame.body)?;
        }
        Ok(())
    }

    fn take_frame(&mut self, kind: Kind, id: u64, body: &[u8]) -> Result<(), Violation> {
        // Frames of streams that have ended here may still arrive.
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        match kind {
            Kind::Message => {
                if body.len() > MAX_MESSAGE_BYTES {
                    return Err(Violation("a message is longer than the limit for streams"));
                }
                let cost = body.len() + MESSAGE_COST;
                if stream.granted <= 0 || stream.peer_ended && self.side == Side::Server {
                    return Err(Violation(
                        "a message without credit, or after the end of the stream",
                    ));
                }
                stream.granted -= cost as isize;
                stream.has_begun = true;
                if stream.deaf {
                    if stream.take(cost) {
                        self.owing.insert(id);
                    }
                    return Ok(());
                }
                if !stream.peer_ended {
                    stream.held += cost;
                    stream.news.push_back(News::Message(body.to_vec()));
                }
            }
            Kind::Credit => {
                let bytes = Reader(body)
                    .number()
                    .and_then(|bytes| usize::try_from(bytes).ok());
                let bytes = bytes.ok_or(Violation("malformed credit"))?;
                let most = MOST_CREDIT as isize;
                stream.credit = stream.credit.saturating_add_unsigned(bytes).min(most);
                if stream.credit > 0 {
                    self.woken.extend(stream.writer.take());
                }
                return Ok(());
            }
            Kind::Head if self.side == Side::Client => {
                if std::mem::replace(&mut stream.has_begun, true) {
                    return Err(Violation("a second head, or a head after a message"));
                }
                let metadata = MetadataMap::decode(body).ok_or(Violation("malformed metadata"))?;
                if !stream.peer_ended {
                    stream.news.push_back(News::Head(metadata));
                }
            }
            Kind::End if stream.peer_ended => return Ok(()),
            Kind::End if self.side == Side::Server => stream.peer_ended = true,
            Kind::End => {
                let status = wire::read_status(body).ok_or(Violation("malformed status"))?;
                stream.end(status);
                self.woken.extend(stream.writer.take());
            }
            Kind::Reset if self.side == Side::Server => {
                self.remove(id);
                return Ok(());
            }
            Kind::Open | Kind::Head | Kind::Reset => {
                return Err(Violation("a frame that only the other side may send"));
            }
        }
        self.woken.extend(stream.reader.take());
        Ok(())
    }
}
