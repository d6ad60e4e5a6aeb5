//! A distributed sort over Dunlin's public API: the application that Flor's §7.7 measures, the shuffle of a MapReduce.
//!
//! Workers are processes. Each reads a part of the input, determines by sampled splitters which worker a record belongs
//! to, and writes blocks of records into that worker's memory by [`dunlin::RemoteRegion::transfer`]; each sorts what it
//! receives, spills to files what does not fit into its memory, and finally merges its partition into the output.
//! Reading, partitioning, sending, sorting and spilling run concurrently, and so do merging and writing.
//! `docs/shuffle.md` has the protocol and the measurements.
//!
//! [`sort`] is the coordinator; it starts processes that call [`work`]. A program can be both:
//!
//! ```no_run
//! use std::process::Command;
//!
//! fn main() {
//!     if std::env::args().nth(1).as_deref() == Some("--worker") {
//!         return dunlin_shuffle::work();
//!     }
//!     let options = dunlin_shuffle::SortOptions::new(|| {
//!         let mut worker = Command::new(std::env::current_exe().expect("this program has a path"));
//!         worker.arg("--worker");
//!         worker
//!     });
//!     match dunlin_shuffle::sort("in".as_ref(), "out".as_ref(), &options, &mut |_| true) {
//!         Ok(sorted) => println!("{} records in {:?}", sorted.output.records, sorted.took()),
//!         Err(error) => eprintln!("{error}"),
//!     }
//! }
//! ```
//!
//! Records are those of the sort benchmark (gensort): [`RECORD_BYTES`] bytes with a key of [`KEY_BYTES`]. [`Generator`]
//! generates them, [`check_file`] verifies an output like valsort, [`sort_alone`] is the same sort in one thread, and
//! [`map_alone`] the computation of a mapper.
#![forbid(unsafe_code)]

mod alone;
mod coordinator;
mod error;
mod generate;
mod intake;
mod map;
mod merge;
mod messages;
mod plan;
mod processes;
mod record;
mod runs;
mod segments;
mod send;
mod splitters;
mod summary;
mod worker;

pub use alone::{map_alone, sort_alone};
pub use coordinator::{sort, Progress, SortOptions, Sorted, WORKERS_MAX};
pub use error::{FileError, SortError};
pub use generate::Generator;
pub use plan::TooLittleMemory;
pub use processes::Phase;
pub use record::{Key, KEY_BYTES, RECORD_BYTES};
pub use summary::{check_file, Checker, Summary};
pub use worker::work;
