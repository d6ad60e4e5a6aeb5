//! Registered memory: regions, the table of their keys, and the checks of peers' requests.

mod region;
mod table;

pub(crate) use region::{Grant, RegionCore};
pub(crate) use table::{RegionTable, MAX_REGIONS};
