//! What a connection is made of: limits, and a module for each question. Table 1's deployments are made here.

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

/// What becomes of a WRITE that arrives after its bytes were sent again and the message delivered.
///
/// The paper counts on UC to drop it, because its sequence number is behind the one that is expected (§5). As we read
/// the standard, UC takes the first packet of a message with any number, and `dunlin-roce` does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateWrites {
    /// The device drops it: RC, or UC that compares sequence numbers.
    Dropped,
    /// The device carries it out. The memory of messages of which a part was sent again rests for so long; it must be
    /// longer than the network keeps a packet.
    AfterRepair {
        /// The rest.
        quarantine_ns: u64,
    },
    /// The network also doubles packets, so that any WRITE may come again: that of all written messages rests.
    Always {
        /// The rest.
        quarantine_ns: u64,
    },
}

/// Limits and agreements. Both ends have the same `layout`, and modules with the same unit.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How reliable numbers of WRITEs are divided.
    pub layout: WriteLayout,
    /// Queue pairs for data: the primary and its backups.
    pub paths: usize,
    /// How many of them are connected from the start. The others are made known to the peer over those, as renewed ones
    /// are.
    pub connected_paths: usize,
    /// Work requests of one queue pair at once.
    pub send_queue: usize,
    /// RECEIVEs that the peer has posted to a queue pair: so many work requests may be without acknowledgement at once,
    /// since UC drops what finds none. Two of them are kept for the connection's own messages.
    pub peer_receives: usize,
    /// SENDs that may be without acknowledgement at once; a power of two. The receiver tells as many apart.
    pub number_window: u32,
    /// Messages that were submitted and are not finished.
    pub max_messages: usize,
    /// Written messages at once, announced or under way, in each direction.
    pub max_written: usize,
    /// Messages that come in fragments at once.
    pub max_assembled: usize,
    /// Messages up to so many bytes are sent, longer ones and those with a tag written; [`MAX_SEND_BYTES`] at most.
    pub max_sent_bytes: u32,
    /// Bytes of a message that one SEND carries at most; what receive buffers have to take beside the header.
    pub max_fragment_bytes: u32,
    /// When to acknowledge.
    pub ack_triggers: AckTriggers,
    /// What the device does with late WRITEs.
    pub late_writes: LateWrites,
    /// After so long a silence of a peer that is to answer, it is asked whether it is there.
    pub probe_ns: u64,
    /// By this number the peer's acknowledgements name this connection: that of its first queue pair here.
    pub own_queue_pair: u32,
    /// The peer's, by which ours name it.
    pub peer_queue_pair: u32,
}

impl Config {
    /// A primary and two backups (§6), 32 KB as the limit between SEND and WRITE (§3.2), and limits that keep what one
    /// connection holds below a few megabytes.
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

/// Flor's modules (§3.2). Each can be another implementation, of the user's own too, or hand its question to the NIC.
#[derive(Debug)]
pub struct Modules {
    /// How much one work request carries.
    pub chunking: Box<dyn Chunking>,
    /// How a round trip is measured.
    pub round_trip: Box<dyn RoundTrip>,
    /// What is lost.
    pub reliability: Box<dyn Reliability>,
    /// How much may be on its way.
    pub congestion: Box<dyn CongestionControl>,
}

/// The scenarios of Table 1. Where it leaves the transport open, both are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deployment {
    /// Within a pod, with PFC: no chunking, RC, control by the NIC.
    IntraPodLossless,
    /// Within a pod, PFC and ECN off: chunking, RC, control in software.
    IntraPodReliable,
    /// The same with UC.
    IntraPodUnreliable,
    /// Between pods: chunking, UC, control in software.
    CrossPod,
    /// Several generations of NICs: chunking, RC, control in software.
    HybridReliable,
    /// The same with UC.
    HybridUnreliable,
}

/// What a deployment has to know of the network.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Bits a second of the line.
    pub line_bits_per_second: u64,
    /// The round trip without queues. The paper's is 50 µs.
    pub base_rtt_ns: u64,
    /// Bytes of a unit: 4 KB in the paper's storage production, 1 KB against incast.
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

    /// For devices that are software, whose packets wait for kernels and threads at both ends: a round trip of 50 µs
    /// says nothing of the network there, and a window that is made by it is far too small. 2 ms by a sweep
    /// (`docs/flor.md`); 2 % as in BBR's second version, whose networks lose packets without being full.
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

    /// The service of its queue pairs.
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
    /// When the network's unit is not one.
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
