//! Registered memory: regions, the table of their keys, and the checks on what peers ask of them.

mod region;
mod table;

pub(crate) use region::{Grant, RegionCore};
pub(crate) use table::{RegionTable, MAX_REGIONS};
