//! A distributed sort: the application that Flor's §7.7 measures, a shuffle of a MapReduce, over Dunlin's public
//! interface.
//!
//! Workers are processes. Each reads a part of the input, finds by sampled splitters which worker a record belongs to,
//! and puts blocks of records into that worker's memory by [`dunlin::RemoteRegion::transfer`]; each sorts what comes,
//! writes to files what does not fit into its memory, and merges its partition into the output at last. Reading,
//! partitioning, sending, sorting and spilling go on beside each other, and so do merging and writing.
//! `docs/shuffle.md` has the protocol and the figures.
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
//! Records are those of the sort benchmark (gensort): [`RECORD_BYTES`] bytes with a key of [`KEY_BYTES`].
//! [`Generator`] makes them, [`check_file`] looks at an output as valsort does, [`sort_alone`] is the same sort by one
//! thread, and [`map_alone`] what a mapper computes.
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
