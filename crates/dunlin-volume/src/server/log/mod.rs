//! The log of a server: files to which records are appended in groups.
//!
//! `segment` has the files and what is read of them at the start, `writer` the thread that appends groups, `clean` what
//! bounds the log: files of which little is needed any more are copied and removed.

mod clean;
mod segment;
mod writer;

pub(super) use segment::{sync_folder, Segment, Segments};
pub(super) use writer::{Log, LogThread};
