//! The faults of simulated hosts.

use std::time::Duration;

/// A fault on hosts, given by name. Faults with a duration end by themselves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Packets are lost.
    Loss {
        /// Share of all packets, from 0 to 1.
        share: f64,
        /// The duration.
        lasts: Duration,
    },
    /// Packets are delayed, each by a different time, so that they are reordered.
    Delay {
        /// Maximum delay.
        most: Duration,
        /// The duration.
        lasts: Duration,
    },
    /// Packets are duplicated.
    Duplicates {
        /// Share of all packets, from 0 to 1.
        share: f64,
        /// The duration.
        lasts: Duration,
    },
    /// These hosts reach each other but none of the others.
    Partition {
        /// The hosts.
        hosts: Vec<String>,
        /// The duration.
        lasts: Duration,
    },
    /// The host's threads do not run, like those of a stopped process, and notice it only by the time: its NIC keeps
    /// working.
    Pause {
        /// The host.
        host: String,
        /// The duration.
        lasts: Duration,
    },
    /// The host's cores, and the receive side of its NIC, are slower.
    Slow {
        /// The host.
        host: String,
        /// The slowdown factor.
        factor: f64,
        /// The duration.
        lasts: Duration,
    },
    /// All connections of the host are lost, as after a failure of its NIC. New ones can be established.
    LostConnections {
        /// The host.
        host: String,
    },
    /// The host stops for ever. The run does not wait for its programs.
    Crash {
        /// The host.
        host: String,
    },
    /// The host stops, and comes back with empty memory: what is restartable on it
    /// ([`super::Simulation::restartable_server`], [`super::Simulation::restartable_program`]) starts again, and
    /// nothing else may be on it. Its wall clock continues. Ignored if the host is already down.
    Restart {
        /// The host.
        host: String,
        /// Time that it is down.
        lasts: Duration,
    },
    /// The host's wall clock ([`super::Host::clock`]) jumps, and runs faster or slower from then on.
    Clock {
        /// The host.
        host: String,
        /// The jump in nanoseconds, backwards if negative.
        jump_ns: i64,
        /// The drift in millionths, slower if negative.
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
                write!(f, "packets are delayed by up to {most:?}, for {lasts:?}")
            }
            Self::Duplicates { share, lasts } => {
                write!(
                    f,
                    "{:.1} % of packets are duplicated, for {lasts:?}",
                    percent(share)
                )
            }
            Self::Partition { hosts, lasts } => {
                write!(
                    f,
                    "{} disconnected from the network, for {lasts:?}",
                    hosts.join(", ")
                )
            }
            Self::Pause { host, lasts } => write!(f, "{host} is paused, for {lasts:?}"),
            Self::Slow {
                host,
                factor,
                lasts,
            } => write!(f, "{host} is {factor:.1} times slower, for {lasts:?}"),
            Self::LostConnections { host } => write!(f, "{host} loses its connections"),
            Self::Crash { host } => write!(f, "{host} crashes"),
            Self::Restart { host, lasts } => {
                write!(f, "{host} crashes, and restarts after {lasts:?}")
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
