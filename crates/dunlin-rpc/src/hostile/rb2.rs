//! A hostile client of RB²'s rings.

use dunlin_verbs::{Device, EndpointAddress, QueuePair, Region};

use super::pair::{Grant, Pair, MEMORY_BYTES};
use super::peer::{valid_call, Peer};
use super::{Door, Random, ECHO};
use crate::channel::message::{Header, Kind};
use crate::channel::rb2::Rb2Channel;
use crate::config::ChannelConfig;

/// Offsets in the memory of a consumer.
const TAIL_AT: usize = 0;
const END_AT: usize = 64;
const ARRAY_AT: usize = 4096;
const SLOT_BYTES: usize = 128;
const SLOTS: usize = (MEMORY_BYTES - ARRAY_AT) / SLOT_BYTES;
/// Sizes in bytes of what a server grants: its control words, and those of its producer.
const INLET_BYTES: usize = 1024;
const PRODUCER_BYTES: usize = 256;

/// See the module.
pub(crate) struct Rb2<D: Device> {
    pub(crate) pair: Pair<D>,
    /// The server's control words, and the memory of its consumer and of its producer.
    pub(crate) grants: [Grant; 3],
    /// The slot at which an honest client would write next.
    tail: usize,
}

impl<D: Device> Rb2<D> {
    /// Opens a connection with this many RECEIVEs for wake-ups.
    pub(crate) fn open(device: &D, door: &Door, preset: &str, receives: usize) -> Self {
        let mut pair = Pair::new(device, receives);
        let wake = device.create_completion_channel().expect("an event");
        let honest = Rb2Channel::open(device, &wake, &ChannelConfig::default());
        let mut parameters = honest.expect("a channel").parameters;
        let own = pair.inlet.remote();
        for name in ["inlet-address", "ring-producer-0", "ring-consumer-0"] {
            parameters.insert(name.to_owned(), own.address);
        }
        for name in ["inlet-key", "ring-producer-1", "ring-consumer-1"] {
            parameters.insert(name.to_owned(), u64::from(own.key.0));
        }
        let address: EndpointAddress = pair.queue_pair.address();
        let reply = door.open(preset, address, parameters);
        pair.join(&reply.endpoint);
        let told = &reply.parameters;
        let grants = [
            Grant::told(told, ("inlet-address", "inlet-key"), INLET_BYTES),
            Grant::told(told, ("ring-consumer-0", "ring-consumer-1"), MEMORY_BYTES),
            Grant::told(told, ("ring-producer-0", "ring-producer-1"), PRODUCER_BYTES),
        ];
        Self {
            pair,
            grants,
            tail: 0,
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let place = self.grants[1].at.plus(offset as u64);
        self.pair.write_at(place, bytes, None)
    }

    /// Writes what an honest client would write next, with any framing, and moves the tail by what that takes.
    fn message(&mut self, framing: u64, content: &[u8]) -> bool {
        let mut bytes = framing.to_le_bytes().to_vec();
        bytes.extend(content);
        let slots = bytes.len().div_ceil(SLOT_BYTES);
        let at = self.tail % SLOTS;
        if at + slots > SLOTS {
            // It would have to skip the end; these are few and short connections.
            return false;
        }
        self.tail += slots;
        let tail = self.tail as u64;
        self.write(ARRAY_AT + at * SLOT_BYTES, &bytes) && self.write(TAIL_AT, &tail.to_le_bytes())
    }

    fn framed(&mut self, header: Header, payload: &[u8]) -> bool {
        let mut content = header.encode().to_vec();
        content.extend(payload);
        self.message(framing(content.len()), &content)
    }
}

impl<D: Device> Peer<D> for Rb2<D> {
    fn pair(&mut self) -> &mut Pair<D> {
        &mut self.pair
    }

    fn grants(&self) -> Vec<Grant> {
        self.grants.to_vec()
    }

    fn honest(&mut self, random: &mut Random, call: u64) -> bool {
        let (kind, handler, payload) = valid_call(random, self.pair.inlet.remote());
        let header = Header::new(kind, handler, call, payload.len());
        self.framed(header, &payload)
    }

    /// Writes a message, a pointer or an end that is almost valid, or noise.
    fn misbehave(&mut self, random: &mut Random) -> bool {
        let call = random.next();
        let length = random.of(&[0, 1, 24, 700]);
        let payload = random.bytes(length);
        match random.below(6) {
            // It refers to messages that never existed, or has a wrong length or kind.
            0 => {
                let kind = random.of(&[Kind::Request, Kind::Release, Kind::Response, Kind::Turn]);
                self.framed(Header::new(kind, ECHO, call, length), &payload)
            }
            1 => {
                let told = random.of(&[0, length + 1, 1 << 20]);
                self.framed(Header::new(Kind::Request, ECHO, call, told), &payload)
            }
            2 => {
                let told = random.of(&[0, 15, length + 1, 1 << 20, u32::MAX as usize]);
                let word = random.of(&[framing(told), call, 0]);
                self.message(word, &payload)
            }
            // A tail or an end anywhere.
            3 => {
                let tail = self.tail as u64;
                let word = random.of(&[call, 0, tail + 1, tail + SLOTS as u64, u64::MAX]);
                let at = random.of(&[TAIL_AT, END_AT]);
                self.write(at, &word.to_le_bytes())
            }
            // A head beyond what was sent.
            4 => {
                let word = random.of(&[call, 1, SLOTS as u64, u64::MAX]);
                let place = self.grants[2].at;
                self.pair.write_at(place, &word.to_le_bytes(), None)
            }
            _ => {
                let noise = random.bytes(4000);
                let at = random.below(MEMORY_BYTES - noise.len());
                self.write(at, &noise)
            }
        }
    }
}

/// The word in front of a message: its length, and the complement of that.
fn framing(length: usize) -> u64 {
    let length = length as u32;
    u64::from(length) | u64::from(!length) << 32
}
