//! The settings of a device: its limits, each with a default.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_verbs::Placement;

/// Bytes of one message, WRITE or READ, at most.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// How a [`crate::ShmDevice`] is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShmConfig {
    /// The device's name for people.
    pub name: String,
    /// Regions registered at once, at most 16384.
    pub max_regions: usize,
    /// Bytes registered at once.
    pub max_registered_bytes: usize,
    /// Bytes of the regions and ports of one peer that are mapped here at once. It can be more than the peer registers
    /// at once: what it has taken back stays mapped until a queue pair asks for its next region.
    pub max_mapped_bytes: usize,
    /// Queue pairs at once, at most 16384.
    pub max_queue_pairs: usize,
    /// Data bytes of the port of a connected queue pair that takes messages with bytes; a power of two of at least
    /// 4096.
    pub port_bytes: usize,
    /// Data bytes of the port of one sender to a UD queue pair; a power of two of at least 8192.
    pub datagram_port_bytes: usize,
    /// Senders to one UD queue pair. The last quarter is for devices that have less than a quarter.
    pub max_datagram_senders: usize,
    /// Sessions that other devices may have open to this one, and as many that it may have open to others.
    pub max_sessions: usize,
    /// Bytes of one message, WRITE or READ, at most 1 GiB. Less is for tests of what stands on a device that takes no
    /// more.
    pub max_message_bytes: usize,
    /// Whether regions may stand on huge pages, reserved or transparent, where there are any. A peer that may write a
    /// region on reserved huge pages can take its pages out of it, and if the system has none left then, our next
    /// access there is a SIGBUS: no seal forbids that where writing is allowed. Off where peers are not trusted so far.
    pub huge_pages: bool,
    /// How the bytes of a WRITE become visible. [`Placement::Unordered`] writes them from the end, for tests of what
    /// stands on a device that promises no order, and slowly.
    pub placement: Placement,
    /// Whether the device says that each of its WRITEs is a message, though it stores them: for tests of what stands on
    /// a device where it is so.
    pub writes_are_messages: bool,
    /// Time in which a peer's control thread must answer a question that needs nobody else, and in which whoever opens
    /// a session must say who it is.
    pub control_timeout: Duration,
    /// A folder in which peers of other network namespaces, containers and users are met as well: who may write it.
    /// Without one, peers are processes of this user and this network namespace.
    pub folder: Option<PathBuf>,
}

impl ShmConfig {
    /// The defaults, with the folder that `DUNLIN_SHM_FOLDER` names.
    pub fn from_environment() -> Self {
        let folder = std::env::var_os("DUNLIN_SHM_FOLDER").filter(|folder| !folder.is_empty());
        Self {
            folder: folder.map(PathBuf::from),
            ..Self::default()
        }
    }
}

impl Default for ShmConfig {
    fn default() -> Self {
        Self {
            name: "shm".to_owned(),
            // A server has two for each connection of some presets and 4096 connections, and room is left for long
            // messages.
            max_regions: 16384,
            max_registered_bytes: 4 << 30,
            max_mapped_bytes: 64 << 30,
            // A process that is a server and its own client has two for each connection.
            max_queue_pairs: 16384,
            port_bytes: 256 << 10,
            datagram_port_bytes: 512 << 10,
            max_datagram_senders: 256,
            max_sessions: 1024,
            max_message_bytes: MAX_MESSAGE_BYTES,
            huge_pages: true,
            placement: Placement::InOrder,
            writes_are_messages: false,
            control_timeout: Duration::from_secs(5),
            folder: None,
        }
    }
}
