//! Counters of dropped packets, by reason, and of other packet events.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A reason for which a packet was dropped, or another packet event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Count {
            $($(#[$doc])* $name,)*
        }

        /// All counters.
        pub const COUNTS: &[Count] = &[$(Count::$name,)*];

        impl Count {
            /// The counter's name in metrics and on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counts! {
    /// Not a RoCE packet, or of an unsupported kind.
    Malformed = "malformed",
    /// The invariant CRC is wrong.
    BadCrc = "bad_crc",
    /// The destination queue pair does not exist.
    UnknownQueuePair = "unknown_queue_pair",
    /// The source is not the connected peer's address and port.
    WrongSource = "wrong_source",
    /// The transport is not the queue pair's, or the queue pair does not accept packets in its state.
    WrongState = "wrong_state",
    /// The queue key is not the queue pair's.
    WrongKey = "wrong_key",
    /// A packet before this one is missing.
    Gap = "gap",
    /// The packet had been processed before.
    Duplicate = "duplicate",
    /// No RECEIVE was posted for it.
    NoReceive = "no_receive",
    /// Refused: the key, range or access right is invalid, or the request is malformed.
    Refused = "refused",
    /// Dropped because of the state of its connection or for lack of room.
    Dropped = "dropped",
    /// Not received: the socket's receive buffer was full.
    ReceiveBufferFull = "receive_buffer_full",
    /// Not sent: the socket's buffer and the queue behind it were full.
    SendBufferFull = "send_buffer_full",
    /// Not sent: the system call failed.
    SendFailed = "send_failed",
    /// Number of times that packets were sent again.
    Retransmission = "retransmission",
    /// Packets that arrived with a congestion mark.
    CongestionMark = "congestion_mark",
    /// Congestion notifications from peers about our packets.
    CongestionNotification = "congestion_notification",
    /// Probes of whether long packets get through, and answers to ours.
    Probe = "probe",
}

/// Counters of a device.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    counts: [AtomicU64; COUNTS.len()],
}

impl Statistics {
    pub(crate) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: Count, times: u64) {
        self.counts[what as usize].fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// Logs the first failure, and then each time that their number has doubled.
    pub(super) fn failed_to_send(&self, error: &io::Error) {
        self.count(Count::SendFailed);
        let failures = self.get(Count::SendFailed);
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "the system rejected packets to be sent");
        }
    }
}
