//! A file system in the manner of Octopus: metadata by calls, data by one-sided READs and WRITEs.
//!
//! `docs/fs.md` says what it promises. [`namespace`] is the tree of files, its space and its sessions as a state machine.
#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "server")]
pub mod data;
#[cfg(feature = "server")]
pub mod meta;
pub mod namespace;
pub mod types;
pub mod wire;

pub use client::{File, FileSystem, FsError, FsOptions};

/// A number that nobody can guess, and not zero.
#[cfg(feature = "server")]
fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
