//! Presets: named compositions of transport, channel, sharing and admission (design §1).

use std::fmt;
use std::str::FromStr;

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use crate::channel::datagram::Protocol;
use crate::channel::pool::Mapping;
use crate::sharing::{Discipline, Lanes, Moves, Sharing, RUN_MESSAGES};

/// A named composition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// RC, one ring channel for each client thread, nothing shared, everyone admitted: the basis of the other systems.
    Plain,
    /// FLOCK (SOSP'21): threads share a few queue pairs by combining queues, under credits and both schedulers.
    Flock,
    /// FLOCK's competitor: one queue pair for each thread, nothing shared. As `plain`, but inside a connection handle
    /// with its dispatcher, as with the other ways of sharing, so that they differ only in how queue pairs are shared
    /// (§8.3.1).
    QpPerThread,
    /// FLOCK's competitor: two threads share a queue pair under a spinlock, as in FaRM.
    Spinlock2,
    /// FLOCK's competitor: four threads share a queue pair under a spinlock, as in FaRM.
    Spinlock4,
    /// FLOCK with one request in each message (§8.3.1).
    FlockNoCoalescing,
    /// FLOCK whose threads stay on the queue pair that they were assigned, two threads on each (§8.3.2).
    FlockNoScheduling,
    /// FaSST (OSDI'16): datagrams, one UD queue pair for each thread, nothing shared, everyone admitted.
    Fasst,
    /// ScaleRPC (EuroSys'19): groups of clients are served in turn, in message pools that all groups share.
    ScaleRpc,
    /// ScaleRPC's competitor, FaRM's RPC: a message pool in which each client has a fixed zone.
    RawWrite,
    /// ScaleRPC's competitor, Octopus's self-identified RPC: as `rawwrite`, but each request carries a number that says
    /// where it is.
    SelfRpc,
    /// eRPC (NSDI'19): datagrams under credits and rate control, with retransmission; one UD queue pair for each
    /// thread.
    Erpc,
    /// HERD's RPC (SIGCOMM'14): requests are written over UC into zones that the server polls, responses are datagrams.
    Herd,
    /// Flor (OSDI'23): as `plain`, on logical queue pairs that chunk, retransmit and pace in software above UC or RC,
    /// with backups. Any other preset over RC runs on them, too, by the device's name (`flor-roce`).
    Flor,
    /// X-RDMA (CLUSTER'19), the predecessor of Flor: over RC each short message is a SEND, and long payloads are
    /// fetched by READ; one queue pair for each thread, everyone admitted.
    Xrdma,
    /// RB²: as `plain`, over RB²'s distributed ring buffers: write twice, adaptive batching, lazy push, zero copy at
    /// the producer. The ring is that of the crate `dunlin-ring`.
    Rb2,
    /// Dunlin's own, chosen by device and load. With RC on a NIC: FLOCK's sharing and admission with as many active
    /// queue pairs as saturate the server's NIC, and fewer, fuller messages when it is at its limit. Where software
    /// implements queue pairs, the first lanes (17 in shared memory, 9 over UDP) belong to one thread each, as with
    /// `plain`, and all threads share when one more is requested. On a device without RC: datagrams.
    #[default]
    Auto,
}

/// How messages are transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelKind {
    /// A ring in each direction over an RC queue pair per connection.
    Ring,
    /// Datagrams over one UD queue pair for all sessions of a thread.
    Datagram(Protocol),
    /// SENDs over an RC queue pair per connection.
    Sent,
    /// RB²'s ring in each direction over an RC queue pair per connection.
    Rb2,
    /// Blocks of a message pool over an RC queue pair per connection.
    Pool(Mapping),
}

/// Maximum number of lanes of a handle with the preset `auto`: as many as one client machine can make use of when it
/// has the NIC to itself. The server decides how many of them are used, by what its NIC can handle.
const AUTO_LANES: usize = 32;

/// Weight of a request beyond its bytes with the preset `auto`: a NIC that handles 40 M small messages a second and 12
/// GB/s needs as long for one message as for 300 B. By bytes alone, 29 threads with small requests shared one lane of
/// four beside three threads with large ones.
const AUTO_REQUEST_BYTES: u64 = 300;

/// Number of outstanding calls from which on a pipeline fills messages by itself.
const AUTO_DEEP_CALLS: usize = 32;

/// Number of a client's lanes that are not shared with the preset `auto`, by device. When one more is requested, all
/// threads share from then on: where threads outnumber the cores many times, there are fewer context switches when the
/// running thread sends for all, and it is slower if only some share (docs/auto.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLanes {
    /// Lanes of the connecting thread, which may never call, and of workers or pipelines.
    most: usize,
    /// The same limit when a pipeline that keeps [`AUTO_DEEP_CALLS`] or more outstanding requests a lane.
    most_deep: usize,
    /// Pipelines with so many calls outstanding are counted separately and keep their lanes when all others share: each
    /// is one more connection that the server polls, which is their only cost where WRITEs are stores.
    deep_stay: bool,
}

impl OwnLanes {
    pub(crate) fn on(device: &DeviceAttributes) -> Self {
        let (most, most_deep, deep_stay) =
            match (device.packets_by_software, device.writes_are_messages) {
                // A packet costs a system call; sharing turns many batches of many threads into fewer.
                (true, _) => (9, 25, false),
                (false, false) => (17, 64, true),
                // A NIC caches a limited number of queue pairs and handles a limited number of messages: all threads
                // share.
                (false, true) => (0, 0, false),
            };
        Self {
            most,
            most_deep,
            deep_stay,
        }
    }

    /// Whether the lane is one that is kept, and one more may be added to `deep` of them.
    pub(crate) fn has_deep(self, window: usize, deep: usize) -> bool {
        self.deep_stay && window >= AUTO_DEEP_CALLS && deep < self.most_deep
    }

    /// Whether a pipeline with this window shares when all others do.
    pub(crate) fn may_share(self, window: usize) -> bool {
        window < AUTO_DEEP_CALLS || !self.deep_stay
    }

    /// Whether `own` lanes are all that there may be, for one more with this window.
    pub(crate) fn are_taken(self, own: usize, window: usize) -> bool {
        let most = match window >= AUTO_DEEP_CALLS && !self.deep_stay {
            true => self.most_deep,
            false => self.most,
        };
        most > 0 && own >= most
    }
}

/// The circumstances of a lane for which a preset is to be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Number of servers that its thread has lanes to.
    pub(crate) servers: usize,
    /// Whether its client accesses memory of the server.
    pub(crate) one_sided: bool,
    /// Number of lanes of the same client that belong to one thread each.
    pub(crate) own: usize,
    /// Number of lanes of its pipelines that keep many calls outstanding.
    pub(crate) deep: usize,
    /// Maximum number of calls that its user keeps outstanding.
    pub(crate) window: usize,
}

impl Preset {
    /// All presets.
    pub const ALL: &'static [Preset] = &[
        Preset::Plain,
        Preset::Flock,
        Preset::QpPerThread,
        Preset::Spinlock2,
        Preset::Spinlock4,
        Preset::FlockNoCoalescing,
        Preset::FlockNoScheduling,
        Preset::Fasst,
        Preset::ScaleRpc,
        Preset::RawWrite,
        Preset::SelfRpc,
        Preset::Erpc,
        Preset::Herd,
        Preset::Flor,
        Preset::Xrdma,
        Preset::Rb2,
        Preset::Auto,
    ];

    /// The name on the command line and in the handshake.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Plain => "plain",
            Preset::Flock => "flock",
            Preset::QpPerThread => "qp-per-thread",
            Preset::Spinlock2 => "spinlock-2",
            Preset::Spinlock4 => "spinlock-4",
            Preset::FlockNoCoalescing => "flock-no-coalescing",
            Preset::FlockNoScheduling => "flock-no-scheduling",
            Preset::Fasst => "fasst",
            Preset::ScaleRpc => "scalerpc",
            Preset::RawWrite => "rawwrite",
            Preset::SelfRpc => "selfrpc",
            Preset::Erpc => "erpc",
            Preset::Herd => "herd",
            Preset::Flor => "flor",
            Preset::Xrdma => "xrdma",
            Preset::Rb2 => "rb2",
            Preset::Auto => "auto",
        }
    }

    /// The preset to use for a lane on this device: only `auto` depends on it.
    pub(crate) fn on(self, device: &DeviceAttributes, lane: Situation) -> Self {
        let has = |transport, verb| device.transports.verbs(transport).contains(verb);
        if self != Preset::Auto {
            return self;
        }
        if !has(Transport::ReliableConnection, Verbs::WRITE) {
            // Retransmits what is lost.
            return Preset::Erpc;
        }
        let has_datagrams = has(Transport::UnreliableDatagram, Verbs::SEND);
        if device.queue_pairs_by_software() {
            // There is no NIC that could have too many of them, and a lane of one's own avoids the cost of sharing.
            let lanes = OwnLanes::on(device);
            return match !lanes.are_taken(lane.own, lane.window)
                || lanes.has_deep(lane.window, lane.deep)
            {
                true => Preset::Plain,
                false => self,
            };
        }
        if lane.servers > 1 && !lane.one_sided && has_datagrams && device.lossless {
            // One queue pair and one doorbell for all of them: cheaper from the second server on. It does not support
            // access to memory, and reads that bypass the server's processor are worth more (docs/auto.md).
            return Preset::Fasst;
        }
        self
    }

    /// Whether its queue pairs are Flor's.
    pub(crate) fn is_over_flor(self) -> bool {
        self == Preset::Flor
    }

    /// How messages are transferred.
    pub(crate) fn channel(self) -> ChannelKind {
        match self {
            Preset::Fasst => ChannelKind::Datagram(Protocol::Bare),
            Preset::Erpc => ChannelKind::Datagram(Protocol::Driven),
            Preset::Herd => ChannelKind::Datagram(Protocol::Written),
            Preset::ScaleRpc => ChannelKind::Pool(Mapping::ByTurns),
            Preset::RawWrite => ChannelKind::Pool(Mapping::Polled),
            Preset::SelfRpc => ChannelKind::Pool(Mapping::Notified),
            Preset::Xrdma => ChannelKind::Sent,
            Preset::Rb2 => ChannelKind::Rb2,
            _ => ChannelKind::Ring,
        }
    }

    /// How threads share queue pairs; `None` if they do not. `lanes` is the maximum number of lanes of a handle.
    pub(crate) fn sharing(self, lanes: usize) -> Option<Sharing> {
        let flock = Sharing {
            discipline: Discipline::Combining,
            lanes: Lanes::UpTo(lanes),
            moves: Moves::EachInterval,
            admitted: true,
            few: false,
            request_bytes: 0,
            run: RUN_MESSAGES,
            dispatched: false,
        };
        let spinlock = |threads| Sharing {
            discipline: Discipline::Spinlock,
            lanes: Lanes::OneFor(threads),
            moves: Moves::Never,
            admitted: false,
            few: false,
            request_bytes: 0,
            run: RUN_MESSAGES,
            dispatched: false,
        };
        match self {
            Preset::Plain
            | Preset::Fasst
            | Preset::ScaleRpc
            | Preset::RawWrite
            | Preset::SelfRpc
            | Preset::Erpc
            | Preset::Herd
            | Preset::Flor
            | Preset::Xrdma
            | Preset::Rb2 => None,
            Preset::Flock => Some(flock),
            Preset::Auto => Some(Sharing {
                lanes: Lanes::UpTo(lanes.min(AUTO_LANES)),
                few: true,
                moves: Moves::WhenUneven,
                request_bytes: AUTO_REQUEST_BYTES,
                ..flock
            }),
            Preset::QpPerThread => Some(spinlock(1)),
            Preset::Spinlock2 => Some(spinlock(2)),
            Preset::Spinlock4 => Some(spinlock(4)),
            Preset::FlockNoCoalescing => Some(Sharing {
                discipline: Discipline::Alone,
                run: 1,
                ..flock
            }),
            Preset::FlockNoScheduling => Some(Sharing {
                lanes: Lanes::OneFor(2),
                moves: Moves::Never,
                ..flock
            }),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for an unknown preset name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown preset '{0}'; available: {names}", names = names())]
pub struct UnknownPreset(String);

fn names() -> String {
    let names: Vec<_> = Preset::ALL.iter().map(|preset| preset.name()).collect();
    names.join(", ")
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Preset::ALL
            .iter()
            .copied()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| UnknownPreset(name.to_string()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn auto_writes_where_it_can() {
        let shm = dunlin_shm::ShmDevice::open(dunlin_shm::ShmConfig::default()).unwrap();
        let with = dunlin_verbs::Device::attributes(&shm).clone();
        let without = DeviceAttributes {
            transports: dunlin_verbs::TransportSet {
                rc: Verbs::empty(),
                ..with.transports
            },
            ..with.clone()
        };
        let on = |preset: Preset, device: &DeviceAttributes, servers, own| {
            preset.on(
                device,
                Situation {
                    servers,
                    one_sided: false,
                    own,
                    deep: 0,
                    window: 1,
                },
            )
        };
        // Notifications in memory are cheap to poll, and those of the first lanes belong to one thread each.
        assert_eq!(on(Preset::Auto, &with, 100, 0), Preset::Plain);
        assert_eq!(on(Preset::Auto, &with, 1, 16), Preset::Plain);
        assert_eq!(on(Preset::Auto, &with, 1, 17), Preset::Auto);
        assert_eq!(on(Preset::Auto, &without, 1, 0), Preset::Erpc);
        assert_eq!(on(Preset::Plain, &without, 100, 9), Preset::Plain);
        assert_eq!(on(Preset::Flock, &with, 1, 0), Preset::Flock);
        // Those of a NIC are not cheap, but datagrams are not an option if the network drops them.
        let nic = DeviceAttributes {
            writes_are_messages: true,
            ..with
        };
        assert_eq!(on(Preset::Auto, &nic, 1, 0), Preset::Auto);
        assert_eq!(on(Preset::Auto, &nic, 2, 0), Preset::Fasst);
        let reading = Situation {
            servers: 2,
            one_sided: true,
            own: 0,
            deep: 0,
            window: 1,
        };
        assert_eq!(Preset::Auto.on(&nic, reading), Preset::Auto);
        let lossy = DeviceAttributes {
            lossless: false,
            packets_by_software: false,
            ..nic
        };
        assert_eq!(on(Preset::Auto, &lossy, 2, 0), Preset::Auto);
        // Software does not have too many queue pairs either, but each packet costs a system call.
        let packets = DeviceAttributes {
            packets_by_software: true,
            ..lossy
        };
        assert_eq!(on(Preset::Auto, &packets, 2, 8), Preset::Plain);
        assert_eq!(on(Preset::Auto, &packets, 1, 9), Preset::Auto);
    }

    #[test]
    fn many_calls_have_a_lane_of_their_own() {
        let shm = dunlin_shm::ShmDevice::open(dunlin_shm::ShmConfig::default()).unwrap();
        let memory = dunlin_verbs::Device::attributes(&shm).clone();
        let packets = DeviceAttributes {
            packets_by_software: true,
            ..memory.clone()
        };
        let on = |device: &DeviceAttributes, window, own, deep| {
            let lane = Situation {
                servers: 1,
                one_sided: false,
                own,
                deep,
                window,
            };
            Preset::Auto.on(device, lane)
        };
        // In memory: in addition to all others, and they are kept.
        assert_eq!(on(&memory, 31, 17, 0), Preset::Auto);
        assert_eq!(on(&memory, 32, 17, 63), Preset::Plain);
        assert_eq!(on(&memory, 32, 17, 64), Preset::Auto);
        // Otherwise there may be more of them, until all share.
        assert_eq!(on(&packets, 31, 9, 0), Preset::Auto);
        assert_eq!(on(&packets, 32, 24, 0), Preset::Plain);
        assert_eq!(on(&packets, 32, 25, 0), Preset::Auto);
    }
}
