//! The configuration of a device: its limits, each with a default.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_verbs::Placement;

/// Maximum number of bytes in a message, WRITE or READ.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// The configuration with which a [`crate::ShmDevice`] is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShmConfig {
    /// The device's name for display.
    pub name: String,
    /// Maximum number of regions registered at a time, at most 16384.
    pub max_regions: usize,
    /// Maximum number of bytes registered at a time.
    pub max_registered_bytes: usize,
    /// Maximum number of bytes of one peer's regions and ports that are mapped here at a time. It can be more than the
    /// peer may register at a time: revoked regions stay mapped until a queue pair asks for its next region.
    pub max_mapped_bytes: usize,
    /// Maximum number of queue pairs at a time, at most 16384.
    pub max_queue_pairs: usize,
    /// Data bytes of the port of a connected queue pair that receives messages with a payload; a power of two of at
    /// least 4096.
    pub port_bytes: usize,
    /// Data bytes of the port of one sender to a UD queue pair; a power of two of at least 8192.
    pub datagram_port_bytes: usize,
    /// Maximum number of senders to one UD queue pair. The last quarter is reserved for devices that have less than a
    /// quarter.
    pub max_datagram_senders: usize,
    /// Maximum number of sessions that other devices may have open to this one, and of those that it may have open to
    /// others.
    pub max_sessions: usize,
    /// Maximum number of bytes in a message, WRITE or READ, at most 1 GiB. Lower values are for tests of code that runs
    /// on a device with a lower limit.
    pub max_message_bytes: usize,
    /// Whether regions may use huge pages, reserved or transparent, if there are any. A peer that may write a region on
    /// reserved huge pages can remove its pages; if the system then has none left, our next access there raises SIGBUS:
    /// no seal prevents that where writing is allowed. Turn this off if peers are not trusted to that extent.
    pub huge_pages: bool,
    /// The order in which the bytes of a WRITE become visible. [`Placement::Unordered`] writes them from the end,
    /// slowly, for tests of code that runs on a device without ordering guarantees.
    pub placement: Placement,
    /// Whether the device reports that each of its WRITEs is a message, although it stores them: for tests of code that
    /// runs on a device where that is the case.
    pub writes_are_messages: bool,
    /// Time within which a peer's control thread must answer a request that does not depend on others, and within which
    /// a peer that opens a session must identify itself.
    pub control_timeout: Duration,
    /// A folder through which peers of other network namespaces, containers and users can be reached as well: those
    /// that may write it. Without one, peers are processes of this user and this network namespace.
    pub folder: Option<PathBuf>,
}

impl ShmConfig {
    /// The defaults, with the folder named by `DUNLIN_SHM_FOLDER`.
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
            // With some presets a server has two for each of 4096 connections, and the rest is for long messages.
            max_regions: 16384,
            max_registered_bytes: 4 << 30,
            max_mapped_bytes: 64 << 30,
            // A process that is both a server and its own client has two for each connection.
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
