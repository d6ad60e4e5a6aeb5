//! A hostile client of rings.

use std::ops::{Deref, DerefMut};

use dunlin_verbs::{Device, EndpointAddress, Region};

use super::pair::{Grant, Pair, MEMORY_BYTES};
use super::{Random, ECHO, LONG, ON_WORKERS};
use crate::channel::batch::{self, Canaries, Form, LINE_BYTES, WORD_BYTES};
use crate::channel::message::{Descriptor, Header, Kind};
use crate::channel::Parameters;

/// Offsets in an inlet, as in an honest ring.
pub(crate) const CONSUMED_AT: usize = 0;
pub(crate) const SLEEP_AT: usize = 64;
pub(crate) const RING_AT: usize = 4096;

/// A hostile client of rings.
pub(crate) struct Ring<D: Device> {
    pair: Pair<D>,
    /// What the server has granted.
    pub(crate) grant: Option<Grant>,
    pub(crate) lines: usize,
    /// The position at which an honest peer would write next, and the number of that batch.
    pub(crate) position: usize,
    pub(crate) canaries: Canaries,
    /// The form in which its batches are written.
    pub(crate) form: Form,
}

impl<D: Device> Deref for Ring<D> {
    type Target = Pair<D>;

    fn deref(&self) -> &Pair<D> {
        &self.pair
    }
}

impl<D: Device> DerefMut for Ring<D> {
    fn deref_mut(&mut self) -> &mut Pair<D> {
        &mut self.pair
    }
}

impl<D: Device> Ring<D> {
    /// Makes a client that claims to write its batches in this form.
    pub(crate) fn new(device: &D, receives: usize, form: Form) -> Self {
        Self {
            pair: Pair::new(device, receives),
            grant: None,
            lines: 0,
            position: 0,
            canaries: Canaries::new(0),
            form,
        }
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let inlet = self.inlet.remote();
        let numbers = [
            ("inlet-address", inlet.address),
            ("inlet-key", u64::from(inlet.key.0)),
            ("ring-lines", ((MEMORY_BYTES - RING_AT) / LINE_BYTES) as u64),
            ("eager-bytes", 4096),
            ("max-message-bytes", 1 << 20),
            ("ring-canaries", 1),
            ("ring-one-write", u64::from(self.form == Form::Sealed)),
        ];
        numbers.map(|(name, value)| (name.to_owned(), value)).into()
    }

    pub(crate) fn connect(&mut self, peer: &EndpointAddress, parameters: &Parameters) {
        self.pair.join(peer);
        self.lines = parameters["ring-lines"] as usize;
        self.canaries = Canaries::new(parameters["ring-canaries"]);
        let in_order = parameters.get("ring-in-order") == Some(&1);
        self.form = Form::between(self.form == Form::Sealed, in_order);
        self.grant = Some(Grant::told(
            parameters,
            ("inlet-address", "inlet-key"),
            self.inlet_bytes(),
        ));
    }

    pub(crate) fn inlet_bytes(&self) -> usize {
        RING_AT + self.lines * LINE_BYTES
    }

    /// Writes at an offset of the peer's inlet. Returns `false` if the connection is over.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        self.post(offset, bytes, None)
    }

    pub(crate) fn post(&mut self, offset: usize, bytes: &[u8], immediate: Option<u32>) -> bool {
        let grant = self.grant.expect("it is connected");
        let place = grant.at.plus(offset as u64);
        self.pair.write_at(place, bytes, immediate)
    }

    /// Writes a batch where an honest peer would write it next, with any content.
    pub(crate) fn batch(
        &mut self,
        lines: usize,
        messages: u32,
        content: &[u8],
        consumed: u64,
    ) -> bool {
        let canary = self.canaries.current();
        self.canaries.advance();
        let bytes = self.lines * LINE_BYTES;
        for (offset, line) in
            batch::lay_out(self.form, canary, (lines, messages), content, consumed)
        {
            let at = (self.position * LINE_BYTES + offset) % bytes;
            if !self.write(RING_AT + at, &line) {
                return false;
            }
        }
        self.position = (self.position + batch::lines_of(content.len())) % self.lines;
        true
    }

    /// Writes a batch of one message.
    pub(crate) fn message(&mut self, low: u64, call: u64, payload: &[u8], consumed: u64) -> bool {
        let mut content = (u128::from(low) | u128::from(call) << 64)
            .to_le_bytes()
            .to_vec();
        content.extend_from_slice(payload);
        self.batch(batch::lines_for(payload.len()), 1, &content, consumed)
    }

    pub(crate) fn honest(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) -> bool {
        let header = Header {
            length: payload.len() as u32,
            handler,
            kind,
            call,
        };
        let bytes = u128::from_le_bytes(header.encode());
        self.message(bytes as u64, call, payload, 0)
    }

    /// Writes a message that is almost valid.
    pub(crate) fn crooked(&mut self, random: &mut Random, calls: &[u64]) -> bool {
        let kind = random.of(&[0u64, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 8, 9, 255]);
        let handler = random.of(&[0u64, ECHO.into(), LONG.into(), ON_WORKERS.into(), 999]);
        let call = match random.below(4) {
            0 => random.next(),
            1 => u64::MAX,
            _ => random.of(calls),
        };
        let own = self.inlet.remote();
        let descriptor = Descriptor {
            address: random.of(&[0, own.address, own.address + 100, u64::MAX - 5]),
            length: random.of(&[0, 1, 5000, 16 << 20, (16 << 20) + 1, 1 << 40, u64::MAX]),
            key: match random.below(3) {
                0 => own.key.0,
                1 => 0,
                _ => random.next() as u32,
            },
        };
        let payload = match random.below(5) {
            0 => Vec::new(),
            1 | 2 => descriptor.encode().to_vec(),
            3 => random.bytes(41),
            _ => {
                let length = random.below(4096);
                random.bytes(length)
            }
        };
        let length = match random.below(8) {
            0 => random.next() & 0xffff_ffff,
            1 => 4097,
            2 => u64::from(u32::MAX),
            _ => payload.len() as u64,
        };
        let high = if random.below(20) == 0 { 1 << 60 } else { 0 };
        let consumed = if random.below(10) == 0 {
            random.next()
        } else {
            0
        };
        self.message(
            length | handler << 32 | kind << 48 | high,
            call,
            &payload,
            consumed,
        )
    }

    /// Does something that no honest peer does. Returns `false` if the connection is over.
    pub(crate) fn misbehave(&mut self, random: &mut Random, calls: &[u64]) -> bool {
        match random.below(12) {
            0 => {
                let word = random.next() >> random.below(64);
                self.write(CONSUMED_AT, &word.to_le_bytes())
            }
            1 | 2 => {
                let word = random.next() >> random.below(64);
                self.write(SLEEP_AT, &word.to_le_bytes())
            }
            3 => {
                let bytes = self.inlet_bytes();
                let offset = random.below(bytes);
                let length = random.below(2000.min(bytes - offset) + 1);
                let noise = random.bytes(length);
                self.write(offset, &noise)
            }
            4 => {
                // A batch of any size with an arbitrary header.
                let lines = random.of(&[0, 1, 2, 64, 65, 66, 1023, 1024, 1025, (1 << 20) - 1]);
                let messages = random.of(&[0, 1, 2, 100, 4095]);
                let length = random.below(3000);
                let content = random.bytes(length);
                self.batch(lines, messages, &content, 0)
            }
            5 => {
                // The header of a batch whose commit never comes.
                let head = batch::head(self.canaries.current(), 64, 1);
                let at = self.position * LINE_BYTES + self.form.content_at() - WORD_BYTES;
                self.write(RING_AT + at, &head.to_le_bytes())
            }
            6 => {
                // Beyond the inlet: the device must refuse it.
                let beyond = self.inlet_bytes() + random.below(100);
                let done = self.write(beyond, &[0xee; 8]);
                assert!(!done, "a WRITE at {beyond:#x} of an inlet");
                false
            }
            _ => self.crooked(random, calls),
        }
    }
}
