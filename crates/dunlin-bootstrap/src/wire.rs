//! Frames to bytes and back: pure functions, the only place where bytes of a stranger are read.
//!
//! On the stream every frame is preceded by its length, a little-endian `u32`. The two hellos begin with the magic
//! and the version, laid out so for all versions, so that versions that share nothing else can still tell so:
//!
//! ```text
//! client hello   magic 8 | version u16 | ClientHello
//! server hello   magic 8 | version u16 | proof | ServerHello     (ends after the version if the client's is another)
//! open           proof | ClientOpen
//! open reply     proof | ServerReply
//! proof          0, or 1 and 32 bytes
//! ```
//!
//! Messages are in postcard's encoding. A frame that does not end where its message ends is refused, and so is
//! one with too many entries or with names that are too long or not printable.

use serde::de::DeserializeOwned;
use serde::Serialize;

use crate::checks::{check_client_hello, check_open, check_reply, check_server_hello};
pub use crate::limits::{MAX_CAPABILITIES, MAX_KNOWN, MAX_PARAMETERS, NAME_BYTES, TEXT_BYTES};
pub use crate::message::{
    ClientHello, ClientOpen, Outcome, Proved, ServerHello, ServerReply, NONCE_BYTES,
};
pub use crate::parse_error::ParseError;
pub use crate::prefix::{MAGIC, PREFIX_BYTES, VERSION};
use crate::secret::{Proof, PROOF_BYTES};

/// Largest frame, in bytes: more than all the limits of a message together come to.
pub const MAX_FRAME: usize = 16 * 1024;

/// Magic and version.
fn prefix() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes
}

fn body<T: Serialize>(message: &T) -> Result<Vec<u8>, ParseError> {
    postcard::to_allocvec(message).map_err(|_| ParseError::Malformed)
}

fn message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(ParseError::Trailing),
        Err(_) => Err(ParseError::Malformed),
    }
}

/// Puts a proof before the words of a frame.
pub(crate) fn with_proof(proof: Option<&Proof>, words: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + PROOF_BYTES + words.len());
    bytes.push(u8::from(proof.is_some()));
    if let Some(proof) = proof {
        bytes.extend_from_slice(proof);
    }
    bytes.extend_from_slice(words);
    bytes
}

/// Parts a frame into its proof and its words.
pub(crate) fn split_proof(bytes: &[u8]) -> Result<(Option<Proof>, &[u8]), ParseError> {
    match bytes.split_first() {
        Some((0, words)) => Ok((None, words)),
        Some((1, rest)) => {
            let (proof, words) = rest.split_first_chunk().ok_or(ParseError::Malformed)?;
            Ok((Some(*proof), words))
        }
        _ => Err(ParseError::Malformed),
    }
}

/// Checks magic and version and returns what is behind them.
pub(crate) fn check_prefix(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(ParseError::NotDunlin)?;
    let (version, rest) = rest.split_first_chunk().ok_or(ParseError::NotDunlin)?;
    match u16::from_le_bytes(*version) {
        VERSION => Ok(rest),
        theirs => Err(ParseError::Version { theirs }),
    }
}

/// Writes the first frame, without its length.
///
/// # Errors
/// When a limit of this module is broken.
pub fn encode_client_hello(hello: &ClientHello) -> Result<Vec<u8>, ParseError> {
    check_client_hello(hello)?;
    Ok([prefix(), body(hello)?].concat())
}

/// Reads the first frame, without its length.
///
/// # Errors
/// When it is not one.
pub fn parse_client_hello(frame: &[u8]) -> Result<ClientHello, ParseError> {
    let hello = message(check_prefix(frame)?)?;
    check_client_hello(&hello)?;
    Ok(hello)
}

/// The words of the second frame, which its proof is over.
pub(crate) fn server_hello_words(hello: &ServerHello) -> Result<Vec<u8>, ParseError> {
    check_server_hello(hello)?;
    body(hello)
}

/// Puts magic, version and proof before the words of a server's hello.
pub(crate) fn server_hello_frame(proof: Option<&Proof>, words: &[u8]) -> Vec<u8> {
    [prefix(), with_proof(proof, words)].concat()
}

/// What a server says to a client of another version: its own, and no more.
pub(crate) fn version_frame() -> Vec<u8> {
    prefix()
}

/// Writes the second frame, without its length.
///
/// # Errors
/// When a limit of this module is broken.
pub fn encode_server_hello(hello: &Proved<ServerHello>) -> Result<Vec<u8>, ParseError> {
    let words = server_hello_words(&hello.message)?;
    Ok(server_hello_frame(hello.proof.as_ref(), &words))
}

/// Reads the second frame, without its length.
///
/// # Errors
/// When it is not one.
pub fn parse_server_hello(frame: &[u8]) -> Result<Proved<ServerHello>, ParseError> {
    let (proof, words) = split_proof(check_prefix(frame)?)?;
    let hello = message(words)?;
    check_server_hello(&hello)?;
    Ok(Proved {
        proof,
        message: hello,
    })
}

/// The words of the third frame, which its proof is over.
pub(crate) fn open_words(open: &ClientOpen) -> Result<Vec<u8>, ParseError> {
    check_open(open)?;
    body(open)
}

/// Writes the third frame, without its length.
///
/// # Errors
/// When a limit of this module is broken.
pub fn encode_open(open: &Proved<ClientOpen>) -> Result<Vec<u8>, ParseError> {
    Ok(with_proof(open.proof.as_ref(), &open_words(&open.message)?))
}

/// Reads the third frame, without its length.
///
/// # Errors
/// When it is not one.
pub fn parse_open(frame: &[u8]) -> Result<Proved<ClientOpen>, ParseError> {
    let (proof, words) = split_proof(frame)?;
    let open = message(words)?;
    check_open(&open)?;
    Ok(Proved {
        proof,
        message: open,
    })
}

/// The words of the fourth frame, which its proof is over.
pub(crate) fn open_reply_words(reply: &ServerReply) -> Result<Vec<u8>, ParseError> {
    check_reply(reply)?;
    body(reply)
}

/// Writes the fourth frame, without its length.
///
/// # Errors
/// When a limit of this module is broken.
pub fn encode_open_reply(reply: &Proved<ServerReply>) -> Result<Vec<u8>, ParseError> {
    Ok(with_proof(
        reply.proof.as_ref(),
        &open_reply_words(&reply.message)?,
    ))
}

/// Reads the fourth frame, without its length.
///
/// # Errors
/// When it is not one.
pub fn parse_open_reply(frame: &[u8]) -> Result<Proved<ServerReply>, ParseError> {
    let (proof, words) = split_proof(frame)?;
    let reply = message(words)?;
    check_reply(&reply)?;
    Ok(Proved {
        proof,
        message: reply,
    })
}
