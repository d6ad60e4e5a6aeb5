//! A file system in the manner of Octopus: metadata by calls, data by one-sided READs and WRITEs.
//!
//! `docs/fs.md` describes its guarantees. [`namespace`] is the tree of files, its space and its sessions as a state
//! machine; programs use [`client::FileSystem`], and async tasks `AsyncFileSystem` (feature `async`). The servers are
//! behind the feature `server`:
//!
//! ```
//! use dunlin::Server;
//! use dunlin_fs::data::{self, DataOptions};
//! use dunlin_fs::meta::{self, Durability, MetaOptions};
//! use dunlin_fs::FileSystem;
//!
//! let folder = tempfile::tempdir()?;
//! let data = data::serve(
//!     Server::bind("dunlin://127.0.0.1:0")?,
//!     &DataOptions {
//!         file: folder.path().join("extents"),
//!         bytes: 16 << 20,
//!         durability: Durability::Process,
//!     },
//! )?;
//! let meta = meta::serve(
//!     Server::bind("dunlin://127.0.0.1:0")?,
//!     &MetaOptions {
//!         data: vec![data.address().to_string()],
//!         ..MetaOptions::new(folder.path().join("meta"))
//!     },
//! )?;
//!
//! let system = FileSystem::connect(&meta.running().address().to_string())?;
//! while system.space()?.bytes == 0 {} // until the servers have met
//! system.create_directory("/birds")?;
//! let file = system.create_new("/birds/dunlin")?;
//! file.write_at(0, b"a small wader")?; // a WRITE past the data server's processor
//! file.sync()?; // on its disk, and in the journal
//! assert_eq!(file.read_at(2, 5)?, b"small");
//! assert_eq!(system.list("/birds")?, ["dunlin"]);
//!
//! drop((file, system));
//! assert!(meta.shutdown() && data.shutdown());
//! let found = meta::check(&folder.path().join("meta"))?;
//! assert!(found.faults.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "server")]
pub mod data;
#[cfg(feature = "server")]
pub mod meta;
pub mod namespace;
pub mod types;
pub mod wire;

#[cfg(feature = "async")]
pub use client::{AsyncFile, AsyncFileSystem};
pub use client::{File, FileSystem, FsError, FsOptions};

/// Returns an unpredictable random number that is not zero.
#[cfg(feature = "server")]
fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
