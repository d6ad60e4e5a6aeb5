//! The messages between a callable client and its server. Requests and responses of the handshake are carried as they
//! are, and parsed by the same functions, which validate their contents.

use serde::{Deserialize, Serialize};

use crate::HandlerId;

/// The handler by which clients make themselves callable; servers cannot use this id for a handler of their own. With
/// [`crate::Rights`] a client needs a [`crate::Grant::call`] of it.
pub const CALLBACKS: HandlerId = HandlerId::MAX - 5;

/// The parameter by which a client states the number that its server knows it by, the same for all its connections. It
/// is random and sent to its server only, so no other client can impersonate it.
pub(crate) const CLIENT_PARAMETER: &str = "client";

/// The version of these messages. Another version is refused.
const VERSION: u8 = 1;

/// A request of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask<'a> {
    /// To be callable. Answered only when that ends.
    Stay { version: u8 },
    /// What to open next, with the result of the last request to open a connection.
    Next {
        #[serde(borrow)]
        opened: Option<Opened<'a>>,
    },
    /// No longer to be callable. All outstanding calls to the client from here are answered.
    Leave,
}

/// Whether a connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened<'a> {
    pub(crate) serial: u32,
    /// The fourth frame of a handshake, without a proof.
    pub(crate) reply: &'a [u8],
}

/// The server's answer to [`Ask::Next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told<'a> {
    /// The client is registered.
    Welcome,
    /// The server requests a connection.
    Open {
        serial: u32,
        /// The third frame of a handshake, without a proof.
        request: &'a [u8],
    },
}

impl<'a> Ask<'a> {
    pub(crate) const STAY: Self = Self::Stay { version: VERSION };
    pub(crate) const NEXT: Self = Self::Next { opened: None };

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes what a client has written.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        match decode(bytes)? {
            Self::Stay { version } if version != VERSION => Err(format!(
                "callbacks of version {version} are not supported: this server supports version {VERSION}"
            )),
            ask => Ok(ask),
        }
    }
}

impl<'a> Told<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Decodes what a server has written.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // The output grows as needed; every value of these types can be encoded.
    postcard::to_allocvec(message).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err("callbacks: trailing bytes after the message".to_owned()),
        Err(error) => Err(format!("callbacks: {error}")),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_arrive_as_they_were_said() {
        let opened = Opened {
            serial: 7,
            reply: b"reply",
        };
        let asks = [
            Ask::STAY,
            Ask::NEXT,
            Ask::Next {
                opened: Some(opened),
            },
            Ask::Leave,
        ];
        for ask in asks {
            assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
        }
        let open = Told::Open {
            serial: u32::MAX,
            request: b"request",
        };
        for told in [Told::Welcome, open] {
            assert_eq!(Told::decode(&told.encode()), Ok(told));
        }
        let other = Ask::Stay { version: 2 }.encode();
        assert!(Ask::decode(&other).unwrap_err().contains("version 2"));
        let longer = [Ask::NEXT.encode(), vec![0]].concat();
        assert!(Ask::decode(&longer).unwrap_err().contains("trailing bytes"));
        assert!(Ask::decode(&[]).is_err() && Told::decode(&[9]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_words_or_an_error(bytes: Vec<u8>) {
            if let Ok(ask) = Ask::decode(&bytes) {
                let again = ask.encode();
                prop_assert_eq!(Ask::decode(&again), Ok(ask));
            }
            if let Ok(told) = Told::decode(&bytes) {
                let again = told.encode();
                prop_assert_eq!(Told::decode(&again), Ok(told));
            }
        }
    }
}
