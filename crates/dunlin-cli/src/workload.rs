//! YCSB's choices: which operation, which key.

/// Keys by Zipf's law, by Gray's method ("Quickly generating billion-record synthetic databases", SIGMOD '94), as YCSB
/// does it.
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

/// One operation of a workload, with the number of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Read the entry.
    Read(u32),
    /// Replace its value.
    Update(u32),
}

/// A stream of operations; the same seed gives the same stream.
#[derive(Debug)]
pub struct Mix {
    reads: f64,
    /// Choices made ahead of time: drawing one costs more than a call does.
    choices: Vec<Choice>,
    at: usize,
}

/// Length of the repeated stream.
const CHOICES: usize = 1 << 20;

impl Mix {
    /// `reads` of the operations are reads; keys by `zipf`.
    pub fn new(reads: f64, zipf: Zipf, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let choices = (0..CHOICES)
            .map(|_| {
                // Scattered over the key space, as YCSB scatters them.
                let rank = zipf.rank(random.f64());
                let entry = (u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16)
                    % u64::from(zipf.entries);
                if random.f64() < reads {
                    Choice::Read(entry as u32)
                } else {
                    Choice::Update(entry as u32)
                }
            })
            .collect();
        Self {
            reads,
            choices,
            at: 0,
        }
    }

    /// The share of reads.
    pub fn reads(&self) -> f64 {
        self.reads
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
    fn the_mix_has_its_share_of_reads_and_replays() {
        let mut mix = Mix::new(0.95, Zipf::new(100, 0.99), 1);
        let mut again = Mix::new(0.95, Zipf::new(100, 0.99), 1);
        let reads = (0..10_000).filter(|_| {
            let choice = mix.next();
            assert_eq!(choice, again.next());
            matches!(choice, Choice::Read(_))
        });
        assert!((9_300..9_700).contains(&reads.count()));
        assert_eq!(mix.reads(), 0.95);
    }
}
