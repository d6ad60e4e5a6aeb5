//! The data that one end of a ring passes to the other, by any means: a pipe, a file or the handshake of `dunlin://`.

use dunlin_verbs::{EndpointAddress, RemoteAddress, RemoteKey, ENDPOINT_ADDRESS_BYTES};

use crate::config::RingConfig;
use crate::design::{Design, HeadSync, Layout, TailSync};
use crate::error::ConfigError;
use crate::framing::Framing;

/// The end that makes the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Producer = 1,
    Consumer = 2,
}

/// What one end of a ring tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Address of its queue pair.
    pub address: EndpointAddress,
    pub(crate) memory: RemoteAddress,
    pub(crate) terms: Terms,
}

/// Parameters that both ends must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    role: u64,
    design: u64,
    slots: u64,
    slot_bytes: u64,
    fixed: u64,
}

/// Number of integers in an offer besides its address.
pub const OFFER_NUMBERS: usize = 7;
/// Length of an encoded [`Offer`] in bytes.
pub const OFFER_BYTES: usize = ENDPOINT_ADDRESS_BYTES + 8 * OFFER_NUMBERS;

impl Offer {
    /// Encodes the offer, in little endian.
    pub fn encode(&self) -> [u8; OFFER_BYTES] {
        let mut bytes = [0; OFFER_BYTES];
        let (address, numbers) = bytes.split_at_mut(ENDPOINT_ADDRESS_BYTES);
        address.copy_from_slice(&self.address.encode());
        for (place, number) in numbers.chunks_exact_mut(8).zip(self.numbers()) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes an offer. Any bytes decode; whether the offer fits is checked when connecting.
    pub fn decode(bytes: &[u8; OFFER_BYTES]) -> Self {
        let (address, rest) = bytes.split_at(ENDPOINT_ADDRESS_BYTES);
        let mut place = [0; ENDPOINT_ADDRESS_BYTES];
        place.copy_from_slice(address);
        let mut numbers = [0; OFFER_NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(rest.as_chunks().0) {
            *number = u64::from_le_bytes(*bytes);
        }
        Self::from_numbers(EndpointAddress::decode(&place), numbers)
    }

    /// Everything but the address, as integers.
    pub fn numbers(&self) -> [u64; OFFER_NUMBERS] {
        let Terms {
            role,
            design,
            slots,
            slot_bytes,
            fixed,
        } = self.terms;
        let RemoteAddress { address, key } = self.memory;
        let key = u64::from(key.0);
        [address, key, role, design, slots, slot_bytes, fixed]
    }

    /// Makes an offer from an address and the other integers.
    pub fn from_numbers(address: EndpointAddress, numbers: [u64; OFFER_NUMBERS]) -> Self {
        let [memory, key, role, design, slots, slot_bytes, fixed] = numbers;
        Self {
            address,
            memory: RemoteAddress {
                address: memory,
                key: RemoteKey(key as u32),
            },
            terms: Terms {
                role,
                design,
                slots,
                slot_bytes,
                fixed,
            },
        }
    }
}

impl Terms {
    pub(crate) fn new(role: Role, config: &RingConfig, wakes: bool) -> Self {
        let Design {
            layout,
            head_sync,
            tail_sync,
            cache_lines,
            push_slots,
            ..
        } = config.design;
        // Parameters that affect the wire; other thresholds and copies are up to each side.
        let layout = match layout {
            Layout::SlotToSlot => 0,
            Layout::BackToBack => 1,
            Layout::LinkedSlots => 2,
        };
        // The longest message depends on how much the consumer may have read without reporting it.
        let (head, unpushed) = match head_sync {
            HeadSync::LazyPush => (0, push_slots),
            HeadSync::ActivePush => (0, 1),
            HeadSync::LazyPull => (1, 0),
        };
        let tail = match tail_sync {
            TailSync::WriteTwice => 0,
            TailSync::CompletionQueue => 1,
            TailSync::PollMessage => 2,
            TailSync::PollLength => 3,
        };
        Self {
            role: role as u64,
            design: layout
                | head << 8
                | tail << 16
                | u64::from(cache_lines) << 24
                | u64::from(wakes) << 25
                | u64::from(unpushed) << 32,
            slots: config.slots as u64,
            slot_bytes: config.slot_bytes as u64,
            fixed: match config.framing {
                Framing::Header => 0,
                Framing::Fixed(bytes) => bytes as u64,
            },
        }
    }

    pub(crate) fn agree(&self, theirs: &Self) -> Result<(), ConfigError> {
        let both = [
            ("which end of the ring this is", 3 - self.role, theirs.role),
            (
                "the design or the interval of pushed heads",
                self.design,
                theirs.design,
            ),
            ("the number of slots", self.slots, theirs.slots),
            ("the size of a slot", self.slot_bytes, theirs.slot_bytes),
            ("the length of messages", self.fixed, theirs.fixed),
        ];
        for (what, ours, theirs) in both {
            if ours != theirs {
                return Err(ConfigError::Disagreement { what, ours, theirs });
            }
        }
        Ok(())
    }
}
