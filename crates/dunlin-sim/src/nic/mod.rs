//! The NIC: its state, and what its modules share.
//!
//! A NIC has one or two *engines*, each of which carries out one piece of work after the other: a packet of a request
//! to send, or a packet that has arrived. Engines, PCIe in both directions and the wire are servers in virtual time: a
//! piece of work waits for those before it. What takes time without delaying others (pipeline stages, DMA round trips)
//! is added as latency.

mod acknowledge;
mod answer;
mod ask;
mod clock;
mod congestion;
mod emit;
mod engine;
mod finish;
mod pcie;
mod place;
mod receive;
mod respond;
mod timer;
mod transmit;
mod window;

use std::collections::BTreeMap;

use crate::cache::Cache;
use crate::counters::Counters;
use crate::event::Ps;
use crate::headroom::Headroom;
use crate::parameters::NicParameters;
use crate::priority::{Queues, Turns, PRIORITIES};
use crate::random::Random;

use clock::Clock;
pub(crate) use congestion::RateControl;
pub(crate) use window::Window;

/// An entry in the ring of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Requests of this queue pair.
    Requests(u32),
    /// Answers of this queue pair that are not sent as soon as they are ready: long ones, and those that must wait.
    Answers(u32),
}

/// A processing engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    pub(crate) free_at: Ps,
    /// Time of its next event, or the end of time.
    pub(crate) wakes_at: Ps,
}

/// Number of the engine that handles arriving packets; with a shared pipeline it sends too.
pub(crate) const RECEIVER: u8 = 0;
/// Number of the engine that sends.
pub(crate) const SENDER: u8 = 1;

/// Number of packets of the largest size that may wait between engine and wire.
const WIRE_BACKLOG_PACKETS: f64 = 3.0;

/// A NIC.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) parameters: NicParameters,
    /// Contexts as needed by the requester and by the responder.
    pub(crate) contexts: Cache,
    pub(crate) responders: Cache,
    /// Contexts of completion queues, if the NIC may miss them.
    pub(crate) completions: Option<Cache>,
    pub(crate) elements: Cache,
    pub(crate) translations: Cache,
    pub(crate) engines: [Engine; 2],
    pub(crate) arrived: Queues<u32>,
    pub(crate) arrived_bytes: [u64; PRIORITIES],
    pub(crate) ring: Queues<Source>,
    pub(crate) burst_left: [u32; PRIORITIES],
    /// Turns of the priorities for processing arrived packets, and for sending.
    pub(crate) receives: Turns,
    pub(crate) sends: Turns,
    pub(crate) wire_free: Ps,
    pub(crate) up_free: Ps,
    pub(crate) down_free: Ps,
    /// A fault: the time from which it reaches host memory again.
    pub(crate) dma_from: Ps,
    /// A fault: the factor by which PCIe transfers take longer.
    pub(crate) dma_slowness: f64,
    pub(crate) fetch_free: Ps,
    pub(crate) atomic_free: Ps,
    /// Priorities in which it is paused, and those that it has paused, a bit each.
    pub(crate) paused: u8,
    pub(crate) pause_sent: u8,
    pub(crate) headroom: Headroom,
    /// Rates reduced by congestion control, by destination or queue pair.
    pub(crate) rates: BTreeMap<u32, RateControl>,
    pub(crate) counters: Counters,
    pub(crate) clock: Clock,
    /// Picoseconds per byte on the wire and on PCIe.
    pub(crate) wire_byte: f64,
    pub(crate) pcie_byte: f64,
    pub(crate) random: Random,
}

/// The entry that a cache evicts from a full set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Random,
    Oldest,
}

impl Nic {
    pub(crate) fn new(parameters: NicParameters, seed: u64, host: u64) -> Self {
        let p = &parameters;
        let cache = |kind, sets: f64, ways: f64, victim: Victim| {
            let mut random = Random::of(seed, kind, host);
            let salt = random.next();
            let random = (victim == Victim::Random).then_some(random);
            Cache::new(sets as usize, ways as usize, salt, random)
        };
        let idle = Engine {
            free_at: 0,
            wakes_at: Ps::MAX,
        };
        Self {
            contexts: cache("contexts", p.context_sets, p.context_ways, Victim::Random),
            responders: cache(
                "responders",
                p.responder_sets,
                p.responder_ways,
                Victim::Random,
            ),
            completions: (p.completion_sets != 0.0).then(|| {
                let (sets, ways) = (p.completion_sets, p.completion_ways);
                cache("completions", sets, ways, Victim::Random)
            }),
            elements: cache("elements", p.wqe_sets, p.wqe_ways, Victim::Oldest),
            translations: cache(
                "translations",
                p.translation_sets,
                p.translation_ways,
                Victim::Random,
            ),
            engines: [idle; 2],
            arrived: Queues::default(),
            arrived_bytes: [0; PRIORITIES],
            ring: Queues::default(),
            burst_left: [0; PRIORITIES],
            receives: p.turns(),
            sends: p.turns(),
            wire_free: 0,
            up_free: 0,
            down_free: 0,
            dma_from: 0,
            dma_slowness: 1.0,
            fetch_free: 0,
            atomic_free: 0,
            paused: 0,
            pause_sent: 0,
            headroom: Headroom::new(None),
            rates: BTreeMap::new(),
            counters: Counters::default(),
            clock: Clock::draw(p, seed, host),
            wire_byte: 8_000.0 / p.link_gbit_s,
            pcie_byte: 1_000.0 / p.pcie_gbyte_s,
            random: Random::of(seed, "nic", host),
            parameters,
        }
    }

    /// Bytes of a priority in the NIC's buffer above which it pauses its switch, if it may.
    pub(crate) fn pause_level(&self) -> u64 {
        self.parameters.rx_buffer_bytes as u64 / 2
    }

    /// Backlog allowed between engine and wire, as time on the wire.
    pub(crate) fn wire_backlog(&self) -> Ps {
        (WIRE_BACKLOG_PACKETS * self.parameters.mtu_bytes * self.wire_byte) as Ps
    }

    /// The engine that sends.
    pub(crate) fn sender(&self) -> u8 {
        if self.parameters.shared_pipeline != 0.0 {
            RECEIVER
        } else {
            SENDER
        }
    }

    /// The time that bytes take over PCIe.
    #[inline]
    pub(crate) fn pcie_time(&self, bytes: u64) -> Ps {
        (bytes as f64 * self.pcie_byte * self.dma_slowness) as Ps
    }

    /// Number of PCIe packets for a payload.
    #[inline]
    pub(crate) fn chunks(&self, bytes: u64) -> u64 {
        bytes
            .div_ceil(self.parameters.pcie_chunk_bytes as u64)
            .max(1)
    }

    /// Engine time for a payload of this length.
    #[inline]
    pub(crate) fn payload_time(&self, bytes: u64) -> Ps {
        // `byte` is rounded to a picosecond, which is enough for 0.025 ns.
        bytes * self.parameters.byte + (self.chunks(bytes) - 1) * self.parameters.chunk
    }
}
