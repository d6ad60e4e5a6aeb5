//! What a callable client and its server say to each other. Questions and answers of the handshake cross as they do
//! there, and are read by the same functions, which check what they hold.

use serde::{Deserialize, Serialize};

use crate::HandlerId;

/// The handler by which clients let themselves be called; servers cannot give this id to a handler of their own. With
/// [`crate::Rights`] a client needs a [`crate::Grant::call`] of it.
pub const CALLBACKS: HandlerId = HandlerId::MAX - 5;

/// The name by which a client tells the number that its server knows it by: all its connections have the same. Drawn
/// at random and told to its server alone, so nobody else passes for it.
pub(crate) const CLIENT_PARAMETER: &str = "client";

/// The version of these words. Another is refused.
const VERSION: u8 = 1;

/// What the client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask<'a> {
    /// To be called. Not answered while it is.
    Stay { version: u8 },
    /// What to open next, and what became of what it was last asked to open.
    Next {
        #[serde(borrow)]
        opened: Option<Opened<'a>>,
    },
    /// To be called no more. All calls of the client that are out here are answered.
    Leave,
}

/// A connection was opened, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened<'a> {
    pub(crate) serial: u32,
    /// As the fourth frame of a handshake, without a proof.
    pub(crate) reply: &'a [u8],
}

/// What the server answers to [`Ask::Next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told<'a> {
    /// The client is registered.
    Welcome,
    /// A connection is wanted.
    Open {
        serial: u32,
        /// As the third frame of a handshake, without a proof.
        request: &'a [u8],
    },
}

impl<'a> Ask<'a> {
    pub(crate) const STAY: Self = Self::Stay { version: VERSION };
    pub(crate) const NEXT: Self = Self::Next { opened: None };

    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what a client has written.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        match decode(bytes)? {
            Self::Stay { version } if version != VERSION => Err(format!(
                "callbacks of version {version}: this server knows version {VERSION}"
            )),
            ask => Ok(ask),
        }
    }
}

impl<'a> Told<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what a server has written.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // Into memory that grows; nothing of these types is without an encoding.
    postcard::to_allocvec(message).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err("callbacks: there are bytes behind the message".to_owned()),
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
        assert!(Ask::decode(&longer).unwrap_err().contains("behind"));
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
