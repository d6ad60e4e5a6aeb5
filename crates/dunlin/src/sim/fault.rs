//! What can happen to simulated hosts.

use std::time::Duration;

/// Something that happens to hosts, which are named. What lasts ends by itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Packets are lost.
    Loss {
        /// Share of all packets, from 0 to 1.
        share: f64,
        /// For so long.
        lasts: Duration,
    },
    /// Packets are late, each by a time of its own, so that they overtake each other.
    Delay {
        /// Up to so much.
        most: Duration,
        /// For so long.
        lasts: Duration,
    },
    /// Packets come twice.
    Duplicates {
        /// Share of all packets, from 0 to 1.
        share: f64,
        /// For so long.
        lasts: Duration,
    },
    /// These hosts reach each other and none of the others.
    Partition {
        /// Hosts.
        hosts: Vec<String>,
        /// For so long.
        lasts: Duration,
    },
    /// The host's threads do nothing, as those of a process that was stopped, and notice it by the time alone: its NIC
    /// works on.
    Pause {
        /// The host.
        host: String,
        /// For so long.
        lasts: Duration,
    },
    /// The host's cores, and its NIC where it receives, are slower.
    Slow {
        /// The host.
        host: String,
        /// So many times.
        factor: f64,
        /// For so long.
        lasts: Duration,
    },
    /// All connections that the host has are lost, as after a failure of its NIC. New ones can be made.
    LostConnections {
        /// The host.
        host: String,
    },
    /// The host stops for ever. Its programs are not waited for.
    Crash {
        /// The host.
        host: String,
    },
    /// The host stops, and comes back with nothing in memory: what is restartable on it
    /// ([`super::Simulation::restartable_server`], [`super::Simulation::restartable_program`]) starts anew, and nothing
    /// else may be on it. Its wall clock goes on. A host that is down already takes no notice.
    Restart {
        /// The host.
        host: String,
        /// It is down for so long.
        lasts: Duration,
    },
    /// The host's wall clock ([`super::Host::clock`]) jumps, and runs faster or slower from then on.
    Clock {
        /// The host.
        host: String,
        /// By so many nanoseconds, back when they are negative.
        jump_ns: i64,
        /// By so many millionths faster, slower when they are negative.
        drift_ppm: i32,
    },
}

impl Fault {
    /// The hosts that it names.
    pub(super) fn hosts(&self) -> &[String] {
        match self {
            Self::Loss { .. } | Self::Delay { .. } | Self::Duplicates { .. } => &[],
            Self::Partition { hosts, .. } => hosts,
            Self::Pause { host, .. }
            | Self::Slow { host, .. }
            | Self::LostConnections { host }
            | Self::Crash { host }
            | Self::Restart { host, .. }
            | Self::Clock { host, .. } => std::slice::from_ref(host),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: &f64| share * 100.0;
        match self {
            Self::Loss { share, lasts } => {
                write!(
                    f,
                    "{:.1} % of packets are lost, for {lasts:?}",
                    percent(share)
                )
            }
            Self::Delay { most, lasts } => {
                write!(f, "packets are up to {most:?} late, for {lasts:?}")
            }
            Self::Duplicates { share, lasts } => {
                write!(
                    f,
                    "{:.1} % of packets come twice, for {lasts:?}",
                    percent(share)
                )
            }
            Self::Partition { hosts, lasts } => {
                write!(f, "{} cut off, for {lasts:?}", hosts.join(", "))
            }
            Self::Pause { host, lasts } => write!(f, "{host} stands still, for {lasts:?}"),
            Self::Slow {
                host,
                factor,
                lasts,
            } => write!(f, "{host} is {factor:.1} times slower, for {lasts:?}"),
            Self::LostConnections { host } => write!(f, "{host} loses its connections"),
            Self::Crash { host } => write!(f, "{host} crashes"),
            Self::Restart { host, lasts } => {
                write!(f, "{host} crashes, and is back after {lasts:?}")
            }
            Self::Clock {
                host,
                jump_ns,
                drift_ppm,
            } => write!(
                f,
                "the clock of {host} jumps by {jump_ns} ns and drifts by {drift_ppm} ppm"
            ),
        }
    }
}
