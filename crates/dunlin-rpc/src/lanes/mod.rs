//! The lanes of clients, which are not shared: each makes calls over one channel of its own, and matches answers to
//! them. Lanes that threads share are in [`crate::sharing`].

pub(crate) mod channel_lane;
pub(crate) mod datagram_lane;

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::config::ChannelConfig;

/// The user of a lane.
#[derive(Clone)]
pub(crate) enum Owner {
    /// The calling thread: its datagram sessions share a queue pair.
    Thread,
    /// Any thread to which it is handed: it has a queue pair of its own.
    Alone,
    /// Any thread to which it is handed, with lanes to other servers: they share a queue pair, that of
    /// [`Lane::queue`](crate::call::lane::Lane::queue), if it is of the same device.
    Beside(Arc<dyn Any + Send + Sync>),
}

/// What a client's new lane is to be like.
pub(crate) struct LaneSetup {
    pub(crate) config: ChannelConfig,
    pub(crate) owner: Owner,
    /// Set when a packet of the client was lost.
    pub(crate) packet_lost: Arc<AtomicBool>,
}
