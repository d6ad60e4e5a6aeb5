//! Draws faults from the seed.

use std::ops::Range;
use std::time::Duration;

use super::Fault;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// [`Fault::Loss`].
    Loss,
    /// [`Fault::Delay`].
    Delay,
    /// [`Fault::Duplicates`].
    Duplicates,
    /// [`Fault::Partition`] of one host from the others.
    Partition,
    /// [`Fault::Pause`].
    Pause,
    /// [`Fault::Slow`].
    Slow,
    /// [`Fault::LostConnections`].
    LostConnections,
    /// [`Fault::Crash`].
    Crash,
    /// [`Fault::Restart`] of a host on which everything is restartable, if there is one.
    Restart,
    /// [`Fault::Clock`].
    Clock,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Loss,
        Self::Delay,
        Self::Duplicates,
        Self::Partition,
        Self::Pause,
        Self::Slow,
        Self::LostConnections,
        Self::Crash,
        Self::Restart,
        Self::Clock,
    ];
}

/// The parameters of a draw.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) when: Range<Duration>,
    pub(super) most: usize,
    pub(super) kinds: Vec<Kind>,
}

/// A random stream separate from that of programs.
const STREAM: u64 = 0x6661_756c_7473_0000;
const SHARES: [f64; 4] = [0.01, 0.1, 0.5, 1.0];

impl Order {
    /// `restartable`: the hosts on which everything is restartable.
    pub(super) fn draw(
        self,
        seed: u64,
        hosts: &[String],
        restartable: &[String],
    ) -> Vec<(Duration, Fault)> {
        let mut random = fastrand::Rng::with_seed(seed ^ STREAM);
        let mut kinds = self.kinds;
        if restartable.is_empty() {
            kinds.retain(|kind| *kind != Kind::Restart);
        }
        let mut faults = Vec::new();
        for _ in 0..random.usize(0..=self.most) {
            if kinds.is_empty() || hosts.is_empty() {
                break;
            }
            let kind = kinds[random.usize(..kinds.len())];
            let when = nanoseconds(self.when.start)..nanoseconds(self.when.end);
            let at = match when.is_empty() {
                true => when.start,
                false => random.u64(when),
            };
            let hosts = match kind {
                Kind::Restart => restartable,
                _ => hosts,
            };
            faults.push((Duration::from_nanos(at), draw(kind, &mut random, hosts)));
            if kind == Kind::Crash {
                kinds.retain(|other| *other != kind);
            }
        }
        faults
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn draw(kind: Kind, random: &mut fastrand::Rng, hosts: &[String]) -> Fault {
    let host = hosts[random.usize(..hosts.len())].clone();
    let lasts = Duration::from_micros(random.u64(10..=2_000));
    let share = SHARES[random.usize(..SHARES.len())];
    match kind {
        Kind::Loss => Fault::Loss { share, lasts },
        Kind::Delay => Fault::Delay {
            most: Duration::from_micros(random.u64(1..=100)),
            lasts,
        },
        Kind::Duplicates => Fault::Duplicates { share, lasts },
        Kind::Partition => Fault::Partition {
            hosts: vec![host],
            lasts,
        },
        Kind::Pause => Fault::Pause { host, lasts },
        Kind::Slow => Fault::Slow {
            host,
            factor: random.u32(2..=20).into(),
            lasts,
        },
        Kind::LostConnections => Fault::LostConnections { host },
        Kind::Crash => Fault::Crash { host },
        Kind::Restart => Fault::Restart { host, lasts },
        Kind::Clock => Fault::Clock {
            host,
            jump_ns: random.i64(-5_000_000..=5_000_000),
            drift_ppm: random.i32(-200..=200),
        },
    }
}
