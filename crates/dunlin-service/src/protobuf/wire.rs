//! The wire format of protobuf: keys, numbers, and values prefixed by their length.

use crate::varint;

/// Maximum nesting depth of messages, the same as prost's.
const DEPTH: u32 = 100;

/// The bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within a field.
    #[error("truncated within a field")]
    Truncated,
    /// A number has more than 64 bits, or a key more than 32.
    #[error("a number is too long")]
    Number,
    /// The wire type of a field is not that of the field's type.
    #[error("field {number} has the wrong type")]
    OtherType {
        /// The number of the field.
        number: u32,
    },
    /// Text that is not UTF-8.
    #[error("a string is not valid UTF-8")]
    Text,
    /// Messages are nested too deep.
    #[error("messages are nested too deeply: the limit is {DEPTH}")]
    Depth,
    /// An error of prost's.
    #[error("{0}")]
    Other(Box<str>),
}

impl Malformed {
    #[doc(hidden)]
    pub fn by_prost(error: prost::DecodeError) -> Self {
        Self::Other(error.to_string().into())
    }
}

/// The wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wire {
    /// A number of one to ten bytes.
    Varint = 0,
    /// Eight bytes.
    Bits64 = 1,
    /// Bytes prefixed by their length.
    Counted = 2,
    /// Fields up to the end of the group.
    Group = 3,
    /// The end of a group.
    EndGroup = 4,
    /// Four bytes.
    Bits32 = 5,
}

/// The key of a field: its number and its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// The field's number.
    #[inline]
    pub fn number(self) -> u32 {
        self.0 >> 3
    }

    /// Whether the field has this wire type.
    #[inline]
    pub fn is(self, wire: Wire) -> bool {
        self.0 & 7 == wire as u32
    }

    /// Returns an error if the field has another wire type.
    #[inline]
    pub(super) fn expect(self, wire: Wire) -> Result<(), Malformed> {
        match self.is(wire) {
            true => Ok(()),
            false => Err(self.other_type()),
        }
    }

    #[cold]
    pub(super) fn other_type(self) -> Malformed {
        Malformed::OtherType {
            number: self.number(),
        }
    }
}

/// Number of bytes of a key.
#[inline]
pub(super) const fn key_length(number: u32) -> usize {
    varint::length((number as u64) << 3)
}

/// Reads bytes from the beginning.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: varint::Reader<'a>,
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Creates a reader of a whole message.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: varint::Reader(bytes),
            depth: DEPTH,
        }
    }

    /// Reads the key of the next field.
    ///
    /// # Errors
    /// If there is no key.
    #[inline]
    pub fn key(&mut self) -> Result<Key, Malformed> {
        // Keys of fields up to the fifteenth have one byte.
        match self.bytes.0 {
            [first @ ..0x80, rest @ ..] => {
                self.bytes.0 = rest;
                Ok(Key(u32::from(*first)))
            }
            bytes => {
                let (key, rest) = long_key(bytes)?;
                self.bytes.0 = rest;
                Ok(key)
            }
        }
    }

    /// Whether there are no more fields.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        // Most numbers have one byte.
        match self.bytes.0 {
            [first @ ..0x80, rest @ ..] => {
                self.bytes.0 = rest;
                Ok(u64::from(*first))
            }
            bytes => {
                let (number, rest) = long_number(bytes)?;
                self.bytes.0 = rest;
                Ok(number)
            }
        }
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self
            .bytes
            .0
            .split_first_chunk()
            .ok_or(Malformed::Truncated)?;
        self.bytes.0 = rest;
        Ok(*first)
    }

    #[inline]
    pub(super) fn counted(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.number()?;
        self.bytes(length)
    }

    #[inline]
    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.bytes(length))
            .ok_or(Malformed::Truncated)
    }

    /// Returns a reader of the fields of a nested message.
    #[inline]
    pub(super) fn nested(&mut self) -> Result<Self, Malformed> {
        let depth = self.depth.checked_sub(1).ok_or(Malformed::Depth)?;
        Ok(Self {
            bytes: varint::Reader(self.counted()?),
            depth,
        })
    }

    /// Returns a reader of packed values.
    #[inline]
    pub(super) fn packed(&mut self) -> Result<Self, Malformed> {
        Ok(Self {
            bytes: varint::Reader(self.counted()?),
            depth: self.depth,
        })
    }

    /// Takes all remaining bytes.
    #[doc(hidden)]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes.0)
    }

    /// Skips an unknown field.
    ///
    /// # Errors
    /// If it is malformed.
    #[inline]
    pub fn skip(&mut self, key: Key) -> Result<(), Malformed> {
        self.bytes.0 = behind(key, self.bytes.0, self.depth)?;
        Ok(())
    }

    fn skip_at(&mut self, key: Key, depth: u32) -> Result<(), Malformed> {
        if depth == 0 {
            return Err(Malformed::Depth);
        }
        if key.number() == 0 {
            return Err(key.other_type());
        }
        if key.is(Wire::Varint) {
            self.number().map(drop)
        } else if key.is(Wire::Bits64) {
            self.bytes(8).map(drop)
        } else if key.is(Wire::Counted) {
            self.counted().map(drop)
        } else if key.is(Wire::Bits32) {
            self.bytes(4).map(drop)
        } else if key.is(Wire::Group) {
            loop {
                if self.is_empty() {
                    return Err(Malformed::Truncated);
                }
                let inner = self.key()?;
                if !inner.is(Wire::EndGroup) {
                    self.skip_at(inner, depth - 1)?;
                } else if inner.number() == key.number() {
                    return Ok(());
                } else {
                    return Err(inner.other_type());
                }
            }
        } else {
            Err(key.other_type())
        }
    }
}

/// Reads a number of more than one byte; returns it and the rest. Takes and returns values, like [`behind`]: a reader
/// whose address is not taken stays in registers.
#[inline(never)]
fn long_number(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut reader = varint::Reader(bytes);
    match reader.number() {
        Some(number) => Ok((number, reader.0)),
        None => Err(Malformed::Number),
    }
}

/// Like [`long_number`], for a key.
#[inline(never)]
fn long_key(bytes: &[u8]) -> Result<(Key, &[u8]), Malformed> {
    let (key, rest) = long_number(bytes)?;
    let key = u32::try_from(key).map_err(|_| Malformed::Number)?;
    Ok((Key(key), rest))
}

/// Returns the bytes after the field with this key.
#[cold]
fn behind(key: Key, bytes: &[u8], depth: u32) -> Result<&[u8], Malformed> {
    let bytes = varint::Reader(bytes);
    let mut reader = Reader { bytes, depth };
    reader.skip_at(key, depth)?;
    Ok(reader.bytes.0)
}

/// Writes a number of more than one byte.
#[inline(never)]
fn put_long_number(room: &mut [u8], mut value: u64) {
    let (last, first) = room.split_last_mut().expect("a number has bytes");
    for byte in first {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    *last = value as u8;
}

/// Writes a message.
#[derive(Debug)]
pub struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    /// Creates a writer into these bytes.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Takes the next `length` bytes.
    #[doc(hidden)]
    #[inline]
    pub fn room(&mut self, length: usize) -> &'a mut [u8] {
        let (room, rest) = std::mem::take(&mut self.0).split_at_mut(length);
        self.0 = rest;
        room
    }

    #[inline]
    pub(super) fn key(&mut self, number: u32, wire: Wire) {
        self.number(u64::from(number << 3 | wire as u32));
    }

    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(byte @ ..0x80) => self.room(1)[0] = byte,
            _ => put_long_number(self.room(varint::length(value)), value),
        }
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    #[inline]
    pub(super) fn counted(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes(bytes);
    }
}
