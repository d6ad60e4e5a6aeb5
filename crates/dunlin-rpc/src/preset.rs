//! Presets: named compositions of transport, channel, sharing and admission (design §1).

use std::fmt;
use std::str::FromStr;

use crate::sharing::{Discipline, Lanes, Sharing, RUN_MESSAGES};

/// A composition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// RC, one ring channel for each client thread, nothing shared, everyone admitted: the ground that the systems stand on.
    #[default]
    Plain,
    /// FLOCK (SOSP'21): threads share a few queue pairs by combining queues, under credits and both schedulers.
    Flock,
    /// FLOCK's rival: one queue pair for each thread, nothing shared. The same as `plain`.
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
}

/// How messages cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelKind {
    /// A ring each way over an RC queue pair for each connection.
    Ring,
    /// Datagrams over one UD queue pair for all sessions of a thread.
    Datagram,
    /// Blocks of a message pool over an RC queue pair for each connection; `fixed`: in a zone that is the client's for good.
    Pool { fixed: bool },
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
        }
    }

    /// How messages cross.
    pub(crate) fn channel(self) -> ChannelKind {
        match self {
            Preset::Fasst => ChannelKind::Datagram,
            Preset::ScaleRpc => ChannelKind::Pool { fixed: false },
            Preset::RawWrite => ChannelKind::Pool { fixed: true },
            _ => ChannelKind::Ring,
        }
    }

    /// How threads share queue pairs; `None`: they do not. `lanes`: most lanes of a handle.
    pub(crate) fn sharing(self, lanes: usize) -> Option<Sharing> {
        let flock = Sharing {
            discipline: Discipline::Combining,
            lanes: Lanes::UpTo(lanes),
            scheduled: true,
            admitted: true,
            run: RUN_MESSAGES,
            dispatched: false,
        };
        let spinlock = |threads| Sharing {
            discipline: Discipline::Spinlock,
            lanes: Lanes::OneFor(threads),
            scheduled: false,
            admitted: false,
            run: RUN_MESSAGES,
            dispatched: false,
        };
        match self {
            Preset::Plain
            | Preset::QpPerThread
            | Preset::Fasst
            | Preset::ScaleRpc
            | Preset::RawWrite => None,
            Preset::Flock => Some(flock),
            Preset::Spinlock2 => Some(spinlock(2)),
            Preset::Spinlock4 => Some(spinlock(4)),
            Preset::FlockNoCoalescing => Some(Sharing {
                discipline: Discipline::Alone,
                run: 1,
                ..flock
            }),
            Preset::FlockNoScheduling => Some(Sharing {
                lanes: Lanes::OneFor(2),
                scheduled: false,
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
