//! Reading of a peer's bytes, and why they were not understood.
use crate::types::{Key, KeyTooLong};

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends too early.
    #[error("a message ends within a field")]
    Short,
    /// Bytes are left over.
    #[error("{0} bytes follow a message")]
    Long(usize),
    /// A kind that there is not.
    #[error("{0} is no kind of message")]
    Kind(u8),
    /// A count above the limit or above what the bytes could hold.
    #[error("a count of {0} is more than the limit or than the message holds")]
    Count(u32),
    /// A flag that is neither 0 nor 1.
    #[error("a flag is {0}")]
    Flag(u8),
    /// A version above the highest.
    #[error("a version is above the highest")]
    Version,
    /// A step of 0, or a sequence of 0.
    #[error("steps and sequence numbers begin with 1")]
    Zero,
    /// A key above the limit.
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

    /// So many items of at least `least` bytes each, as a request of a coordinator may have.
    pub(crate) fn list<T>(
        &mut self,
        least: usize,
        item: impl Fn(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        self.list_of(super::MAX_ITEMS, least, item)
    }

    /// At most `most` items of at least `least` bytes each.
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

    /// All that is left.
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
