//! Workloads of key-value stores: YCSB's, and single operations.

/// Zipf-distributed keys by Gray's method ("Quickly generating billion-record synthetic databases", SIGMOD '94), as in
/// YCSB.
#[derive(Debug)]
pub struct Zipf {
    entries: u32,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over `entries` keys with skew `theta` (above 0, below 1).
    pub fn new(entries: u32, theta: f64) -> Self {
        let zeta: f64 = (1..=u64::from(entries))
            .map(|i| (i as f64).powf(-theta))
            .sum();
        let zeta_two = 1.0 + 0.5f64.powf(theta);
        let alpha = 1.0 / (1.0 - theta);
        let n = f64::from(entries);
        let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Self {
            entries,
            theta,
            alpha,
            zeta,
            eta,
        }
    }

    /// The rank that a uniform `u` of 0 to 1 stands for; 0 is the most frequent.
    fn rank(&self, u: f64) -> u32 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.entries - 1);
        }
        let n = f64::from(self.entries);
        let rank = n * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u32).min(self.entries - 1)
    }
}

/// The distribution of keys.
#[derive(Debug)]
pub enum Keys {
    /// All equally often.
    Uniform(u32),
    /// Some far more often than others.
    Zipf(Zipf),
}

impl Keys {
    fn entries(&self) -> u32 {
        match self {
            Self::Uniform(entries) => *entries,
            Self::Zipf(zipf) => zipf.entries,
        }
    }

    /// 0 is the most frequent.
    fn rank(&self, random: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Uniform(entries) => random.u32(0..*entries),
            Self::Zipf(zipf) => zipf.rank(random.f64()),
        }
    }
}

/// One operation of a workload, with the number of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Read the entry.
    Read(u32),
    /// Read the entry that was added this many before the newest.
    ReadLatest(u32),
    /// Replace its value.
    Update(u32),
    /// Read the entry, then replace its value.
    ReadModifyWrite(u32),
    /// Add one.
    Insert,
    /// Read this many entries, starting at this one.
    Scan(u32, u8),
}

/// The workloads: YCSB's core workloads, and single operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// GETs only
    Get,
    /// PUTs of existing keys only
    Put,
    /// Scans of 1 to `--scan-most` entries only
    Scan,
    /// YCSB A: half reads, half updates
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates
    YcsbB,
    /// YCSB C: reads only
    YcsbC,
    /// YCSB D: 95 % reads of recent inserts, 5 % inserts
    YcsbD,
    /// YCSB E: 95 % scans of 1 to `--scan-most` entries, 5 % inserts
    YcsbE,
    /// YCSB F: half reads, half read-modify-writes
    YcsbF,
}

/// The longest scan of YCSB E.
pub const MAX_SCAN: u8 = 100;

impl Workload {
    /// Its name, as on the command line.
    pub fn name(self) -> String {
        let named = clap::ValueEnum::to_possible_value(&self);
        named.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it scans.
    pub fn scans(self) -> bool {
        matches!(self, Self::Scan | Self::YcsbE)
    }

    /// Whether it adds entries.
    pub fn inserts(self) -> bool {
        matches!(self, Self::YcsbD | Self::YcsbE)
    }

    /// Whether YCSB draws its keys by Zipf's law.
    pub fn is_ycsb(self) -> bool {
        !matches!(self, Self::Get | Self::Put | Self::Scan)
    }

    /// The share of its first operation, and the first and the second operation for an entry.
    fn draw(self, scan_most: u8, keys: &Keys, random: &mut fastrand::Rng) -> Choice {
        let share = match self {
            Self::Get | Self::Put | Self::Scan | Self::YcsbC => 1.0,
            Self::YcsbA | Self::YcsbF => 0.5,
            Self::YcsbB | Self::YcsbD | Self::YcsbE => 0.95,
        };
        let rank = keys.rank(random);
        // Scattered over the key space, as YCSB scatters them.
        let scattered = u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let entry = (scattered % u64::from(keys.entries())) as u32;
        let first = random.f64() < share;
        match self {
            Self::Get | Self::YcsbC => Choice::Read(entry),
            Self::Put => Choice::Update(entry),
            Self::Scan => Choice::Scan(entry, random.u8(1..=scan_most)),
            Self::YcsbD if first => Choice::ReadLatest(rank),
            Self::YcsbE if first => Choice::Scan(entry, random.u8(1..=scan_most)),
            Self::YcsbD | Self::YcsbE => Choice::Insert,
            Self::YcsbA | Self::YcsbB | Self::YcsbF if first => Choice::Read(entry),
            Self::YcsbA | Self::YcsbB => Choice::Update(entry),
            Self::YcsbF => Choice::ReadModifyWrite(entry),
        }
    }
}

/// A stream of operations; the same seed gives the same stream.
#[derive(Debug)]
pub struct Mix {
    /// Choices drawn ahead of time, because drawing one costs more than a call.
    choices: Vec<Choice>,
    at: usize,
}

/// Length of the repeated stream.
const CHOICES: usize = 1 << 20;

impl Mix {
    /// Operations of a workload on `keys`, with scans of at most the given number of entries.
    pub fn new((workload, scan_most): (Workload, u8), keys: &Keys, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let choices = (0..CHOICES).map(|_| workload.draw(scan_most, keys, &mut random));
        Self {
            choices: choices.collect(),
            at: 0,
        }
    }

    /// The next operation.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Choice {
        let choice = self.choices[self.at];
        self.at = (self.at + 1) % CHOICES;
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fall_as_zipf_says() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = [0u32; 1000];
        for _ in 0..200_000 {
            counts[zipf.rank(random.f64()) as usize] += 1;
        }
        // The most frequent key has 1/zeta of all draws: 13 %.
        let first = f64::from(counts[0]) / 200_000.0;
        assert!((first - 1.0 / zipf.zeta).abs() < 0.01, "{first}");
        assert!(counts[0] > counts[9] && counts[9] > counts[99]);
    }

    #[test]
    fn the_mixes_have_their_shares_and_replay() {
        for (workload, share) in [
            (Workload::YcsbA, 0.5),
            (Workload::YcsbB, 0.95),
            (Workload::YcsbC, 1.0),
            (Workload::YcsbD, 0.95),
            (Workload::YcsbE, 0.95),
            (Workload::YcsbF, 0.5),
            (Workload::Get, 1.0),
            (Workload::Put, 0.0),
            (Workload::Scan, 1.0),
        ] {
            let keys = Keys::Zipf(Zipf::new(100, 0.99));
            let mut mix = Mix::new((workload, MAX_SCAN), &keys, 1);
            let mut again = Mix::new((workload, MAX_SCAN), &keys, 1);
            let reads = (0..10_000).filter(|_| {
                let choice = mix.next();
                assert_eq!(choice, again.next());
                matches!(
                    choice,
                    Choice::Read(_) | Choice::ReadLatest(_) | Choice::Scan(..)
                )
            });
            let found = reads.count() as f64 / 10_000.0;
            assert!((found - share).abs() < 0.02, "{workload:?}: {found}");
        }
    }
}
