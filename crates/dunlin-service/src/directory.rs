//! The directory: the answer to a client's first request. It holds the version that both sides use, the server's
//! features, and the number of each method.
//!
//! ```text
//! question: "DLN" u8 of the question's form (1) | oldest version u16 | newest version u16 | features u64
//! answer:   form u8 | version u16 (0: none in common) | oldest u16 | newest u16 | features u64 | entries
//! entry:    length | path behind its length | number u16 | kind u8, and what later versions add
//! ```
//!
//! The forms of question and answer never change, except for additions at their ends and at the ends of entries.

use std::collections::HashMap;

use dunlin::HandlerId;

use crate::method::Kind;
use crate::varint::{self, Reader};
use crate::wire::{OLDEST_VERSION, VERSION};
use crate::Status;

const MAGIC: &[u8; 3] = b"DLN";
const FORM: u8 = 1;

/// Features of this release beyond unary calls; only those that both sides have are used.
pub(crate) mod features {
    /// Streams, carried by the push and pull calls.
    pub(crate) const STREAMS: u64 = 1;
    /// All features of this release.
    pub(crate) const ALL: u64 = STREAMS;
}

/// A method of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: HandlerId,
    pub(crate) kind: Kind,
}

/// The directory of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) version: u16,
    pub(crate) features: u64,
    pub(crate) methods: HashMap<String, Entry>,
}

/// Encodes the question of this release.
pub(crate) fn question() -> Vec<u8> {
    ask(OLDEST_VERSION, VERSION, features::ALL)
}

fn ask(oldest: u16, newest: u16, features: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(FORM);
    bytes.extend_from_slice(&oldest.to_le_bytes());
    bytes.extend_from_slice(&newest.to_le_bytes());
    bytes.extend_from_slice(&features.to_le_bytes());
    bytes
}

fn word<const N: usize>(reader: &mut Reader<'_>) -> Option<[u8; N]> {
    reader.bytes(N)?.try_into().ok()
}

/// Encodes a server's answer; `None` if `question` is malformed. `entries` are encoded by [`put_entry`].
pub(crate) fn answer(question: &[u8], entries: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(question);
    if reader.bytes(MAGIC.len())? != MAGIC || reader.byte()? != FORM {
        return None;
    }
    let oldest = u16::from_le_bytes(word(&mut reader)?);
    let newest = u16::from_le_bytes(word(&mut reader)?);
    let asked = u64::from_le_bytes(word(&mut reader)?);
    let common = newest.min(VERSION);
    let version = if common >= oldest.max(OLDEST_VERSION) {
        common
    } else {
        0
    };
    let mut bytes = vec![FORM];
    for number in [version, OLDEST_VERSION, VERSION] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(asked & features::ALL).to_le_bytes());
    if version != 0 {
        bytes.extend_from_slice(entries);
    }
    Some(bytes)
}

/// Appends a method to the entries of an answer.
pub(crate) fn put_entry(entries: &mut Vec<u8>, path: &str, entry: Entry) {
    let mut bytes = Vec::new();
    varint::put_counted(&mut bytes, path.as_bytes());
    bytes.extend_from_slice(&entry.number.to_le_bytes());
    bytes.push(entry.kind as u8);
    varint::put_counted(entries, &bytes);
}

impl Directory {
    /// Decodes a server's answer.
    ///
    /// # Errors
    /// If the two sides have no version in common, or the answer is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Status> {
        let wrong = || Status::internal("malformed directory from the server");
        let mut reader = Reader(bytes);
        let form = reader.byte().ok_or_else(wrong)?;
        let mut number = || word(&mut reader).map(u16::from_le_bytes).ok_or_else(wrong);
        let (version, oldest, newest) = (number()?, number()?, number()?);
        if form != FORM || !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(Status::failed_precondition(format!(
                "the server supports versions {oldest} to {newest} of typed services, but this client supports \
                 {OLDEST_VERSION} to {VERSION}: update the older side"
            )));
        }
        let features = u64::from_le_bytes(word(&mut reader).ok_or_else(wrong)?);
        let mut methods = HashMap::new();
        while !reader.is_empty() {
            let mut entry = Reader(reader.counted().ok_or_else(wrong)?);
            let path = entry.words().ok_or_else(wrong)?;
            let number = word(&mut entry)
                .map(HandlerId::from_le_bytes)
                .ok_or_else(wrong)?;
            let kind = entry.byte().ok_or_else(wrong)?;
            // A method of a kind added by a later version cannot be called by this client.
            if let Some(kind) = Kind::from_number(kind) {
                methods.insert(path.to_owned(), Entry { number, kind });
            }
        }
        Ok(Self {
            version,
            features,
            methods,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use proptest::prelude::*;

    fn entries() -> Vec<u8> {
        let mut entries = Vec::new();
        put_entry(
            &mut entries,
            "/a.B/C",
            Entry {
                number: 1032,
                kind: Kind::Unary,
            },
        );
        put_entry(
            &mut entries,
            "/a.B/D",
            Entry {
                number: 1033,
                kind: Kind::Bidirectional,
            },
        );
        entries
    }

    #[test]
    fn a_client_learns_names_and_numbers() {
        let directory = Directory::decode(&answer(&question(), &entries()).unwrap()).unwrap();
        assert_eq!(
            (directory.version, directory.features),
            (VERSION, features::ALL)
        );
        let entry = directory.methods["/a.B/D"];
        assert_eq!(
            entry,
            Entry {
                number: 1033,
                kind: Kind::Bidirectional
            }
        );
        assert_eq!(directory.methods.len(), 2);
    }

    #[test]
    fn a_later_client_is_answered_in_the_version_that_both_speak() {
        let mut later = ask(1, 7, u64::MAX);
        later.extend_from_slice(b"what is added at the end");
        let directory = Directory::decode(&answer(&later, &entries()).unwrap()).unwrap();
        assert_eq!(
            (directory.version, directory.features),
            (VERSION, features::ALL)
        );
    }

    #[test]
    fn without_a_common_version_the_client_says_which_there_are() {
        let refused = Directory::decode(&answer(&ask(6, 7, 0), &entries()).unwrap());
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("versions 1 to 1"), "{status}");
        assert_eq!(answer(b"something else", &[]), None);
    }

    #[test]
    fn what_a_later_server_adds_is_left_out() {
        let mut bytes = answer(&question(), &entries()).unwrap();
        let mut more = Vec::new();
        varint::put_counted(&mut more, b"/a.B/E");
        more.extend_from_slice(&[9, 4, 200, 1, 2, 3]);
        varint::put_counted(&mut bytes, &more);
        assert_eq!(Directory::decode(&bytes).unwrap().methods.len(), 2);
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(any: Vec<u8>) {
            let _ = Directory::decode(&any);
            let _ = answer(&any, &[]);
        }
    }
}
