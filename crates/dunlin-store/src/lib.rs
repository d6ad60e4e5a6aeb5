//! A table of keys and values in one piece of registered memory, after MICA as FaSST and ScaleTX use it.
//!
//! Threads of the server read and change it through [`Table`]; clients that know its [`Layout`] READ headers and items
//! by address, and WRITE items that they have locked. [`kv`] is a store for keys and values of any length.
#![forbid(unsafe_code)]
// `--cfg loom` is how loom asks to be switched on.
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

/// The example of the page, compiled and run with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/store.md")]
struct Page;
