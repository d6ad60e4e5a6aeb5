//! Decoding of a peer's bytes, and its errors.
use crate::types::{Key, KeyTooLong};

/// Bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message is too short.
    #[error("truncated message: it ends within a field")]
    Short,
    /// There are extra bytes.
    #[error("{0} trailing bytes after a message")]
    Long(usize),
    /// An unknown kind.
    #[error("unknown kind of message {0}")]
    Kind(u8),
    /// A count above the limit, or higher than the bytes could hold.
    #[error("count {0} exceeds the limit or the length of the message")]
    Count(u32),
    /// A flag that is neither 0 nor 1.
    #[error("invalid flag {0}")]
    Flag(u8),
    /// A version above the maximum.
    #[error("version above the maximum")]
    Version,
    /// A step of 0, or a sequence of 0.
    #[error("steps and sequence numbers start with 1")]
    Zero,
    /// A key that is too long.
    #[error(transparent)]
    Key(#[from] KeyTooLong),
}

/// A cursor on the bytes.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader { rest }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Flag(other)),
        }
    }

    pub(crate) fn key(&mut self) -> Result<Key, WireError> {
        let table = self.u16()?;
        let length = self.u16()?;
        Ok(Key::new(table, self.bytes(usize::from(length))?)?)
    }

    /// Reads a list of items of at least `least` bytes each, with as many items as a coordinator's request may have.
    pub(crate) fn list<T>(
        &mut self,
        least: usize,
        item: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        self.list_of(super::MAX_ITEMS, least, item)
    }

    /// Reads a list of at most `most` items of at least `least` bytes each.
    pub(crate) fn list_of<T>(
        &mut self,
        most: usize,
        least: usize,
        item: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.u32()?;
        let fits = self.rest.len() / least;
        if count as usize > most.min(fits) {
            return Err(WireError::Count(count));
        }
        let mut items = Vec::with_capacity(count as usize);
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(WireError::Long(left)),
        }
    }
}
