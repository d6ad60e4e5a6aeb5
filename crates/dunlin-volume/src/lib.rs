//! Block storage over Dunlin: volumes of 4 KiB blocks in three copies.
//!
//! `docs/volume.md` describes the protocol and its guarantees. Programs use [`client::Volume`]; the block server is
//! behind the feature `server`, and behind `nbd` the export by NBD, which presents a volume to other programs as a
//! disk:
//!
//! ```
//! use dunlin::Server;
//! use dunlin_volume::server::{self, BlockOptions};
//! use dunlin_volume::{Volume, VolumeOptions, BLOCK_BYTES};
//!
//! let servers: Vec<_> = (0..3)
//!     .map(|_| server::serve(Server::bind("dunlin://127.0.0.1:0")?, &BlockOptions::in_memory()))
//!     .collect::<Result<_, _>>()?;
//! let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
//!
//! let options = VolumeOptions::default();
//! dunlin_volume::create("birds", 16 << 20, &addresses, &options)?;
//! let mut volume = Volume::open("birds", &addresses, &options)?;
//! let block = vec![7; BLOCK_BYTES];
//! volume.write_at(8192, &block)?; // when it returns, it is on all three
//! assert_eq!(volume.read_at(8192, BLOCK_BYTES)?, block);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod client;
#[cfg(feature = "nbd")]
pub mod nbd;
#[cfg(feature = "server")]
pub mod server;
pub mod types;
pub mod wire;

pub use client::{check, create, remove, Volume, VolumeError, VolumeOptions};
pub use types::{Shape, BLOCK_BYTES};

/// Returns a random number, unique in practice, and not zero.
fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}
