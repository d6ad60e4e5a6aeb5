//! What the two sides say to each other, as values.

use std::collections::BTreeMap;

use dunlin_verbs::{EndpointAddress, ENDPOINT_ADDRESS_BYTES};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::refusal::Refusal;
use crate::secret::Proof;
use crate::selection::{Capability, Choice};

/// Bytes of the random number that each side adds to its hello.
pub const NONCE_BYTES: usize = 32;

/// The first frame: who the client is and what it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHello {
    /// Random, new for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Whether it has a secret and will speak only to a server that has the same.
    pub has_secret: bool,
    /// Its devices.
    pub capabilities: Vec<Capability>,
    /// The device it wants and no other.
    pub preference: Option<String>,
}

/// The second frame without its proof: the device to use, or no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// Random, new for each connection.
    pub nonce: [u8; NONCE_BYTES],
    /// Whether the client has to prove that it knows the secret.
    pub secret_required: bool,
    /// What to use, or why not.
    pub outcome: Outcome<Choice>,
}

/// The third frame without its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientOpen {
    /// Go ahead with this.
    Open(OpenRequest),
    /// The client goes away because the server's proof is wrong.
    WrongSecret,
}

/// The fourth frame without its proof.
pub type ServerReply = Outcome<OpenReply>;

/// Yes or no, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome<T> {
    /// Yes.
    Accepted(T),
    /// No, and why.
    Refused(Refusal),
}

/// A frame and the proof that it carries, if it carries one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved<T> {
    /// The proof; whether it holds is seen against the transcript.
    pub proof: Option<Proof>,
    /// What is said.
    pub message: T,
}

/// What a client wants opened: its queue pair and what the layer above has to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRequest {
    /// The server's device; [`crate::Dialed::open`] fills it in with the one that was chosen.
    pub device: String,
    /// What is to be spoken over it: `plain`, `flock`, `perf-verbs`.
    pub preset: String,
    /// The client's queue pair.
    #[serde(with = "endpoint")]
    pub endpoint: EndpointAddress,
    /// Numbers by name: ring address, keys, sizes.
    pub parameters: BTreeMap<String, u64>,
}

/// What a server answers: its queue pair and what the layer above has to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReply {
    /// The server's queue pair.
    #[serde(with = "endpoint")]
    pub endpoint: EndpointAddress,
    /// Numbers by name.
    pub parameters: BTreeMap<String, u64>,
}

/// Queue pair addresses in the encoding that `dunlin-verbs` gives them: 48 bytes as they are.
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
