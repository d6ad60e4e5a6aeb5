//! Transactions to run: generators of read and write sets and of functions over them.
mod random;
mod smallbank;

pub use random::Random;
pub use smallbank::SmallBank;

use crate::logic::Logic;
use crate::types::{Key, Value};
use std::fmt;

/// A load: what is there at first, and one transaction after the other.
pub trait Workload: fmt::Debug {
    /// The items before the first transaction.
    fn load(&self) -> Box<dyn Iterator<Item = (Key, Value)> + '_>;

    /// The next transaction.
    fn next(&mut self, random: &mut fastrand::Rng) -> Box<dyn Logic>;
}
