//! Messages by SEND over RC, as in X-RDMA (Ma et al., CLUSTER '19), the library that Flor replaced (Flor §7.1): each
//! short message is one SEND into a RECEIVE of the peer, and a long payload is fetched by READ.
//!
//! ```text
//! SEND:  messages of the receiver whose RECEIVEs came back u32 | 0 u32 | header 16 B | payload
//! ```
//!
//! A SEND of only the first 8 bytes is a window update ([`window`]).

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use dunlin_verbs::{Device, QueuePair, QueuePairState, SendFlags, Work};

use super::carrier::Carrier;
use super::message::{Header, Kind, HEADER_BYTES};
use super::{Channel, ChannelError, Exchange};
use crate::effort;

mod connect;
mod outgoing;
mod window;

use outgoing::{Outgoing, TOGETHER};
use window::Window;

/// Number of bytes before a header.
const WORD_BYTES: usize = 8;
/// Number of bytes before a payload.
const FRONT_BYTES: usize = WORD_BYTES + HEADER_BYTES;
/// One in this many SENDs is signaled, so that its memory is known to be free again before the peer has room for it.
const SIGNAL_EVERY: u64 = 8;

/// Size in bytes of a SEND with the longest payload.
fn slot_bytes(eager_bytes: usize) -> usize {
    (FRONT_BYTES + eager_bytes).next_multiple_of(64)
}

/// Decodes a message of the peer: its count, and the header if there is one. The payload follows.
fn parse(bytes: &[u8], eager_bytes: usize) -> Result<(u32, Option<Header>), ChannelError> {
    let short = || ChannelError::violation("a message without a header");
    let (word, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let word = u64::from_le_bytes(*word);
    let told = word as u32;
    if word >> 32 != 0 {
        return Err(ChannelError::violation(
            "a message of a channel of another version",
        ));
    }
    if rest.is_empty() {
        return Ok((told, None));
    }
    let (header, payload) = rest.split_first_chunk().ok_or_else(short)?;
    let header = Header::read(header)
        .ok_or_else(|| ChannelError::violation("a message of an unknown kind"))?;
    if header.length as usize != payload.len() || payload.len() > eager_bytes {
        return Err(ChannelError::violation(
            "a message whose length differs from that of its payload",
        ));
    }
    Ok((told, Some(header)))
}

/// Messages by SEND over one RC queue pair.
#[derive(Debug)]
pub(crate) struct SentChannel<D: Device> {
    carrier: Carrier<D>,
    window: Window,
    outgoing: Outgoing<D>,
    /// Maximum length of a payload that the peer accepts.
    eager_bytes: usize,
    /// Total number of messages posted to the device.
    posted: u64,
    /// Messages that have arrived and were not taken: RECEIVE and length. Their window updates have been processed.
    arrived: VecDeque<(usize, usize)>,
    /// The last received message.
    scratch: Box<[u8]>,
}

impl<D: Device> Deref for SentChannel<D> {
    type Target = Carrier<D>;

    #[inline]
    fn deref(&self) -> &Carrier<D> {
        &self.carrier
    }
}

impl<D: Device> DerefMut for SentChannel<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier<D> {
        &mut self.carrier
    }
}

impl<D: Device> SentChannel<D> {
    /// Whether the device no longer needs the place of the next message.
    #[inline]
    fn is_place_free(&self) -> bool {
        let next = self.window.made();
        next < self.outgoing.places() || self.carrier.is_done(self.outgoing.ticket(next))
    }

    /// To be called when the next message was made.
    #[inline]
    fn made(&mut self, bytes: usize) {
        self.outgoing.made(self.window.made(), bytes);
        self.window.make();
    }

    /// Processes the window updates of arrived messages, on arrival and not when they are taken: a server without room
    /// takes none.
    fn hear(&mut self) -> Result<(), ChannelError> {
        while let Some((receive, bytes)) = self.carrier.next_arrived() {
            if bytes > WORD_BYTES {
                let mut word = [0; WORD_BYTES];
                self.carrier.read_arrived(receive, &mut word);
                self.window.hear(u64::from_le_bytes(word) as u32)?;
                self.arrived.push_back((receive, bytes));
                continue;
            }
            let read = self.read(receive, bytes);
            let (told, _) = read?;
            self.window.hear(told)?;
        }
        Ok(())
    }

    /// To be called after a poll without success. A window update that had no entry before is sent now: the peer may
    /// wait for this only, and then no further message arrives that would trigger it.
    fn catch_up(&mut self) -> Result<(), ChannelError> {
        self.flush()?;
        self.carrier.progress()?;
        self.hear()?;
        self.tell_consumed()
    }

    /// Copies a message out, which is its last use, and reposts its RECEIVE.
    fn read(
        &mut self,
        receive: usize,
        bytes: usize,
    ) -> Result<(u32, Option<Header>), ChannelError> {
        let copy = &mut self.scratch[..bytes];
        self.carrier.read_arrived(receive, copy);
        self.carrier.post_again(receive)?;
        self.window.take();
        parse(&self.scratch[..bytes], self.carrier.config().eager_bytes)
    }

    /// Posts the next messages with one doorbell, as many as may share one. `false`: there is no entry for any.
    fn post(&mut self) -> Result<bool, ChannelError> {
        let waiting = usize::try_from(self.window.made() - self.posted).unwrap_or(TOGETHER);
        let mut count = waiting.min(TOGETHER);
        if !self.carrier.has_entries(count) {
            if !self.carrier.reserve(1)? {
                return Ok(false);
            }
            count = 1;
        }
        let first = self.posted;
        let told = u64::from(self.window.tell()).to_le_bytes();
        let mut all = [SendFlags::empty(); TOGETHER];
        for flags in &mut all[..count] {
            D::charge(effort::WRITTEN);
            *flags = self.carrier.next_flags();
            if self.posted % SIGNAL_EVERY == SIGNAL_EVERY - 1 {
                *flags |= SendFlags::SIGNALED;
            }
            self.carrier.note_posted(*flags);
            let ticket = self.carrier.last_posted();
            self.outgoing.seal(self.posted, told, ticket);
            self.posted += 1;
        }
        let queue_pair = &mut self.carrier.queue_pair;
        let posted = self.outgoing.post(queue_pair, first, &all[..count]);
        posted.map_err(|error| {
            let error = ChannelError::queue_pair(error.to_string());
            self.carrier.fail(error)
        })?;
        self.carrier.unconfirmed = Some(self.carrier.last_posted());
        Ok(true)
    }
}

impl<D: Device> Channel for SentChannel<D> {
    type Device = D;

    #[inline]
    fn eager_bytes(&self) -> usize {
        self.eager_bytes
    }

    #[inline]
    fn make_room(&mut self, _payload: usize) -> Result<bool, ChannelError> {
        if self.window.has_room() && self.is_place_free() {
            return Ok(true);
        }
        self.catch_up()?;
        Ok(self.window.has_room() && self.is_place_free())
    }

    #[inline]
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        D::charge(effort::ADDED);
        D::charge(Work::Copy(payload.len()));
        let header = Header::new(kind, handler, call, payload.len()).encode();
        let bytes = self.outgoing.bytes_of(self.window.made());
        bytes[WORD_BYTES..FRONT_BYTES].copy_from_slice(&header);
        super::short_copy::copy(&mut bytes[FRONT_BYTES..][..payload.len()], payload);
        self.made(FRONT_BYTES + payload.len());
    }

    #[inline]
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, D> {
        let most = if has_room { self.eager_bytes } else { 0 };
        (
            &self.scratch[FRONT_BYTES..][..header.length as usize],
            &mut self.outgoing.bytes_of(self.window.made())[FRONT_BYTES..][..most],
            self.carrier.exports(),
        )
    }

    #[inline]
    fn commit(&mut self, call: u64, length: usize) {
        D::charge(effort::ADDED);
        D::charge(Work::Copy(length));
        let header = Header::new(Kind::Response, 0, call, length).encode();
        let bytes = self.outgoing.bytes_of(self.window.made());
        bytes[WORD_BYTES..FRONT_BYTES].copy_from_slice(&header);
        self.made(FRONT_BYTES + length);
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        self.carrier.take_short();
        while self.posted < self.window.made() {
            if !self.post()? {
                break;
            }
        }
        Ok(())
    }

    /// Each message is a SEND: those made so far are sent with the next one.
    fn end_batch(&mut self) -> Result<(), ChannelError> {
        match self.carrier.config().answer_each_message {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        loop {
            self.hear()?;
            let Some((receive, bytes)) = self.arrived.pop_front() else {
                D::charge(Work::Poll);
                self.catch_up()?;
                if self.arrived.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            D::charge(effort::OPENED);
            D::charge(Work::Arrived);
            D::charge(Work::Copy(bytes));
            if let (_, Some(header)) = self.read(receive, bytes)? {
                return Ok(Some(header));
            }
        }
    }

    #[inline]
    fn payload(&self, header: Header) -> &[u8] {
        &self.scratch[FRONT_BYTES..][..header.length as usize]
    }

    fn has_arrival(&self) -> bool {
        !self.arrived.is_empty() || self.carrier.has_arrived()
    }

    fn may_have_room(&self) -> bool {
        // What was not processed yet may contain a window update.
        self.carrier.is_short()
            || self.carrier.has_arrived()
            || self.window.has_room() && self.is_place_free()
    }

    fn tell_consumed(&mut self) -> Result<(), ChannelError> {
        // Messages that were made and not sent will carry it.
        let untold = self.window.owes_word() && self.posted == self.window.made();
        if untold && self.window.has_room_for_word() && self.is_place_free() {
            self.made(WORD_BYTES);
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the channel. The dialling side tells its peer, if it can.
    fn close(&mut self) {
        let carrier = &self.carrier;
        let whole =
            carrier.broken.is_none() && carrier.queue_pair.state() == QueuePairState::ReadyToSend;
        let room = self.window.has_room() && self.is_place_free() && carrier.has_entries(8);
        if carrier.dialled && whole && room && self.posted == self.window.made() {
            self.push(Kind::Goodbye, 0, 0, &[]);
            let _ = self.flush();
        }
        self.carrier.queue_pair.to_error();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_made_is_what_is_read() {
        let mut bytes = 7_u64.to_le_bytes().to_vec();
        assert_eq!(parse(&bytes, 64).unwrap(), (7, None));
        let header = Header::new(Kind::Request, 3, 9, 5);
        bytes.extend(header.encode());
        bytes.extend([1; 5]);
        assert_eq!(parse(&bytes, 64).unwrap(), (7, Some(header)));
        assert!(parse(&bytes, 4).unwrap_err().is_violation());
        bytes.push(1);
        assert!(parse(&bytes, 64).unwrap_err().is_violation());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_whole(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            match parse(&bytes, 40) {
                Ok((_, Some(header))) => {
                    prop_assert_eq!(header.length as usize + FRONT_BYTES, bytes.len());
                    prop_assert!(header.length <= 40);
                }
                Ok((_, None)) => prop_assert_eq!(bytes.len(), WORD_BYTES),
                Err(error) => prop_assert!(error.is_violation()),
            }
        }
    }
}
