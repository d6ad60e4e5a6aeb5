//! The log of a server: files to which records are appended in groups.
//!
//! `segment` has the files and reads them at the start, `writer` is the thread that appends groups, `clean` bounds the
//! log: files with little live data are copied and removed.

mod clean;
mod segment;
mod writer;

pub(super) use segment::{sync_folder, Segment, Segments};
pub(super) use writer::{Log, LogThread};
