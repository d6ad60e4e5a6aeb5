//! A table of keys and values in one registered region, after MICA as used by FaSST and ScaleTX.
//!
//! Threads of the server read and change it through [`Table`]; clients that know its [`Layout`] READ headers and items
//! by address, and WRITE items that they have locked. [`kv`] is a store for keys and values of any length.
#![forbid(unsafe_code)]
// loom is enabled by `--cfg loom`.
#![allow(unexpected_cfgs)]

mod batch;
mod error;
mod header;
pub mod kv;
mod layout;
mod pool;
mod sync;
mod table;
mod versioned;

pub use error::StoreError;
pub use header::{Header, MAX_OWNER, MAX_VERSION, WRITER};
pub use layout::{
    ItemAddress, Layout, DESCRIPTION_BYTES, KEYS_PER_BUCKET, MAX_BUCKETS, MAX_VALUE_BYTES,
};
pub use table::Table;

/// The example of `docs/store.md`, compiled and run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/store.md")]
struct Page;
