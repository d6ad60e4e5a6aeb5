//! Presets: named compositions of transport, channel, sharing and admission (design §1).

use std::fmt;
use std::str::FromStr;

use dunlin_verbs::{DeviceAttributes, Transport, Verbs};

use crate::channel::datagram::Protocol;
use crate::channel::pool::Mapping;
use crate::sharing::{Discipline, Lanes, Moves, Sharing, RUN_MESSAGES};

/// A composition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// RC, one ring channel for each client thread, nothing shared, everyone admitted: the ground that the systems
    /// stand on.
    Plain,
    /// FLOCK (SOSP'21): threads share a few queue pairs by combining queues, under credits and both schedulers.
    Flock,
    /// FLOCK's rival: one queue pair for each thread, nothing shared. As `plain`, in the frame that the other ways of
    /// sharing have: a handle with its dispatcher, so that they differ by how queue pairs are shared alone (§8.3.1).
    QpPerThread,
    /// FLOCK's rival: two threads share a queue pair under a spinlock, as in FaRM.
    Spinlock2,
    /// FLOCK's rival: four threads share a queue pair under a spinlock, as in FaRM.
    Spinlock4,
    /// FLOCK with one request in each message (§8.3.1).
    FlockNoCoalescing,
    /// FLOCK whose threads stay on the queue pair that they were given, two threads on each (§8.3.2).
    FlockNoScheduling,
    /// FaSST (OSDI'16): datagrams, one UD queue pair for each thread, nothing shared, everyone admitted.
    Fasst,
    /// ScaleRPC (EuroSys'19): clients in groups that are served by turns, in message pools that all share.
    ScaleRpc,
    /// ScaleRPC's rival, FaRM's RPC: a message pool in which each client has a zone for good.
    RawWrite,
    /// ScaleRPC's rival, Octopus's self-identified RPC: as `rawwrite`, but each request comes with a number that says
    /// where it is.
    SelfRpc,
    /// eRPC (NSDI'19): datagrams under credits and a rate, lost ones sent again; one UD queue pair for each thread.
    Erpc,
    /// HERD's RPC (SIGCOMM'14): requests are written over UC into zones that the server polls, responses are datagrams.
    Herd,
    /// Flor (OSDI'23): as `plain`, on logical queue pairs that chunk, repeat and pace in software above UC or RC, with
    /// backups. Any other preset over RC runs on them, too, by the device's name (`flor-roce`).
    Flor,
    /// X-RDMA (CLUSTER'19), which Flor took the place of: over RC each short message is a SEND, and long payloads are
    /// fetched by READ; one queue pair for each thread, everyone admitted.
    Xrdma,
    /// Ours, chosen from the device and the load: over RC FLOCK's sharing and admission with as many active queue pairs
    /// as fill the server's NIC, and fewer, fuller messages when it is at its limit; where queue pairs are software's
    /// the first lanes (17 in shared memory, 9 over UDP) are one thread's each, as with `plain`, and all share when one
    /// more is asked for; on a device without RC what goes over datagrams.
    #[default]
    Auto,
}

/// How messages cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelKind {
    /// A ring each way over an RC queue pair for each connection.
    Ring,
    /// Datagrams over one UD queue pair for all sessions of a thread.
    Datagram(Protocol),
    /// SENDs over an RC queue pair for each connection.
    Sent,
    /// Blocks of a message pool over an RC queue pair for each connection.
    Pool(Mapping),
}

/// Most lanes of a handle with the preset `auto`. How many of them are used is the server's to say, by what its NIC
/// takes: so many are what one client machine can make use of when the NIC is its alone.
const AUTO_LANES: usize = 32;

/// What a request weighs beyond its bytes with the preset `auto`: a NIC that takes 40 M small messages a second and 12
/// GB/s takes as long for one as for 300 B. By bytes alone 29 threads with small requests shared one lane of four
/// beside three with large ones.
const AUTO_REQUEST_BYTES: u64 = 300;

/// Calls that a pipeline keeps out from which on it fills messages by itself.
const AUTO_DEEP_CALLS: usize = 32;

/// How many lanes of a client nobody shares with the preset `auto`, by the device. When one more is asked for all
/// share, from then on: threads that are many times more than the cores change places less often when whoever runs
/// carries for all, and it is slower for some to share and some not (docs/auto.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLanes {
    /// The connecting thread's, which may never call, and those of workers or pipelines.
    most: usize,
    /// The same where it is for a pipeline that keeps [`AUTO_DEEP_CALLS`] out or more.
    most_deep: usize,
    /// Pipelines with so many calls out are counted apart, and stay when all others share: each is a connection to be
    /// looked at by the server, which costs nothing but that where WRITEs are stores.
    deep_stay: bool,
}

impl OwnLanes {
    pub(crate) fn on(device: &DeviceAttributes) -> Self {
        let (most, most_deep, deep_stay) =
            match (device.packets_by_software, device.writes_are_messages) {
                // A packet costs a system call, and many batches of many threads are fewer when they are shared.
                (true, _) => (9, 25, false),
                (false, false) => (17, 64, true),
                // A NIC has a cache for so many queue pairs and takes so many messages: all share.
                (false, true) => (0, 0, false),
            };
        Self {
            most,
            most_deep,
            deep_stay,
        }
    }

    /// Whether a lane is one of those that stay, and there may be one more beside so many.
    pub(crate) fn has_deep(self, window: usize, deep: usize) -> bool {
        self.deep_stay && window >= AUTO_DEEP_CALLS && deep < self.most_deep
    }

    /// Whether a pipeline that keeps so many calls out shares when all do.
    pub(crate) fn may_share(self, window: usize) -> bool {
        window < AUTO_DEEP_CALLS || !self.deep_stay
    }

    /// Whether so many lanes are all that there may be, for one more that keeps so many calls out.
    pub(crate) fn are_taken(self, own: usize, window: usize) -> bool {
        let most = match window >= AUTO_DEEP_CALLS && !self.deep_stay {
            true => self.most_deep,
            false => self.most,
        };
        most > 0 && own >= most
    }
}

/// Whose lane it is that a preset is to be chosen for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Servers that its thread has lanes to.
    pub(crate) servers: usize,
    /// Whether its client works on memory of the server.
    pub(crate) one_sided: bool,
    /// Lanes of the same client that are each one thread's own.
    pub(crate) own: usize,
    /// Lanes of its pipelines that keep many calls out.
    pub(crate) deep: usize,
    /// Most calls that its user keeps out.
    pub(crate) window: usize,
}

impl Preset {
    /// Every preset there is.
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
        Preset::Auto,
    ];

    /// Its name on the command line and in the handshake.
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
            Preset::Auto => "auto",
        }
    }

    /// What it is on a device, for a lane: only `auto` depends on that.
    pub(crate) fn on(self, device: &DeviceAttributes, lane: Situation) -> Self {
        let has = |transport, verb| device.transports.verbs(transport).contains(verb);
        if self != Preset::Auto {
            return self;
        }
        if !has(Transport::ReliableConnection, Verbs::WRITE) {
            // Sends again what is lost.
            return Preset::Erpc;
        }
        let has_datagrams = has(Transport::UnreliableDatagram, Verbs::SEND);
        if device.queue_pairs_by_software() {
            // No NIC has too many of them, and who has one for itself pays nothing for sharing.
            let lanes = OwnLanes::on(device);
            return match !lanes.are_taken(lane.own, lane.window)
                || lanes.has_deep(lane.window, lane.deep)
            {
                true => Preset::Plain,
                false => self,
            };
        }
        if lane.servers > 1 && !lane.one_sided && has_datagrams && device.lossless {
            // One queue pair for all of them, and one doorbell: cheaper from the second on. Memory is not to be had by
            // it, and what is read past the server's processor is worth more (docs/auto.md).
            return Preset::Fasst;
        }
        self
    }

    /// Whether its queue pairs are Flor's.
    pub(crate) fn is_over_flor(self) -> bool {
        self == Preset::Flor
    }

    /// How messages cross.
    pub(crate) fn channel(self) -> ChannelKind {
        match self {
            Preset::Fasst => ChannelKind::Datagram(Protocol::Bare),
            Preset::Erpc => ChannelKind::Datagram(Protocol::Driven),
            Preset::Herd => ChannelKind::Datagram(Protocol::Written),
            Preset::ScaleRpc => ChannelKind::Pool(Mapping::ByTurns),
            Preset::RawWrite => ChannelKind::Pool(Mapping::Polled),
            Preset::SelfRpc => ChannelKind::Pool(Mapping::Notified),
            Preset::Xrdma => ChannelKind::Sent,
            _ => ChannelKind::Ring,
        }
    }

    /// How threads share queue pairs; `None`: they do not. `lanes`: most lanes of a handle.
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
            | Preset::Xrdma => None,
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

/// No preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preset '{0}'; there are: {names}", names = names())]
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
        // Notifications in memory are cheap to look at, and those of the first lanes are nobody else's.
        assert_eq!(on(Preset::Auto, &with, 100, 0), Preset::Plain);
        assert_eq!(on(Preset::Auto, &with, 1, 16), Preset::Plain);
        assert_eq!(on(Preset::Auto, &with, 1, 17), Preset::Auto);
        assert_eq!(on(Preset::Auto, &without, 1, 0), Preset::Erpc);
        assert_eq!(on(Preset::Plain, &without, 100, 9), Preset::Plain);
        assert_eq!(on(Preset::Flock, &with, 1, 0), Preset::Flock);
        // Those of a NIC are not cheap, but datagrams that a network drops are no choice.
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
        // Nor has software too many queue pairs, but each packet costs a system call.
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
        // In memory beside all others, and as long as they like.
        assert_eq!(on(&memory, 31, 17, 0), Preset::Auto);
        assert_eq!(on(&memory, 32, 17, 63), Preset::Plain);
        assert_eq!(on(&memory, 32, 17, 64), Preset::Auto);
        // Else there may be more of them, until all share.
        assert_eq!(on(&packets, 31, 9, 0), Preset::Auto);
        assert_eq!(on(&packets, 32, 24, 0), Preset::Plain);
        assert_eq!(on(&packets, 32, 25, 0), Preset::Auto);
    }
}
