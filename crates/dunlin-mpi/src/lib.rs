//! Message passing between the processes of a job, in the style of MPI, over the rings of RB².
//!
//! RB² is meant as the layer below sockets, RPC and MPI libraries (§I of the paper). This crate is the last of these: a
//! [`World`] is the communicator of all ranks of a job, with blocking and nonblocking messages that match by source and
//! tag, and collectives. Each pair of ranks has a ring in each direction, over the device that the handshake of
//! `dunlin://` chooses: shared memory on one host, an RDMA NIC or RoCEv2 over UDP between hosts.
//!
//! ```
//! use dunlin_mpi::{run_threads, Op, Settings, Source, Tag};
//!
//! // As processes, each rank begins with `World::from_env()`, and `dunlin mpi run -n 3 -- PROGRAM` starts them.
//! let sums = run_threads(3, &Settings::default(), |mut world| {
//!     let rank = world.rank();
//!     if rank == 0 {
//!         let mut buffer = [0; 16];
//!         for _ in 1..world.size() {
//!             let status = world.receive(Source::Any, Tag::Any, &mut buffer)?;
//!             assert_eq!(&buffer[..status.bytes], format!("from {}", status.source).as_bytes());
//!         }
//!     } else {
//!         world.send(0, 7, format!("from {rank}").as_bytes())?;
//!     }
//!     let mut sum = [rank as f64];
//!     world.allreduce(&mut sum, Op::Sum)?;
//!     world.finalize()?;
//!     Ok::<_, dunlin_mpi::MpiError>(sum[0])
//! })?;
//! assert_eq!(sums, [Ok(3.0), Ok(3.0), Ok(3.0)]);
//! # Ok::<(), dunlin_mpi::JoinError>(())
//! ```
//!
//! ```text
//! World::send, isend -> outbound (eager or in pieces) -> link -> Producer ==ring==> Consumer
//! World::receive, ireceive -> matching <- inbound (posted, unexpected or stalled)  <- link <---+
//! ```
//!
//! `docs/mpi.md` lists the functions of MPI beside ours, the contract, the limits, and what there is not.
#![forbid(unsafe_code)]

mod collective;
mod element;
pub mod environment;
mod error;
mod exchange;
#[cfg(test)]
mod hostile_tests;
mod inbound;
mod join;
mod leaving;
mod link;
mod matching;
mod outbound;
mod peer;
mod port;
mod progress;
mod request;
mod selection;
mod settings;
mod target;
mod threads;
mod waiting;
mod wire;
mod world;

pub use dunlin_bootstrap::{Address, BootstrapError, Secret};
pub use element::{read_elements, write_elements, Element, Number, Op};
pub use error::{JoinError, Loss, MpiError};
pub use join::{Rendezvous, SIZE_MAX};
pub use request::Request;
pub use selection::{Source, Status, Tag};
pub use settings::Settings;
pub use target::Completed;
pub use threads::run_threads;
pub use wire::Fault;
pub use world::World;
