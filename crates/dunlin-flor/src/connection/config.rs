//! The configuration of a connection: limits, and a module for each decision. Table 1's deployments are defined here.

use dunlin_verbs::Transport;

use crate::ack::AckTriggers;
use crate::chunking::{
    Chunking, ChunkingParameters, OnLoss, ParameterError, RttBased, WholeMessages,
};
use crate::congestion::{CongestionControl, FixedWindow, HardwareControl, Swift, SwiftParameters};
use crate::number::WriteLayout;
use crate::reliability::{Hardware, Reliability, Selective, SelectiveParameters};
use crate::round_trip::{ByAcknowledgement, ByCompletion, RoundTrip, Unmeasured};
use crate::wire::MAX_SEND_BYTES;

/// What the device does with a WRITE that arrives after its bytes were sent again and the message was delivered.
///
/// The paper relies on UC to drop it, because its sequence number is behind the expected one (§5). As we read the
/// standard, UC accepts the first packet of a message with any number, and `dunlin-roce` does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateWrites {
    /// The device drops it: RC, or UC that compares sequence numbers.
    Dropped,
    /// The device carries it out. The memory of messages of which a part was sent again is not reused for this time,
    /// which must be longer than the network keeps a packet.
    AfterRepair {
        /// Time before the memory is used again.
        quarantine_ns: u64,
    },
    /// The network also duplicates packets, so any WRITE may arrive again: the memory of all written messages is held
    /// back.
    Always {
        /// Time before the memory is used again.
        quarantine_ns: u64,
    },
}

/// Limits and agreed parameters. Both ends must have the same `layout`, and modules with the same unit.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How the reliable numbers of WRITEs are divided.
    pub layout: WriteLayout,
    /// Number of queue pairs for data: the primary and its backups.
    pub paths: usize,
    /// How many of them are connected from the start. The addresses of the others are sent to the peer over those, as
    /// for renewed queue pairs.
    pub connected_paths: usize,
    /// Maximum number of outstanding work requests of one queue pair.
    pub send_queue: usize,
    /// Number of RECEIVEs that the peer has posted to a queue pair. This bounds the work requests without
    /// acknowledgement, since UC drops those that find no RECEIVE. Two are reserved for the connection's own messages.
    pub peer_receives: usize,
    /// Maximum number of SENDs without acknowledgement; a power of two. The receiver's window has the same size.
    pub number_window: u32,
    /// Maximum number of messages that were submitted and are not finished.
    pub max_messages: usize,
    /// Maximum number of written messages, announced or in flight, in each direction.
    pub max_written: usize,
    /// Maximum number of messages being received in fragments.
    pub max_assembled: usize,
    /// Messages up to this length are sent; longer ones, and those with a tag, are written. At most [`MAX_SEND_BYTES`].
    pub max_sent_bytes: u32,
    /// Maximum number of message bytes in one SEND; receive buffers must hold this and the header.
    pub max_fragment_bytes: u32,
    /// When to acknowledge.
    pub ack_triggers: AckTriggers,
    /// What the device does with late WRITEs.
    pub late_writes: LateWrites,
    /// After this time without a message from a peer that owes an answer, it is probed.
    pub probe_ns: u64,
    /// The number by which the peer's acknowledgements name this connection: that of its first queue pair here.
    pub own_queue_pair: u32,
    /// The peer's number, by which acknowledgements sent here name it.
    pub peer_queue_pair: u32,
}

impl Config {
    /// A primary and two backups (§6), 32 KB as the boundary between SEND and WRITE (§3.2), and limits that keep the
    /// memory of one connection below a few megabytes.
    pub const DEFAULT: Self = Self {
        layout: WriteLayout::PAPER,
        paths: 1 + Hardware::BACKUPS,
        connected_paths: 1 + Hardware::BACKUPS,
        send_queue: 256,
        peer_receives: 256,
        number_window: 1024,
        max_messages: 1024,
        max_written: 32,
        max_assembled: 64,
        max_sent_bytes: MAX_SEND_BYTES,
        max_fragment_bytes: MAX_SEND_BYTES,
        ack_triggers: AckTriggers::PAPER,
        late_writes: LateWrites::AfterRepair {
            quarantine_ns: 100_000_000,
        },
        probe_ns: 20_000_000,
        own_queue_pair: 0,
        peer_queue_pair: 0,
    };
}

/// Flor's modules (§3.2). Each can be replaced by another implementation, including the user's own, or leave its
/// decision to the NIC.
#[derive(Debug)]
pub struct Modules {
    /// How much one work request carries.
    pub chunking: Box<dyn Chunking>,
    /// How a round trip is measured.
    pub round_trip: Box<dyn RoundTrip>,
    /// Decides what is lost.
    pub reliability: Box<dyn Reliability>,
    /// Decides how much may be in flight.
    pub congestion: Box<dyn CongestionControl>,
}

/// The scenarios of Table 1. Where the table leaves the transport open, both variants are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deployment {
    /// Within a pod, with PFC: no chunking, RC, congestion control by the NIC.
    IntraPodLossless,
    /// Within a pod, PFC and ECN off: chunking, RC, congestion control in software.
    IntraPodReliable,
    /// The same with UC.
    IntraPodUnreliable,
    /// Between pods: chunking, UC, congestion control in software.
    CrossPod,
    /// Several generations of NICs: chunking, RC, congestion control in software.
    HybridReliable,
    /// The same with UC.
    HybridUnreliable,
}

/// Properties of the network that a deployment needs.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Line rate in bits per second.
    pub line_bits_per_second: u64,
    /// Round trip time without queueing. The paper's is 50 µs.
    pub base_rtt_ns: u64,
    /// Length of a unit in bytes: 4 KB in the paper's storage production, 1 KB against incast.
    pub unit_bytes: u32,
    /// See [`SwiftParameters::tolerated_loss`].
    pub tolerated_loss: f64,
}

impl Network {
    /// 100 Gb/s and the paper's values.
    pub const DEFAULT: Self = Self {
        line_bits_per_second: 100_000_000_000,
        base_rtt_ns: 50_000,
        unit_bytes: 4 << 10,
        tolerated_loss: 0.0,
    };

    /// For software devices, whose packets wait for kernels and threads at both ends: there a round trip of 50 µs does
    /// not describe the network, and a window derived from it is far too small. 2 ms from a sweep (`docs/flor.md`); 2 %
    /// as in version 2 of BBR, whose networks lose packets without being congested.
    pub const SOFTWARE: Self = Self {
        base_rtt_ns: 2_000_000,
        tolerated_loss: 0.02,
        ..Self::DEFAULT
    };

    /// The bandwidth-delay product, in bytes.
    pub fn product_bytes(&self) -> u64 {
        FixedWindow::of(self.line_bits_per_second, self.base_rtt_ns).window_bytes()
    }
}

impl Deployment {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IntraPodLossless,
        Self::IntraPodReliable,
        Self::IntraPodUnreliable,
        Self::CrossPod,
        Self::HybridReliable,
        Self::HybridUnreliable,
    ];

    /// The transport service of its queue pairs.
    pub fn transport(self) -> Transport {
        match self {
            Self::IntraPodLossless | Self::IntraPodReliable | Self::HybridReliable => {
                Transport::ReliableConnection
            }
            Self::IntraPodUnreliable | Self::CrossPod | Self::HybridUnreliable => {
                Transport::UnreliableConnection
            }
        }
    }

    /// Its modules.
    ///
    /// # Errors
    /// When the network's unit is not valid.
    pub fn modules(self, network: &Network) -> Result<Modules, ParameterError> {
        let reliable = self.transport() == Transport::ReliableConnection;
        let chunking: Box<dyn Chunking> = if self == Self::IntraPodLossless {
            Box::new(WholeMessages::new(network.unit_bytes))
        } else {
            Box::new(RttBased::new(ChunkingParameters {
                unit_bytes: network.unit_bytes,
                first_bytes: network.product_bytes(),
                on_loss: if reliable {
                    OnLoss::OneUnit
                } else {
                    OnLoss::FollowWindow
                },
                ..ChunkingParameters::PRODUCTION
            })?)
        };
        let round_trip: Box<dyn RoundTrip> = match (self, reliable) {
            (Self::IntraPodLossless, _) => Box::new(Unmeasured),
            (_, true) => Box::new(ByCompletion {
                line_bits_per_second: network.line_bits_per_second,
            }),
            (_, false) => Box::new(ByAcknowledgement),
        };
        let reliability: Box<dyn Reliability> = if reliable {
            Box::new(Hardware)
        } else {
            Box::new(Selective::new(SelectiveParameters::DEFAULT))
        };
        let congestion: Box<dyn CongestionControl> = if self == Self::IntraPodLossless {
            Box::new(HardwareControl)
        } else {
            Box::new(Swift::new(SwiftParameters {
                unit_bytes: network.unit_bytes,
                base_target_ns: network.base_rtt_ns,
                scaling_range_ns: 5 * network.base_rtt_ns,
                tolerated_loss: network.tolerated_loss,
                ..SwiftParameters::DEFAULT
            }))
        };
        Ok(Modules {
            chunking,
            round_trip,
            reliability,
            congestion,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 1, line by line: chunking, reliability, congestion control.
    #[test]
    fn table_1() {
        for deployment in Deployment::ALL {
            let modules = deployment.modules(&Network::DEFAULT).unwrap();
            let chunks = modules.chunking.chunk_bytes(u64::MAX) <= 64 << 10;
            let hardware = modules.reliability.completion_acknowledges();
            let software_control = modules.congestion.window_bytes() < u64::MAX;
            let rc = deployment.transport() == Transport::ReliableConnection;
            assert_eq!(hardware, rc, "{deployment:?}");
            let expected = match deployment {
                Deployment::IntraPodLossless => (false, true, false),
                Deployment::CrossPod => (true, false, true),
                Deployment::IntraPodReliable | Deployment::HybridReliable => (true, true, true),
                _ => (true, false, true),
            };
            assert_eq!((chunks, rc, software_control), expected, "{deployment:?}");
        }
    }

    #[test]
    fn a_network_without_units_is_refused() {
        let network = Network {
            unit_bytes: 0,
            ..Network::DEFAULT
        };
        assert!(Deployment::CrossPod.modules(&network).is_err());
    }
}
