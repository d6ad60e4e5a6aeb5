//! The messages of the handshake, as values.

use std::collections::BTreeMap;

use dunlin_verbs::{EndpointAddress, ENDPOINT_ADDRESS_BYTES};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::refusal::Refusal;
use crate::secret::Proof;
use crate::selection::{Capability, Choice};

/// Length of the random number that each side adds to its hello, in bytes.
pub const NONCE_BYTES: usize = 32;

/// The first frame: the client's devices and requirements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// Random, new for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Whether it has a secret and accepts only a server with the same.
    pub has_secret: bool,
    /// Its devices.
    pub capabilities: Vec<Capability>,
    /// The required device, if only one is acceptable.
    pub preference: Option<String>,
}

/// The second frame without its proof: the device to use, or a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// Random, new for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Whether the client has to prove that it knows the secret.
    pub secret_required: bool,
    /// The device to use, or the reason for refusing.
    pub outcome: Outcome<Choice>,
}

/// The third frame without its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientOpen {
    /// Open a connection with these parameters.
    Open(OpenRequest),
    /// The client gives up because the server's proof is wrong.
    WrongSecret,
}

/// The fourth frame without its proof.
pub type ServerReply = Outcome<OpenReply>;

/// An answer as it is transmitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<T> {
    /// Accepted.
    Accepted(T),
    /// Refused, with the reason.
    Refused(Refusal),
}

/// A frame with its proof, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved<T> {
    /// The proof, to be verified against the transcript.
    pub proof: Option<Proof>,
    /// The message.
    pub message: T,
}

/// A client's open request: its queue pair and the parameters of the layer above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// The server's device; [`crate::Dialed::open`] sets it to the chosen one.
    pub device: String,
    /// The protocol to be used over it: `plain`, `flock`, `perf-verbs`.
    pub preset: String,
    /// The client's queue pair.
    #[serde(with = "endpoint")]
    pub endpoint: EndpointAddress,
    /// Named numbers: ring address, keys, sizes.
    pub parameters: BTreeMap<String, u64>,
}

/// A server's reply: its queue pair and the parameters of the layer above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReply {
    /// The server's queue pair.
    #[serde(with = "endpoint")]
    pub endpoint: EndpointAddress,
    /// Named numbers.
    pub parameters: BTreeMap<String, u64>,
}

/// Queue pair addresses in the encoding of `dunlin-verbs`: 48 bytes, unchanged.
mod endpoint {
    use super::*;

    type Thirds = [[u8; 16]; 3];
    const _: () = assert!(ENDPOINT_ADDRESS_BYTES == 48);

    pub(super) fn serialize<S: Serializer>(
        address: &EndpointAddress,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let bytes = address.encode();
        let mut thirds: Thirds = [[0; 16]; 3];
        for (third, piece) in thirds.iter_mut().zip(bytes.chunks_exact(16)) {
            third.copy_from_slice(piece);
        }
        thirds.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<EndpointAddress, D::Error> {
        let thirds = Thirds::deserialize(deserializer)?;
        let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
        bytes.copy_from_slice(thirds.as_flattened());
        Ok(EndpointAddress::decode(&bytes))
    }
}
