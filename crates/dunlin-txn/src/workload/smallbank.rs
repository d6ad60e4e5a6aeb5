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
/// The initial balance of an account.
const INITIAL: i64 = 10_000;

impl SmallBank {
    /// Creates the workload with this number of customers, at least two, 4 % of which are in 90 % of the transactions
    /// (FaSST, FLOCK §8.5.2).
    pub fn new(customers: u64) -> SmallBank {
        SmallBank::with_hot(customers, 90)
    }

    /// Like [`SmallBank::new`], with another share of transactions for the hot 4 %: ScaleRPC §4.2.1 has 60.
    pub fn with_hot(customers: u64, hot_percent: u8) -> SmallBank {
        let customers = customers.max(2);
        SmallBank {
            customers,
            hot_customers: (customers / 25).max(2),
            hot_percent,
        }
    }

    /// Like [`SmallBank::with_hot`], with this number of hot customers, at least two, whatever the number of customers:
    /// they determine the conflicts.
    pub fn with_hot_customers(customers: u64, hot_customers: u64, hot_percent: u8) -> SmallBank {
        let customers = customers.max(2);
        SmallBank {
            customers,
            hot_customers: hot_customers.clamp(2, customers),
            hot_percent,
        }
    }

    /// The balance in an account's value; `None` if it is not an account's value.
    pub fn balance(value: &Value) -> Option<i64> {
        Some(i64::from_le_bytes((**value).try_into().ok()?))
    }

    /// The amount by which a committed transaction has changed the total balance: zero, except for deposits and checks.
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
        self.draw(random).logic()
    }
}

/// A transaction of the workload, for callers that do not execute it through its [`Logic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallBankTransaction {
    /// Moves all of one customer's money to another's checking account.
    Amalgamate {
        /// The customer who pays.
        from: u64,
        /// The customer who is paid.
        to: u64,
    },
    /// Reads both accounts of a customer.
    Balance(u64),
    /// Adds an amount to a checking account.
    DepositChecking(u64, i64),
    /// Moves an amount from one checking account to another, if it is covered.
    SendPayment {
        /// The customer who pays.
        from: u64,
        /// The customer who is paid.
        to: u64,
        /// The amount.
        amount: i64,
    },
    /// Adds an amount to a savings account.
    TransactSavings(u64, i64),
    /// Takes an amount from a checking account, and one more if both accounts together do not cover it.
    WriteCheck(u64, i64),
}

impl SmallBank {
    /// Draws the next transaction: 15 % of each, 25 % of payments.
    pub fn draw(&self, random: &mut fastrand::Rng) -> SmallBankTransaction {
        let (from, to) = self.two(random);
        let amount = random.i64(1..100);
        match random.u8(0..100) {
            0..15 => SmallBankTransaction::Amalgamate { from, to },
            15..30 => SmallBankTransaction::Balance(from),
            30..45 => SmallBankTransaction::DepositChecking(from, amount),
            45..70 => SmallBankTransaction::SendPayment { from, to, amount },
            70..85 => SmallBankTransaction::TransactSavings(from, amount),
            _ => SmallBankTransaction::WriteCheck(from, amount),
        }
    }
}

impl SmallBankTransaction {
    /// The logic that executes the transaction.
    pub fn logic(self) -> Box<dyn Logic> {
        let savings = |customer| Key::number(SAVINGS, customer);
        let checking = |customer| Key::number(CHECKING, customer);
        match self {
            SmallBankTransaction::Amalgamate { from, to } => {
                let (savings, checking, to) = (savings(from), checking(from), checking(to));
                let access = access(&[], &[&savings, &checking, &to]);
                Box::new(Once::new(access, move |view| {
                    let all = held(view, &savings) + held(view, &checking);
                    let sum = held(view, &to) + all;
                    Step::Commit(vec![set(&savings, 0), set(&checking, 0), set(&to, sum)])
                }))
            }
            SmallBankTransaction::Balance(of) => {
                let access = access(&[&savings(of), &checking(of)], &[]);
                Box::new(Once::new(access, |_| Step::Commit(vec![])))
            }
            SmallBankTransaction::DepositChecking(to, amount) => adds(checking(to), amount),
            SmallBankTransaction::TransactSavings(to, amount) => adds(savings(to), amount),
            SmallBankTransaction::SendPayment { from, to, amount } => {
                let (from, to) = (checking(from), checking(to));
                Box::new(Once::new(access(&[], &[&from, &to]), move |view| {
                    let left = held(view, &from) - amount;
                    if left < 0 {
                        return Step::Abort;
                    }
                    Step::Commit(vec![set(&from, left), set(&to, held(view, &to) + amount)])
                }))
            }
            SmallBankTransaction::WriteCheck(of, amount) => {
                let (savings, checking) = (savings(of), checking(of));
                Box::new(Once::new(access(&[&savings], &[&checking]), move |view| {
                    let covered = held(view, &savings) + held(view, &checking) >= amount;
                    let taken = if covered { amount } else { amount + 1 };
                    Step::Commit(vec![set(&checking, held(view, &checking) - taken)])
                }))
            }
        }
    }
}

fn adds(account: Key, amount: i64) -> Box<dyn Logic> {
    Box::new(Once::new(access(&[], &[&account]), move |view| {
        Step::Commit(vec![set(&account, held(view, &account) + amount)])
    }))
}
