//! Memory of simulated hosts: real bytes, at simulated addresses, behind a simulated last-level cache.

mod block;
mod dram;
mod llc;
mod table;

pub(crate) use block::Block;
pub(crate) use dram::Dram;
pub(crate) use llc::{Hit, Llc, LINE};
pub(crate) use table::{RegionTable, Watch, REGIONS_MAX};
