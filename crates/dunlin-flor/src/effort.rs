//! The cost of Flor's software on a core, apart from verbs and copies.

/// Nanoseconds for a chunk, including its acknowledgement: what is left of the time per chunk at the 770,000 chunks of
/// 4 KB per second that the paper's thread sends (§7.2), after verbs and copies are charged. A simulated core is
/// charged for it where [`LinkConfig::chunk_ns`](crate::logical::LinkConfig::chunk_ns) says so; a real one is not.
pub const CHUNK_NS: u64 = 1_160;
