//! Workloads: generators of transactions, with read and write sets and functions over them.
mod object;
mod random;
mod smallbank;
mod tatp;
mod ycsb;

pub use object::Objects;
pub use random::Random;
pub use smallbank::{SmallBank, SmallBankTransaction};
pub use tatp::{Tatp, TatpTransaction};
pub use ycsb::{Mix, Ycsb};

use crate::logic::Logic;
use crate::server::TableSpec;
use crate::types::{Key, Value};
use std::fmt;

/// A workload: the initial items, and a sequence of transactions.
pub trait Workload: fmt::Debug + Send {
    /// The tables that it needs.
    fn tables(&self) -> Vec<TableSpec>;

    /// The initial items.
    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_>;

    /// The next transaction.
    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic>;
}

/// The names accepted by [`named`].
pub const NAMES: &[&str] = &[
    "smallbank",
    "tatp",
    "object-1-0",
    "object-4-0",
    "object-4-2",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-f",
];

/// Returns the workload of this name, over this number of customers, subscribers or keys; `object-R-W` accepts any R
/// from 1 to 64 and W up to R.
pub fn named(name: &str, rows: u64) -> Option<Box<dyn Workload>> {
    let ycsb = |mix| -> Option<Box<dyn Workload>> { Some(Box::new(Ycsb::new(mix, rows))) };
    match name {
        "smallbank" => Some(Box::new(SmallBank::new(rows))),
        "tatp" => Some(Box::new(Tatp::new(rows))),
        "ycsb-a" => ycsb(Mix::A),
        "ycsb-b" => ycsb(Mix::B),
        "ycsb-c" => ycsb(Mix::C),
        "ycsb-d" => ycsb(Mix::D),
        "ycsb-f" => ycsb(Mix::F),
        _ => {
            let (all, changed) = name.strip_prefix("object-")?.split_once('-')?;
            let (all, changed) = (all.parse().ok()?, changed.parse().ok()?);
            let fits = (1..=64).contains(&all) && changed <= all;
            fits.then(|| -> Box<dyn Workload> { Box::new(Objects::new(rows, all, changed)) })
        }
    }
}
