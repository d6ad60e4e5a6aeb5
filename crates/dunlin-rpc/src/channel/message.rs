//! The wire format of messages: a header, then the payload. [`super::batch`] combines several of them.
//!
//! ```text
//! long:    length (32 bits) | handler (16) | kind (8) | 0 (8)          call (64)
//! short:   length (13) | handler (16) | call (32) | 01 (2) and 1 for an answer, 0 for a request (1)
//! ```
//!
//! In a ring, requests and responses whose numbers fit have the short header; the reader recognises it by the two bits
//! in the highest byte.

use crate::config::EAGER_BYTES_MIN;

/// Size of a long header in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// Size of a short header in bytes.
pub(crate) const SHORT_BYTES: usize = 8;
/// Size in bytes of the payload that represents a long message: where to READ it.
pub(crate) const DESCRIPTOR_BYTES: usize = 24;
const _: () = assert!(DESCRIPTOR_BYTES <= EAGER_BYTES_MIN);

/// Fields of a short header, from the lowest bits: length, handler, call, form.
const LENGTH_BITS: u32 = 13;
const CALL_AT: u32 = LENGTH_BITS + 16;
const FORM_AT: u32 = CALL_AT + 32;

/// The form of a short header: 0b01, followed by whether it is a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ShortKind {
    Request = 0b010,
    Response = 0b011,
}

/// Maximum number of bytes that a message with `payload` bytes takes in a batch: every message is aligned to 8 bytes.
#[inline]
pub(crate) fn message_bytes(payload: usize) -> usize {
    HEADER_BYTES + padded(payload)
}

/// Length of a payload with padding.
#[inline]
pub(crate) fn padded(payload: usize) -> usize {
    (payload + 7) & !7
}

/// Whether a request or response of at most `length` bytes has a short header.
#[inline]
pub(crate) fn is_short(call: u64, length: usize) -> bool {
    call >> 32 == 0 && length >> LENGTH_BITS == 0
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A call; the payload is the request.
    Request = 1,
    /// A response.
    Response = 2,
    /// A response that is an error; the payload is a [`crate::error::WireFailure`].
    Failure = 3,
    /// A call; the payload is a [`Descriptor`] of the request in the caller's memory.
    LongRequest = 4,
    /// A response; the payload is a [`Descriptor`] of it in the server's memory.
    LongResponse = 5,
    /// The receiver of a long response has read it.
    Release = 6,
    /// The caller no longer wants the response.
    Cancel = 7,
    /// The server takes no new calls.
    Goodbye = 8,
    /// A call to the server itself: the payload names a region, the response grants it.
    Attach = 9,
    /// A segment of a request that exceeds one datagram; see [`super::datagram::segments`].
    RequestSegment = 10,
    /// A segment of a response that exceeds one datagram.
    ResponseSegment = 11,
    /// Number of segments that the receiver has.
    Segments = 12,
    /// The calls to which the client has no response; see [`super::datagram::fate`].
    Question = 13,
    /// The states of those calls.
    Fates = 14,
    /// A server's information about a client's turn; see [`super::pool`].
    Turn = 15,
    /// A part of a request; see [`super::datagram::driven`].
    RequestPart = 16,
    /// A part of a request has arrived that is not the last.
    CreditReturn = 17,
    /// A request for another part of a response.
    ResponseRequest = 18,
    /// A part of a response.
    ResponsePart = 19,
    /// The server is going to sleep; see [`super::datagram::written`].
    Asleep = 20,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Request,
            2 => Self::Response,
            3 => Self::Failure,
            4 => Self::LongRequest,
            5 => Self::LongResponse,
            6 => Self::Release,
            7 => Self::Cancel,
            8 => Self::Goodbye,
            9 => Self::Attach,
            10 => Self::RequestSegment,
            11 => Self::ResponseSegment,
            12 => Self::Segments,
            13 => Self::Question,
            14 => Self::Fates,
            15 => Self::Turn,
            16 => Self::RequestPart,
            17 => Self::CreditReturn,
            18 => Self::ResponseRequest,
            19 => Self::ResponsePart,
            20 => Self::Asleep,
            _ => return None,
        })
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Length in bytes of the payload in the ring.
    pub(crate) length: u32,
    /// The handler of a request, otherwise zero.
    pub(crate) handler: u16,
    /// The kind of the message.
    pub(crate) kind: Kind,
    /// The caller's name for the call; echoed in the response.
    pub(crate) call: u64,
}

impl Header {
    /// The header of a message with `length` bytes of payload.
    #[inline]
    pub(crate) fn new(kind: Kind, handler: u16, call: u64, length: usize) -> Self {
        Self {
            length: length as u32,
            handler,
            kind,
            call,
        }
    }

    /// The short header of this message, if it has one.
    #[inline(always)]
    pub(crate) fn short(&self) -> Option<[u8; SHORT_BYTES]> {
        let kind = self.short_kind()?;
        let fits = is_short(self.call, self.length as usize);
        fits.then(|| ShortHeader::new(kind, self.handler, self.call, self.length).encode())
    }

    #[inline(always)]
    fn short_kind(&self) -> Option<ShortKind> {
        match self.kind {
            Kind::Request => Some(ShortKind::Request),
            Kind::Response => Some(ShortKind::Response),
            _ => None,
        }
    }

    /// Decodes the header that a peer wrote at the start of these bytes of a ring, and returns its size as well. `None`
    /// if it is invalid.
    pub(crate) fn first(bytes: &[u8]) -> Option<(Self, usize)> {
        for kind in [ShortKind::Request, ShortKind::Response] {
            if let Some(short) = ShortHeader::read(kind, *bytes.first_chunk()?) {
                return Some((short.as_header(kind), SHORT_BYTES));
            }
        }
        let long = Self::read(bytes.first_chunk()?)?;
        Some((long, HEADER_BYTES))
    }

    /// Decodes a long header that a peer wrote; `None` if it is invalid.
    #[inline]
    pub(crate) fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let both = u128::from_le_bytes(*bytes);
        let (low, call) = (both as u64, (both >> 64) as u64);
        Some(Self {
            length: low as u32,
            handler: (low >> 32) as u16,
            kind: Kind::from_number((low >> 48) as u8)?,
            call,
        })
    }

    /// Encodes the long form.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let low = u64::from(self.length)
            | u64::from(self.handler) << 32
            | u64::from(self.kind as u8) << 48;
        (u128::from(low) | u128::from(self.call) << 64).to_le_bytes()
    }
}

/// A short header as a peer wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortHeader(u64);

impl ShortHeader {
    /// A header of numbers that fit: see [`is_short`].
    #[inline(always)]
    pub(crate) fn new(kind: ShortKind, handler: u16, call: u64, length: u32) -> Self {
        debug_assert!(is_short(call, length as usize));
        let low = u64::from(length) | u64::from(handler) << LENGTH_BITS;
        Self(low | call << CALL_AT | (kind as u64) << FORM_AT)
    }

    /// The header in these bytes, if it is of this kind.
    #[inline(always)]
    pub(crate) fn read(kind: ShortKind, bytes: [u8; SHORT_BYTES]) -> Option<Self> {
        let word = u64::from_le_bytes(bytes);
        (word >> FORM_AT == kind as u64).then_some(Self(word))
    }

    /// Its encoding in the ring.
    #[inline]
    pub(crate) fn encode(self) -> [u8; SHORT_BYTES] {
        self.0.to_le_bytes()
    }

    /// Length of the payload that it claims, in bytes.
    #[inline]
    pub(crate) fn length(self) -> usize {
        self.0 as usize & ((1 << LENGTH_BITS) - 1)
    }

    #[inline]
    pub(crate) fn handler(self) -> u16 {
        (self.0 >> LENGTH_BITS) as u16
    }

    #[inline]
    pub(crate) fn call(self) -> u64 {
        self.0 >> CALL_AT & 0xffff_ffff
    }

    /// Converts it to a general header.
    #[inline]
    pub(crate) fn as_header(self, kind: ShortKind) -> Header {
        let kind = match kind {
            ShortKind::Request => Kind::Request,
            ShortKind::Response => Kind::Response,
        };
        Header::new(kind, self.handler(), self.call(), self.length())
    }
}

/// The location of a long payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Address in the sender's memory.
    pub(crate) address: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// The sender's remote key.
    pub(crate) key: u32,
}

impl Descriptor {
    /// Its encoding in the ring.
    pub(crate) fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Decodes what a peer wrote; `None` if it has another size.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DESCRIPTOR_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Some(Self {
            address: word(0),
            length: word(8),
            key: word(16) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_header_that_round_trips_or_none(low: u64, call: u64) {
            let raw = (u128::from(low) | u128::from(call) << 64).to_le_bytes();
            if let Some(header) = Header::read(&raw) {
                let bytes = u128::from_le_bytes(header.encode());
                let known = low & !(0xff << 56);
                prop_assert_eq!((bytes as u64, (bytes >> 64) as u64), (known, call));
            }
        }

        #[test]
        fn headers_in_a_ring_round_trip(
            length in prop_oneof![0u32..16, 8180..8200u32, any::<u32>()],
            handler: u16,
            kind in 1u8..=20,
            call in prop_oneof![0..u64::from(u32::MAX), any::<u64>()],
        ) {
            let kind = Kind::from_number(kind).unwrap();
            let header = Header { length, handler, kind, call };
            if let Some(short) = header.short() {
                prop_assert_eq!(Header::first(&short), Some((header, SHORT_BYTES)));
                prop_assert_eq!(Header::first(&short[..SHORT_BYTES - 1]), None);
            }
            // The long form is always valid, too.
            prop_assert_eq!(Header::first(&header.encode()), Some((header, HEADER_BYTES)));
            prop_assert_eq!(Header::first(&header.encode()[..HEADER_BYTES - 1]), None);
        }

        #[test]
        fn descriptors_round_trip(address: u64, length: u64, key: u32) {
            let descriptor = Descriptor { address, length, key };
            prop_assert_eq!(Descriptor::decode(&descriptor.encode()), Some(descriptor));
        }
    }

    #[test]
    fn messages_begin_on_eight_bytes() {
        assert_eq!([0, 1, 8, 64, 65].map(message_bytes), [16, 24, 24, 80, 88]);
    }
}
