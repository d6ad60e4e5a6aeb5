//! The headers of unary calls, and the version of the wire format (`docs/services.md`, *wire*).
//!
//! ```text
//! request: word u32 (flags 8 bits | check 24) | header, if a flag says so, behind its length | message
//! answer:  0 | message;  1 | header | message;  2 | status;  3 (the number is another method's)
//! header:  field: tag u8 | length | bytes, and so on; unknown fields are left out
//! status:  code u8 | message | details | metadata, the first two behind their lengths
//! ```

use std::time::{Duration, Instant};

use dunlin::thread;

use crate::varint::{self, Reader};
use crate::{Code, MetadataMap, Status};

/// The versions that this release speaks.
pub(crate) const OLDEST_VERSION: u16 = 1;
/// See [`OLDEST_VERSION`].
pub(crate) const VERSION: u16 = 1;

/// Handler numbers: the directory, and the two calls of streams. The methods follow.
pub(crate) const DIRECTORY: dunlin::HandlerId = 1024;
pub(crate) const PUSH: dunlin::HandlerId = 1025;
pub(crate) const PULL: dunlin::HandlerId = 1026;
/// Some numbers are reserved for later versions.
pub(crate) const FIRST_METHOD: dunlin::HandlerId = 1032;

/// Flag in the word of a request: a header precedes the message.
const HAS_HEADER: u32 = 1;
/// Fields of a header.
const DEADLINE: u8 = 1;
const METADATA: u8 = 2;

/// First byte of an answer.
pub(crate) const MESSAGE: u8 = 0;
const MESSAGE_WITH_HEADER: u8 = 1;
const STATUS: u8 = 2;
const OTHER_METHOD: u8 = 3;

/// The header of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Time left when it is sent.
    pub(crate) timeout: Option<Duration>,
    pub(crate) metadata: MetadataMap,
}

impl Header {
    pub(crate) fn is_empty(&self) -> bool {
        self.timeout.is_none() && self.metadata.is_empty()
    }

    pub(crate) fn encode(&self, target: &mut Vec<u8>) {
        if let Some(timeout) = self.timeout {
            let micros = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
            target.push(DEADLINE);
            varint::put(target, varint::length(micros) as u64);
            varint::put(target, micros);
        }
        if !self.metadata.is_empty() {
            let mut metadata = Vec::new();
            self.metadata.encode(&mut metadata);
            target.push(METADATA);
            varint::put_counted(target, &metadata);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut header = Self::default();
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let (tag, field) = (reader.byte()?, reader.counted()?);
            match tag {
                DEADLINE => {
                    let micros = Reader(field).number()?;
                    header.timeout = Some(Duration::from_micros(micros));
                }
                METADATA => header.metadata = MetadataMap::decode(field)?,
                _ => {}
            }
        }
        Some(header)
    }

    /// When the caller stops waiting, counted from now.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        thread::now().checked_add(self.timeout?)
    }
}

/// Writes the beginning of a request: its word, and its header if there is one.
#[inline]
pub(crate) fn begin_request(target: &mut Vec<u8>, check: u32, header: Option<&Header>) {
    let Some(header) = header.filter(|header| !header.is_empty()) else {
        target.extend_from_slice(&check.to_le_bytes());
        return;
    };
    target.extend_from_slice(&(check | HAS_HEADER).to_le_bytes());
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    varint::put_counted(target, &bytes);
}

/// Size of the word before a request, in bytes.
pub(crate) const WORD_BYTES: usize = 4;

/// Writes the word of a request without a header, and returns the rest of `target`, for the message.
///
/// # Panics
/// If there is no room for the word.
#[inline]
pub(crate) fn begin_bare(target: &mut [u8], check: u32) -> &mut [u8] {
    let (word, message) = target.split_first_chunk_mut().expect("room for a word");
    *word = check.to_le_bytes();
    message
}

/// A decoded request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked<'a> {
    /// A message without a header.
    Bare(&'a [u8]),
    With(Box<Header>, &'a [u8]),
    /// The request is for another method.
    OtherMethod,
    /// The request is malformed.
    Malformed,
}

/// Decodes a request for the method with this check.
#[inline]
pub(crate) fn read_request(bytes: &[u8], check: u32) -> Asked<'_> {
    match bytes.split_first_chunk::<WORD_BYTES>() {
        Some((word, message)) if u32::from_le_bytes(*word) == check => Asked::Bare(message),
        Some((word, rest)) => read_with_header(u32::from_le_bytes(*word), rest, check),
        None => Asked::Malformed,
    }
}

#[cold]
fn read_with_header(word: u32, rest: &[u8], check: u32) -> Asked<'_> {
    if word & !0xff != check {
        return Asked::OtherMethod;
    }
    let mut reader = Reader(rest);
    // Flags unknown to this version change the meaning of what follows.
    if word & 0xff != HAS_HEADER {
        return Asked::Malformed;
    }
    match reader.counted().and_then(Header::decode) {
        Some(header) => Asked::With(Box::new(header), reader.0),
        None => Asked::Malformed,
    }
}

/// The beginning of an answer with metadata, before its message.
pub(crate) fn begin_answer(metadata: &MetadataMap) -> Vec<u8> {
    let mut bytes = Vec::new();
    metadata.encode(&mut bytes);
    let mut answer = vec![MESSAGE_WITH_HEADER];
    varint::put_counted(&mut answer, &bytes);
    answer
}

/// An answer without a message.
pub(crate) fn status_answer(status: &Status) -> Vec<u8> {
    let mut answer = vec![STATUS];
    put_status(&mut answer, status);
    answer
}

/// The answer to a request for another method.
pub(crate) fn other_method_answer() -> Vec<u8> {
    vec![OTHER_METHOD]
}

/// Appends a status.
pub(crate) fn put_status(target: &mut Vec<u8>, status: &Status) {
    target.push(status.code() as u8);
    varint::put_counted(target, status.message().as_bytes());
    varint::put_counted(target, status.details());
    status.metadata().encode(target);
}

/// Reads a status.
pub(crate) fn read_status(bytes: &[u8]) -> Option<Status> {
    let mut reader = Reader(bytes);
    let code = Code::from_number(u32::from(reader.byte()?));
    let message = String::from_utf8_lossy(reader.counted()?).into_owned();
    let details = reader.counted()?.to_vec();
    let metadata = MetadataMap::decode(reader.0)?;
    Some(Status::with_details_and_metadata(code, message, details, metadata).answered())
}

/// A decoded answer.
#[derive(Debug)]
pub(crate) enum Answered<'a> {
    Message(&'a [u8]),
    With(MetadataMap, &'a [u8]),
    Status(Status),
    OtherMethod,
}

/// Decodes an answer.
///
/// # Errors
/// If the answer is malformed.
#[inline]
pub(crate) fn read_answer(bytes: &[u8]) -> Result<Answered<'_>, Status> {
    match bytes.split_first() {
        Some((&MESSAGE, message)) => Ok(Answered::Message(message)),
        _ => read_other_answer(bytes).ok_or_else(|| Status::internal("malformed response")),
    }
}

#[cold]
fn read_other_answer(bytes: &[u8]) -> Option<Answered<'_>> {
    let mut reader = Reader(bytes);
    match reader.byte()? {
        MESSAGE_WITH_HEADER => {
            let metadata = MetadataMap::decode(reader.counted()?)?;
            Some(Answered::With(metadata, reader.0))
        }
        STATUS => read_status(reader.0).map(Answered::Status),
        OTHER_METHOD => Some(Answered::OtherMethod),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHECK: u32 = 0xabcd_ef00;

    fn header() -> Header {
        let mut header = Header {
            timeout: Some(Duration::from_millis(250)),
            ..Header::default()
        };
        header.metadata.append("x-user", "ada").unwrap();
        header
    }

    #[test]
    fn requests_say_which_method_they_are_for() {
        let mut bare = Vec::new();
        begin_request(&mut bare, CHECK, None);
        bare.extend_from_slice(b"hello");
        assert_eq!(bare.len(), 9);
        assert_eq!(read_request(&bare, CHECK), Asked::Bare(b"hello"));
        assert_eq!(read_request(&bare, CHECK + 0x100), Asked::OtherMethod);
        let mut with = Vec::new();
        begin_request(&mut with, CHECK, Some(&header()));
        with.extend_from_slice(b"hello");
        assert_eq!(
            read_request(&with, CHECK),
            Asked::With(Box::new(header()), b"hello")
        );
        assert_eq!(read_request(&with, CHECK + 0x100), Asked::OtherMethod);
        with[0] |= 0x40;
        assert_eq!(
            read_request(&with, CHECK),
            Asked::Malformed,
            "a flag of a later version"
        );
        assert_eq!(read_request(b"abc", CHECK), Asked::Malformed);
    }

    #[test]
    fn what_a_later_version_adds_to_a_header_is_left_out() {
        let mut bytes = Vec::new();
        header().encode(&mut bytes);
        bytes.push(200);
        varint::put_counted(&mut bytes, b"news");
        assert_eq!(Header::decode(&bytes), Some(header()));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(any: Vec<u8>) {
            let _ = read_request(&any, CHECK);
            let _ = read_answer(&any);
            let _ = read_with_header(CHECK | 1, &any, CHECK);
            let _ = read_status(&any);
        }

        #[test]
        fn a_status_comes_back(code in 0u32..20, message: String, details: Vec<u8>) {
            let status = Status::with_details(Code::from_number(code), message, details);
            let answer = status_answer(&status);
            let Answered::Status(back) = read_answer(&answer).unwrap() else {
                panic!("a status");
            };
            prop_assert_eq!(back.code(), status.code());
            prop_assert_eq!(back.message(), status.message());
            prop_assert_eq!(back.details(), status.details());
        }
    }
}
