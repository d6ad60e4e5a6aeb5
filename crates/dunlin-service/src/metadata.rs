//! Metadata of calls: names and values sent with a message, like HTTP headers, including the W3C trace context.

use std::fmt;

use crate::varint::{self, Reader};
use crate::Status;

/// Maximum total size of all names and values of a call, in bytes; the same as gRPC's default.
pub const MAX_METADATA_BYTES: usize = 8 << 10;
/// The name of the trace context (<https://www.w3.org/TR/trace-context/>).
pub const TRACEPARENT: &str = "traceparent";
/// Suffix of names whose values may contain any bytes.
const BINARY: &str = "-bin";

/// Names and values, in the order in which they were added. A name may occur several times. Names are in lower case
/// (`a-z`, `0-9`, `-`, `_`, `.`); values are printable ASCII, or any bytes where the name ends with `-bin`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MetadataMap(Vec<(Box<str>, Box<[u8]>)>);

/// An invalid name or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The name contains an invalid character.
    #[error("invalid metadata name '{0}': only a-z, 0-9, '-', '_' and '.' are allowed")]
    Name(String),
    /// The value contains an invalid byte.
    #[error("invalid value of metadata '{0}': it must be printable ASCII, unless the name ends with -bin")]
    Value(String),
    /// All names and values together are too long.
    #[error("metadata too long: {0} bytes, the limit is {MAX_METADATA_BYTES}")]
    TooLong(usize),
}

impl MetadataMap {
    /// Creates empty metadata.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there are no values.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a value, in addition to any others of that name.
    ///
    /// # Errors
    /// If the name or the value is invalid.
    pub fn append(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), MetadataError> {
        let (name, value) = (name.into(), value.into());
        check(&name, &value)?;
        self.0.push((name.into(), value.into()));
        Ok(())
    }

    /// Sets a value, replacing any others of that name.
    ///
    /// # Errors
    /// As for [`MetadataMap::append`].
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), MetadataError> {
        let name = name.into();
        let value = value.into();
        check(&name, &value)?;
        self.remove(&name);
        self.0.push((name.into(), value.into()));
        Ok(())
    }

    /// Removes all values of a name; returns whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(other, _)| **other != *name);
        self.0.len() != before
    }

    /// The first value of a name, as text.
    pub fn get(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The first value of a name, as bytes.
    pub fn get_bytes(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// All values of a name.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// Iterates over all names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Removes all values.
    #[inline]
    pub fn clear(&mut self) {
        // Usually there are none, and the cost of the call to clear them is noticeable.
        if !self.0.is_empty() {
            self.0.clear();
        }
    }

    /// The W3C trace context, if there is a well-formed one.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.get(TRACEPARENT)?.parse().ok()
    }

    /// Sets the W3C trace context.
    pub fn set_trace_context(&mut self, context: &TraceContext) {
        self.remove(TRACEPARENT);
        self.0
            .push((TRACEPARENT.into(), context.to_string().into_bytes().into()));
    }

    /// Appends the encoded metadata.
    pub(crate) fn encode(&self, target: &mut Vec<u8>) {
        for (name, value) in &self.0 {
            varint::put_counted(target, name.as_bytes());
            varint::put_counted(target, value);
        }
    }

    /// Checks the total size.
    pub(crate) fn check_length(&self) -> Result<(), MetadataError> {
        let bytes: usize = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        match bytes <= MAX_METADATA_BYTES {
            true => Ok(()),
            false => Err(MetadataError::TooLong(bytes)),
        }
    }

    /// Checks whether the metadata may be sent.
    ///
    /// # Errors
    /// If it is too long.
    pub(crate) fn check_sendable(&self) -> Result<(), Status> {
        self.check_length()
            .map_err(|error| Status::resource_exhausted(error.to_string()))
    }

    /// Decodes metadata received from a peer.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // The shortest entries, a name of one byte without a value, have two length bytes in addition.
        if bytes.len() > 4 * MAX_METADATA_BYTES {
            return None;
        }
        let mut map = Self::new();
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let (name, value) = (reader.words()?, reader.counted()?);
            map.append(name, value).ok()?;
        }
        map.check_length().ok()?;
        Some(map)
    }
}

fn check(name: &str, value: &[u8]) -> Result<(), MetadataError> {
    let of_names = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    if name.is_empty() || !name.bytes().all(of_names) {
        return Err(MetadataError::Name(name.to_owned()));
    }
    if !name.ends_with(BINARY) && !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(MetadataError::Value(name.to_owned()));
    }
    Ok(())
}

impl fmt::Debug for MetadataMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        f.debug_map()
            .entries(
                self.iter()
                    .map(|(name, value)| (name.to_owned(), words(value))),
            )
            .finish()
    }
}

/// The trace to which a call belongs: the W3C `traceparent` of version 00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, common to all of its calls; not zero.
    pub trace_id: u128,
    /// The caller's span; not zero.
    pub parent_id: u64,
    /// Whether the caller records the trace.
    pub sampled: bool,
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(
            f,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace_id, self.parent_id
        )
    }
}

impl std::str::FromStr for TraceContext {
    type Err = MetadataError;

    fn from_str(text: &str) -> Result<Self, MetadataError> {
        let wrong = || MetadataError::Value(TRACEPARENT.to_owned());
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        let parts: Vec<&str> = text.split('-').collect();
        let &[version, trace, parent, flags, ..] = parts.as_slice() else {
            return Err(wrong());
        };
        // Later versions may have more parts.
        let known = version == "00" && parts.len() == 4 || version != "00" && version != "ff";
        let lengths = [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2];
        if !known || !lengths || !text.bytes().all(is_hex) {
            return Err(wrong());
        }
        let trace_id = u128::from_str_radix(trace, 16).map_err(|_| wrong())?;
        let parent_id = u64::from_str_radix(parent, 16).map_err(|_| wrong())?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| wrong())?;
        match trace_id != 0 && parent_id != 0 {
            true => Ok(Self {
                trace_id,
                parent_id,
                sampled: flags & 1 == 1,
            }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_values_are_checked() {
        let mut map = MetadataMap::new();
        map.append("x-user", "ada").unwrap();
        map.append("x-user", "bob").unwrap();
        map.insert("x-key-bin", vec![0, 255]).unwrap();
        assert_eq!(map.get("x-user"), Some("ada"));
        assert_eq!(map.get_all("x-user").count(), 2);
        assert_eq!(map.get_bytes("x-key-bin"), Some(&[0, 255][..]));
        assert!(matches!(
            map.append("X-User", "a"),
            Err(MetadataError::Name(_))
        ));
        assert!(matches!(map.append("", "a"), Err(MetadataError::Name(_))));
        assert!(matches!(
            map.append("x", "\n"),
            Err(MetadataError::Value(_))
        ));
        map.insert("x-user", "eve").unwrap();
        assert_eq!(map.get_all("x-user").count(), 1);
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        assert_eq!(MetadataMap::decode(&bytes), Some(map.clone()));
        map.append("long", "a".repeat(MAX_METADATA_BYTES)).unwrap();
        assert!(matches!(map.check_length(), Err(MetadataError::TooLong(_))));
    }

    #[test]
    fn trace_contexts_are_those_of_the_recommendation() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), text);
        let wrong = [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ];
        for text in wrong {
            assert!(text.parse::<TraceContext>().is_err(), "{text}");
        }
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more";
        assert!(later.parse::<TraceContext>().is_err(), "'m' is no digit");
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(any: Vec<u8>) {
            let _ = MetadataMap::decode(&any);
        }
    }
}
