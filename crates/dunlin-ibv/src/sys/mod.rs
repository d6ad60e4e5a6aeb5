//! libibverbs, opened at run time: its ABI, written by hand, and its functions by name.
//!
//! Nothing is linked, so the same binary runs with and without rdma-core. The functions of the data path are not
//! symbols of the library: they belong to the provider, and are in the context ([`types::Operations`]).

mod api;
pub mod constants;
pub mod extended;
#[cfg(test)]
mod layout_tests;
pub mod types;

pub use api::{Api, LIBRARY};
