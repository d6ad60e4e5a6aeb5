//! Counters of dropped packets, by reason, and of other packet events.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet went no further, or what else is counted of packets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Count {
            $($(#[$doc])* $name,)*
        }

        /// All of them.
        pub const COUNTS: &[Count] = &[$(Count::$name,)*];

        impl Count {
            /// Its name in metrics and on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

counts! {
    /// No packet of RoCE, or of a kind that is not supported.
    Malformed = "malformed",
    /// The invariant CRC does not fit.
    BadCrc = "bad_crc",
    /// For a queue pair that does not exist.
    UnknownQueuePair = "unknown_queue_pair",
    /// Not from the connected peer's address and port.
    WrongSource = "wrong_source",
    /// Of another transport than the queue pair's, or it does not take packets in its state.
    WrongState = "wrong_state",
    /// Another queue key than the queue pair's.
    WrongKey = "wrong_key",
    /// A packet before it is missing.
    Gap = "gap",
    /// It had been carried out before.
    Duplicate = "duplicate",
    /// No RECEIVE was posted for it.
    NoReceive = "no_receive",
    /// Refused: a key, a range or a right was missing, or the request made no sense.
    Refused = "refused",
    /// Dropped by the state of its connection or for want of room.
    Dropped = "dropped",
    /// Not taken: the socket's receive buffer was full.
    ReceiveBufferFull = "receive_buffer_full",
    /// Not sent: the socket's buffer and the queue behind it were full.
    SendBufferFull = "send_buffer_full",
    /// Not sent: the system refused.
    SendFailed = "send_failed",
    /// Times that packets were sent again.
    Retransmission = "retransmission",
    /// Packets that came with the mark of a queue that grew long.
    CongestionMark = "congestion_mark",
    /// Times that a peer said that our packets were marked.
    CongestionNotification = "congestion_notification",
    /// Questions whether long packets come through, and answers to ours.
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
            tracing::warn!(%error, failures, "the system refuses to send packets");
        }
    }
}
