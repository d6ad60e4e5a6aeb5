//! libibverbs, opened at run time: its ABI, written by hand, and its functions by name.
//!
//! Nothing is linked, so one binary runs with and without rdma-core. The functions on the path of data are no symbols
//! of the library: they are the provider's, and stand in the context ([`types::Operations`]).

mod api;
pub mod constants;
pub mod extended;
#[cfg(test)]
mod layout_tests;
pub mod types;

pub use api::{Api, LIBRARY};
