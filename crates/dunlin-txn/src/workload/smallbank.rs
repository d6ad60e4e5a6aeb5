//! SmallBank (Cahill et al., TODS '09) in the mix of FaSST's code: 85 % of the transactions change accounts.
use super::Workload;
use crate::logic::{Access, Logic, Once, Step, View};
use crate::server::TableSpec;
use crate::types::{Key, Value};

/// Every customer has a savings and a checking account.
#[derive(Clone, Debug)]
pub struct SmallBank {
    customers: u64,
    hot_customers: u64,
    hot_percent: u8,
}

const SAVINGS: u16 = 0;
const CHECKING: u16 = 1;
/// What an account holds at first.
const INITIAL: i64 = 10_000;

impl SmallBank {
    /// So many customers, at least two, with 4 % of them in 90 % of the transactions (FaSST, FLOCK §8.5.2).
    pub fn new(customers: u64) -> SmallBank {
        SmallBank::with_hot(customers, 90)
    }

    /// As [`SmallBank::new`] with another share of transactions for the hot 4 %: ScaleRPC §4.2.1 has 60.
    pub fn with_hot(customers: u64, hot_percent: u8) -> SmallBank {
        let customers = customers.max(2);
        SmallBank {
            customers,
            hot_customers: (customers / 25).max(2),
            hot_percent,
        }
    }

    /// What a value says an account holds; nothing where it is no account's.
    pub fn balance(value: &Value) -> Option<i64> {
        Some(i64::from_le_bytes((**value).try_into().ok()?))
    }

    /// How much a committed transaction has made more than it has taken away: nothing, but for deposits and checks.
    pub fn made(committed: &crate::Committed) -> i64 {
        let before = |key: &Key| {
            let seen = committed.reads.iter().find(|(seen, ..)| seen == key);
            seen.and_then(|(_, _, value)| value.as_ref())
                .and_then(Self::balance)
        };
        let change = |update: &crate::Update| {
            let after = update.value.as_ref().and_then(Self::balance);
            after.unwrap_or(0) - before(&update.key).unwrap_or(0)
        };
        committed.writes.iter().map(change).sum()
    }

    fn customer(&self, random: &mut fastrand::Rng) -> u64 {
        let hot = random.u8(0..100) < self.hot_percent;
        random.u64(
            0..if hot {
                self.hot_customers
            } else {
                self.customers
            },
        )
    }

    fn two(&self, random: &mut fastrand::Rng) -> (u64, u64) {
        let one = self.customer(random);
        let other = self.customer(random);
        (
            one,
            if other == one {
                (one + 1) % self.customers
            } else {
                other
            },
        )
    }
}

fn held(view: View<'_>, key: &Key) -> i64 {
    view.value(key).and_then(SmallBank::balance).unwrap_or(0)
}

fn set(key: &Key, balance: i64) -> (Key, Option<Value>) {
    (key.clone(), Some(balance.to_le_bytes().to_vec().into()))
}

fn access(reads: &[&Key], writes: &[&Key]) -> Access {
    Access {
        reads: reads.iter().map(|key| (*key).clone()).collect(),
        writes: writes.iter().map(|key| ((*key).clone(), 8)).collect(),
    }
}

impl Workload for SmallBank {
    fn tables(&self) -> Vec<TableSpec> {
        let table = |id, name| TableSpec::new(id, name, self.customers, 8);
        vec![table(SAVINGS, "savings"), table(CHECKING, "checking")]
    }

    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_> {
        let keys = (0..self.customers).flat_map(|c| [SAVINGS, CHECKING].map(|t| Key::number(t, c)));
        Box::new(keys.map(|key| (key, INITIAL.to_le_bytes().to_vec().into())))
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic> {
        let (one, other) = self.two(random);
        let savings = Key::number(SAVINGS, one);
        let checking = Key::number(CHECKING, one);
        let to = Key::number(CHECKING, other);
        let amount = random.i64(1..100);
        match random.u8(0..100) {
            // Amalgamate: all of one customer's money to another.
            0..15 => Box::new(Once::new(
                access(&[], &[&savings, &checking, &to]),
                move |view| {
                    let all = held(view, &savings) + held(view, &checking);
                    let sum = held(view, &to) + all;
                    Step::Commit(vec![set(&savings, 0), set(&checking, 0), set(&to, sum)])
                },
            )),
            // Balance.
            15..30 => Box::new(Once::new(access(&[&savings, &checking], &[]), |_| {
                Step::Commit(vec![])
            })),
            // Deposit checking.
            30..45 => Box::new(Once::new(access(&[], &[&checking]), move |view| {
                Step::Commit(vec![set(&checking, held(view, &checking) + amount)])
            })),
            // Send payment.
            45..70 => Box::new(Once::new(access(&[], &[&checking, &to]), move |view| {
                let left = held(view, &checking) - amount;
                if left < 0 {
                    return Step::Abort;
                }
                Step::Commit(vec![
                    set(&checking, left),
                    set(&to, held(view, &to) + amount),
                ])
            })),
            // Transact savings.
            70..85 => Box::new(Once::new(access(&[], &[&savings]), move |view| {
                Step::Commit(vec![set(&savings, held(view, &savings) + amount)])
            })),
            // Write check: with a penalty where both accounts together do not cover it.
            _ => Box::new(Once::new(access(&[&savings], &[&checking]), move |view| {
                let covered = held(view, &savings) + held(view, &checking) >= amount;
                let taken = if covered { amount } else { amount + 1 };
                Step::Commit(vec![set(&checking, held(view, &checking) - taken)])
            })),
        }
    }
}
