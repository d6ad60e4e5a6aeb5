//! YCSB (Cooper et al., SoCC '10): the workloads A, B, C, D and F. E scans, for which the tables have no index.
use super::Workload;
use crate::logic::{Access, Logic, Once, Step, View};
use crate::server::TableSpec;
use crate::types::{Key, Value};

/// Ten fields of 100 bytes.
const VALUE_BYTES: usize = 1000;
/// YCSB's constant of the Zipfian distribution.
const THETA: f64 = 0.99;

/// The mix of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of recently inserted keys, 5 % inserts.
    D,
    /// Half reads, half read-modify-writes.
    F,
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Ycsb {
    mix: Mix,
    keys: Zipf,
    /// Start and number of this client's own keys.
    own: Option<u64>,
    inserted: u64,
}

impl Ycsb {
    /// Creates the workload with this number of keys, at least two.
    pub fn new(mix: Mix, keys: u64) -> Ycsb {
        Ycsb {
            mix,
            keys: Zipf::new(keys.max(2)),
            own: None,
            inserted: 0,
        }
    }

    fn key(&self, random: &mut fastrand::Rng) -> Key {
        // Scattered, so that the most popular keys are not adjacent.
        let rank = self.keys.sample(random);
        Key::number(0, Key::number(0, rank).spread() % self.keys.count)
    }
}

/// Gray's method ("Quickly generating billion-record synthetic databases").
#[derive(Clone, Debug)]
struct Zipf {
    count: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(count);
        let rest = 1.0 - (2.0 / count as f64).powf(1.0 - THETA);
        Zipf {
            count,
            zeta,
            alpha: 1.0 / (1.0 - THETA),
            eta: rest / (1.0 - zeta_of(2) / zeta),
        }
    }

    fn sample(&self, random: &mut fastrand::Rng) -> u64 {
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

fn read(key: Key) -> Box<dyn Logic> {
    let access = Access {
        reads: vec![key],
        writes: Vec::new(),
    };
    Box::new(Once::new(access, |_| Step::Commit(Vec::new())))
}

fn write(key: Key, value: impl Fn(View<'_>, &Key) -> Value + Send + 'static) -> Box<dyn Logic> {
    let access = Access {
        reads: Vec::new(),
        writes: vec![(key.clone(), VALUE_BYTES as u32)],
    };
    Box::new(Once::new(access, move |view| {
        Step::Commit(vec![(key.clone(), Some(value(view, &key)))])
    }))
}

fn filled(with: u8) -> Value {
    vec![with; VALUE_BYTES].into()
}

impl Workload for Ycsb {
    fn tables(&self) -> Vec<TableSpec> {
        let rows = match self.mix {
            Mix::D => self.keys.count * 4,
            _ => self.keys.count,
        };
        vec![TableSpec::new(0, "usertable", rows, VALUE_BYTES)]
    }

    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_> {
        Box::new((0..self.keys.count).map(|key| (Key::number(0, key), filled(key as u8))))
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic> {
        let percent = random.u8(0..100);
        let fill = random.u8(..);
        let reads = match self.mix {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D => 95,
            Mix::C => 100,
        };
        if self.mix == Mix::D {
            let own = *self.own.get_or_insert_with(|| random.u64(1 << 40..1 << 60));
            if percent >= reads {
                self.inserted += 1;
                return write(Key::number(0, own + self.inserted), move |_, _| {
                    filled(fill)
                });
            }
            let back = self.keys.sample(random);
            return match self.inserted.checked_sub(back + 1) {
                Some(before) => read(Key::number(0, own + before + 1)),
                None => read(self.key(random)),
            };
        }
        let key = self.key(random);
        if percent < reads {
            return read(key);
        }
        if self.mix == Mix::F {
            return write(key, move |view, key| {
                let mut value = view
                    .value(key)
                    .map_or_else(Vec::new, |value| value.to_vec());
                value.resize(VALUE_BYTES, 0);
                value[0] = value[0].wrapping_add(1);
                value.into()
            });
        }
        write(key, move |_, _| filled(fill))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keys_are_wanted_most() {
        let zipf = Zipf::new(1000);
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[zipf.sample(&mut random) as usize] += 1;
        }
        // By the distribution the first key gets 1/zeta of all, about 13 %.
        assert!((11_000..15_000).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[10] && counts[10] > counts[500]);
    }
}
