//! A file system in the manner of Octopus: metadata by calls, data by one-sided READs and WRITEs.
//!
//! `docs/fs.md` says what it promises. [`namespace`] is the tree of files, its space and its sessions as a state machine.
#![forbid(unsafe_code)]

pub mod namespace;
pub mod types;
pub mod wire;
