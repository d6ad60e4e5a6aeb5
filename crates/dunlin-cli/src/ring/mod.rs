//! `dunlin perf ring`: measures one way through a ring between two processes, for RB² and its competitors.
//!
//! The command is the producer; for each design a second process of this program is the consumer ([`crate::peer`]).
//! They exchange their addresses over the second one's standard input and output. A consumer polls only from
//! [`Peer::begin`](crate::peer::Peer::begin) to [`Peer::end`](crate::peer::Peer::end), so that several designs can be
//! measured in turns within the same second.

pub mod active;
pub mod compare;
pub mod consume;
pub mod pairs;
pub mod pattern;
pub mod ping_pong;
pub mod plot;
pub mod produce;
pub mod raw;
pub mod raw_ping_pong;
pub mod report;
pub mod serve;
pub mod sweep;

use dunlin_ring::{Design, Framing, Optimisation, RingConfig};
use dunlin_verbs::{DeviceAttributes, Placement};
use serde::{Deserialize, Serialize};

/// The design to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// RB²: slots, write twice, lazy push, adaptive batching, zero copy
    Rb2,
    /// FaRM: an array at the receiver only, messages polled, no batching
    Farm,
    /// SocksDirect: WRITE with immediate data, ten in flight, copies
    Socksdirect,
    /// L5: write twice, no batching, copies
    L5,
    /// MVAPICH: a list of slots, messages polled, the head pushed each time
    Mvapich,
    /// No ring: WRITEs to the same places, as perftest does
    Raw,
}

/// Optimisations that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Without {
    /// All batching of messages (M2)
    Batching,
    /// Synchronisation-ahead transmission (M3)
    SyncAhead,
    /// The elastic threshold (M4)
    Elastic,
    /// Lazy push (M5): the head is pushed after every message
    LazyPush,
    /// Zero copy: messages written where they are sent from and read where they arrive (M6)
    ZeroCopy,
    /// Separate cache lines for pointers and slots (M7)
    CacheLines,
    /// Huge pages (M8)
    HugePages,
    /// One NUMA node for both sides (M9): the producer is moved to another node, if there is one
    Numa,
}

/// How the length of messages is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lengths {
    /// All the same: slot size is message size, as in the paper's evaluation
    Fixed,
    /// Of each message, in a header of eight bytes
    Header,
}

/// The communication pattern.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Messages one way at full rate (Exp#1 and, with several pairs, Exp#3)
    #[default]
    OneWay,
    /// One message there and one back at a time, without batching; latencies are round trips (Exp#2)
    PingPong,
}

/// The parameters of a measurement that both sides must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The device's name.
    pub device: String,
    /// The ring.
    pub choice: Choice,
    /// Optimisations that are switched off.
    pub without: Vec<Without>,
    /// Bytes of a message.
    pub size: usize,
    /// Slots of the ring.
    pub slots: usize,
    /// How the length of messages is encoded.
    pub lengths: Lengths,
    /// The communication pattern.
    pub test: Test,
    /// Number of producers, each with its own consumer and ring.
    pub pairs: usize,
    /// Whether readers compare every byte.
    pub verify: bool,
}

impl Plan {
    /// The distance between the places of raw WRITEs, in bytes.
    pub fn raw_slot_bytes(&self) -> usize {
        self.size.next_multiple_of(dunlin_ring::LINE_BYTES)
    }

    /// Whether an optimisation is left on.
    pub fn has(&self, what: Without) -> bool {
        !self.without.contains(&what)
    }

    /// The configuration of the ring on a device; `None` for raw WRITEs.
    pub fn config(&self, attributes: &DeviceAttributes) -> Option<RingConfig> {
        let in_order = attributes.placement == Placement::InOrder;
        let mut design = match self.choice {
            Choice::Rb2 => Design::RB2,
            Choice::Farm if in_order => Design::FARM,
            Choice::Farm => Design::FARM_UNORDERED,
            Choice::Socksdirect => Design::SOCKSDIRECT,
            Choice::L5 => Design::L5,
            Choice::Mvapich => Design::MVAPICH,
            Choice::Raw => return None,
        };
        for without in &self.without {
            design = match without {
                Without::Batching => design.without(Optimisation::Batching),
                Without::SyncAhead => design.without(Optimisation::SyncAhead),
                Without::Elastic => design.without(Optimisation::Elastic),
                Without::LazyPush => design.without(Optimisation::LazyPush),
                Without::ZeroCopy => design.without(Optimisation::ZeroCopy),
                Without::CacheLines => design.without(Optimisation::CacheLines),
                // Where memory comes from is not the ring's affair.
                Without::HugePages | Without::Numa => design,
            };
        }
        let config = match self.lengths {
            Lengths::Fixed => RingConfig::for_records(design, self.size),
            Lengths::Header => RingConfig {
                framing: Framing::Header,
                ..RingConfig::for_messages(design, self.size)
            },
        };
        Some(RingConfig {
            slots: self.slots,
            ..config
        })
    }

    /// The number of messages that become visible together, which determines the raw limit to compare with.
    pub fn together(&self) -> u64 {
        match (self.choice, self.has(Without::Batching)) {
            (Choice::Rb2, true) => 32,
            _ => 1,
        }
    }
}

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OneWay => "one-way",
            Self::PingPong => "ping-pong",
        })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rb2 => "rb2",
            Self::Farm => "farm",
            Self::Socksdirect => "socksdirect",
            Self::L5 => "l5",
            Self::Mvapich => "mvapich",
            Self::Raw => "raw",
        })
    }
}
