//! What Flor's software takes of a core beside verbs and copies.

/// Nanoseconds for a chunk, its acknowledgement with it: what is left of the 770,000 chunks of 4 KB a second that the
/// paper's thread sends (§7.2) when verbs and copies are charged. A simulated core is charged them where
/// [`LinkConfig::chunk_ns`](crate::logical::LinkConfig::chunk_ns) says so; on a real one the charge is not there.
pub const CHUNK_NS: u64 = 1_160;
