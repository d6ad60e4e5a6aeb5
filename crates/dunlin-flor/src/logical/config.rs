//! The configuration, errors and events of a logical connection.

use dunlin_verbs::{CompletionQueueError, Device, PostError, VerbsError};

use super::memory::Landing;
use crate::chunking::ParameterError;
use crate::connection::{Config, ConfigError, Deployment, Failure, MessageId, Network};
use crate::reliability::Hardware;

/// The configuration of a logical connection.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Determines the modules, and the transport service of the queue pairs.
    pub deployment: Deployment,
    /// Properties of the network that the modules need.
    pub network: Network,
    /// Limits.
    pub connection: Config,
    /// Number of receive buffers of each queue pair, each of [`Config::max_fragment_bytes`] and a header. The peer must
    /// have the same number as [`Config::peer_receives`].
    pub receives: usize,
    /// Number of retries by RC's NIC before a queue pair is given up.
    pub retries: u8,
    /// Maximum number of bytes of memory for written messages; more is refused. Callers of
    /// [`super::LogicalConnection::landing`] may exceed it, but the excess is not kept.
    pub max_landing_bytes: usize,
    /// Send acknowledgements over the queue pair of the data and its completion queues: the paper's counterexample
    /// (Fig. 16), for measurements. They consume RECEIVEs of the peer beyond [`Config::peer_receives`]; those that find
    /// none are lost. Both ends need the same setting.
    pub shares_acks: bool,
    /// Traffic class of the queue pairs for data; see [`ConnectAttributes`](dunlin_verbs::ConnectAttributes).
    pub traffic_class: u8,
    /// Traffic class of the queue pair for acknowledgements, which should have a higher priority (§4.1).
    pub ack_traffic_class: u8,
    /// Nanoseconds that a simulated core is charged for each chunk before it is posted: zero, unless a
    /// [`FlorConfig`](crate::device::FlorConfig) has set it to [`CHUNK_NS`](crate::effort::CHUNK_NS). No effect on a
    /// real device.
    pub chunk_ns: u64,
}

impl LinkConfig {
    /// The configuration for a deployment, with 64 receive buffers, as many work requests in flight, and 64 MiB for
    /// written messages.
    pub fn new(deployment: Deployment) -> Self {
        let receives = 64;
        Self {
            deployment,
            network: Network::DEFAULT,
            connection: Config {
                send_queue: receives,
                peer_receives: receives,
                // Only one address is exchanged: the others are sent over the queue pair that it leads to.
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

/// Why a logical connection cannot be created or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The device reported an error.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A work request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A completion queue overran.
    #[error(transparent)]
    Completions(#[from] CompletionQueueError),
    /// A limit is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A parameter is out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

/// An event of a logical connection.
#[derive(Debug)]
pub enum LinkEvent<D: Device> {
    /// A message that was sent has arrived.
    Message(Vec<u8>),
    /// A message that was written has arrived, and is in place. Return the memory by
    /// [`release`](super::LogicalConnection::release).
    Landed {
        /// The tag that the peer's user gave it; zero without a tag.
        tag: u32,
        /// The memory that holds it.
        landing: Landing<D::Region>,
    },
    /// The peer wants to write a message with a tag: answer with [`grant`](super::LogicalConnection::grant) or
    /// [`refuse`](super::LogicalConnection::refuse).
    Announced {
        /// The message.
        message: u32,
        /// Length in bytes.
        bytes: u32,
        /// The tag that the peer's user gave it; may be anything.
        tag: u32,
    },
    /// A submitted message is finished: its bytes may change.
    Finished(MessageId, Result<(), Failure>),
    /// No queue pair is left.
    Lost,
}
