//! What a logical connection is made of, and what it tells.

use dunlin_verbs::{CompletionQueueError, Device, PostError, VerbsError};

use super::memory::Landing;
use crate::chunking::ParameterError;
use crate::connection::{Config, ConfigError, Deployment, Failure, MessageId, Network};
use crate::reliability::Hardware;

/// How a logical connection is made.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Which modules, and the service of the queue pairs.
    pub deployment: Deployment,
    /// What they have to know.
    pub network: Network,
    /// Limits.
    pub connection: Config,
    /// Receive buffers of each queue pair, of [`Config::max_fragment_bytes`] and a header each. The peer has to have it
    /// as [`Config::peer_receives`].
    pub receives: usize,
    /// How often RC's NIC repeats what is not answered before a queue pair is given up.
    pub retries: u8,
    /// Bytes of memory for written messages at most; more is refused. Who calls [`super::LogicalConnection::landing`]
    /// may go beyond it, and what was had so is not kept.
    pub max_landing_bytes: usize,
    /// Acknowledgements go over the queue pair of the data and its completion queues: the paper's counterexample (Fig.
    /// 16), there to be measured. They take RECEIVEs of the peer beyond [`Config::peer_receives`]; those that find none
    /// are lost. Both ends need the same.
    pub shares_acks: bool,
    /// Traffic class of the queue pairs for data; see [`ConnectAttributes`](dunlin_verbs::ConnectAttributes).
    pub traffic_class: u8,
    /// That of the queue pair for acknowledgements, which should have a higher priority (§4.1).
    pub ack_traffic_class: u8,
    /// Nanoseconds that a simulated core is charged for each chunk before it is posted: zero, unless a
    /// [`FlorConfig`](crate::device::FlorConfig) has made it [`CHUNK_NS`](crate::effort::CHUNK_NS). Nothing on a real
    /// device.
    pub chunk_ns: u64,
}

impl LinkConfig {
    /// For a deployment, with 64 receive buffers, as many work requests under way, and 64 MiB for written messages.
    pub fn new(deployment: Deployment) -> Self {
        let receives = 64;
        Self {
            deployment,
            network: Network::DEFAULT,
            connection: Config {
                send_queue: receives,
                peer_receives: receives,
                // One address is exchanged: the others' go over the queue pair that it leads to.
                connected_paths: 1,
                ..Config::DEFAULT
            },
            receives,
            retries: Hardware::RETRIES,
            max_landing_bytes: 64 << 20,
            shares_acks: false,
            traffic_class: 0,
            ack_traffic_class: 0,
            chunk_ns: 0,
        }
    }
}

/// Why a logical connection cannot be made or goes no further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The device refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A work request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A completion queue has lost something.
    #[error(transparent)]
    Completions(#[from] CompletionQueueError),
    /// A limit is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A parameter is out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// What a logical connection tells.
#[derive(Debug)]
pub enum LinkEvent<D: Device> {
    /// A message that was sent has come.
    Message(Vec<u8>),
    /// A message that was written has come, and is in place. Give the memory back by
    /// [`release`](super::LogicalConnection::release).
    Landed {
        /// What the peer's user calls it; zero without a tag.
        tag: u32,
        /// Where it is.
        landing: Landing<D::Region>,
    },
    /// A message with a tag is to be written here: answer with [`grant`](super::LogicalConnection::grant) or
    /// [`refuse`](super::LogicalConnection::refuse).
    Announced {
        /// The message.
        message: u32,
        /// Its bytes.
        bytes: u32,
        /// What the peer's user calls it; anything.
        tag: u32,
    },
    /// A message of ours is done with: its bytes may change.
    Finished(MessageId, Result<(), Failure>),
    /// No queue pair is left.
    Lost,
}
