//! The services that `dunlin serve` offers.

pub mod blocks;
pub mod child;
pub mod echo;
pub mod fs;
pub mod kv;
pub mod metrics;
pub mod store;
pub mod typed;
