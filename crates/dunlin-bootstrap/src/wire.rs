//! Encoding and decoding of frames: pure functions, and the only place where an unauthenticated client's bytes are
//! parsed.
//!
//! On the stream every frame is preceded by its length, a little-endian `u32`. The two hellos begin with the magic and
//! the version, in the same layout in all versions, so that versions that have nothing else in common still recognize
//! each other:
//!
//! ```text
//! client hello   magic 8 | version u16 | ClientHello
//! server hello   magic 8 | version u16 | proof | ServerHello     (ends after the version if the client's is another)
//! open           proof | ClientOpen
//! open reply     proof | ServerReply
//! proof          0, or 1 and 32 bytes
//! ```
//!
//! Messages are encoded by postcard. A frame with bytes after its message is refused, and so is one with too many
//! entries or with names that are too long or not printable.

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

/// Maximum length of a frame in bytes: more than all limits on a message add up to.
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

/// Prepends a proof to the contents of a frame.
pub(crate) fn with_proof(proof: Option<&Proof>, words: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + PROOF_BYTES + words.len());
    bytes.push(u8::from(proof.is_some()));
    if let Some(proof) = proof {
        bytes.extend_from_slice(proof);
    }
    bytes.extend_from_slice(words);
    bytes
}

/// Splits a frame into its proof and its contents.
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

/// Checks magic and version and returns what follows them.
pub(crate) fn check_prefix(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(ParseError::NotDunlin)?;
    let (version, rest) = rest.split_first_chunk().ok_or(ParseError::NotDunlin)?;
    match u16::from_le_bytes(*version) {
        VERSION => Ok(rest),
        theirs => Err(ParseError::Version { theirs }),
    }
}

/// Encodes the first frame, without its length.
///
/// # Errors
/// When a limit of this module is violated.
pub fn encode_client_hello(hello: &ClientHello) -> Result<Vec<u8>, ParseError> {
    check_client_hello(hello)?;
    Ok([prefix(), body(hello)?].concat())
}

/// Decodes the first frame, without its length.
///
/// # Errors
/// When it is not valid.
pub fn parse_client_hello(frame: &[u8]) -> Result<ClientHello, ParseError> {
    let hello = message(check_prefix(frame)?)?;
    check_client_hello(&hello)?;
    Ok(hello)
}

/// The contents of the second frame, which its proof covers.
pub(crate) fn server_hello_words(hello: &ServerHello) -> Result<Vec<u8>, ParseError> {
    check_server_hello(hello)?;
    body(hello)
}

/// Prepends magic, version and proof to the contents of a server's hello.
pub(crate) fn server_hello_frame(proof: Option<&Proof>, words: &[u8]) -> Vec<u8> {
    [prefix(), with_proof(proof, words)].concat()
}

/// A server's answer to a client of another version: only its own version.
pub(crate) fn version_frame() -> Vec<u8> {
    prefix()
}

/// Encodes the second frame, without its length.
///
/// # Errors
/// When a limit of this module is violated.
pub fn encode_server_hello(hello: &Proved<ServerHello>) -> Result<Vec<u8>, ParseError> {
    let words = server_hello_words(&hello.message)?;
    Ok(server_hello_frame(hello.proof.as_ref(), &words))
}

/// Decodes the second frame, without its length.
///
/// # Errors
/// When it is not valid.
pub fn parse_server_hello(frame: &[u8]) -> Result<Proved<ServerHello>, ParseError> {
    let (proof, words) = split_proof(check_prefix(frame)?)?;
    let hello = message(words)?;
    check_server_hello(&hello)?;
    Ok(Proved {
        proof,
        message: hello,
    })
}

/// The contents of the third frame, which its proof covers.
pub(crate) fn open_words(open: &ClientOpen) -> Result<Vec<u8>, ParseError> {
    check_open(open)?;
    body(open)
}

/// Encodes the third frame, without its length.
///
/// # Errors
/// When a limit of this module is violated.
pub fn encode_open(open: &Proved<ClientOpen>) -> Result<Vec<u8>, ParseError> {
    Ok(with_proof(open.proof.as_ref(), &open_words(&open.message)?))
}

/// Decodes the third frame, without its length.
///
/// # Errors
/// When it is not valid.
pub fn parse_open(frame: &[u8]) -> Result<Proved<ClientOpen>, ParseError> {
    let (proof, words) = split_proof(frame)?;
    let open = message(words)?;
    check_open(&open)?;
    Ok(Proved {
        proof,
        message: open,
    })
}

/// The contents of the fourth frame, which its proof covers.
pub(crate) fn open_reply_words(reply: &ServerReply) -> Result<Vec<u8>, ParseError> {
    check_reply(reply)?;
    body(reply)
}

/// Encodes the fourth frame, without its length.
///
/// # Errors
/// When a limit of this module is violated.
pub fn encode_open_reply(reply: &Proved<ServerReply>) -> Result<Vec<u8>, ParseError> {
    Ok(with_proof(
        reply.proof.as_ref(),
        &open_reply_words(&reply.message)?,
    ))
}

/// Decodes the fourth frame, without its length.
///
/// # Errors
/// When it is not valid.
pub fn parse_open_reply(frame: &[u8]) -> Result<Proved<ServerReply>, ParseError> {
    let (proof, words) = split_proof(frame)?;
    let reply = message(words)?;
    check_reply(&reply)?;
    Ok(Proved {
        proof,
        message: reply,
    })
}
