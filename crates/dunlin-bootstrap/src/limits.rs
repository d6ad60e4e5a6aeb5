//! How much a message may hold, whichever side it comes from.

/// Most devices that a side can name.
pub const MAX_CAPABILITIES: usize = 16;
/// Most numbers in an open request or reply.
pub const MAX_PARAMETERS: usize = 64;
/// Most presets that a refusal can list.
pub const MAX_KNOWN: usize = 16;
/// Longest name of a device, preset or number, in bytes.
pub const NAME_BYTES: usize = 64;
/// Longest text of a refusal, in bytes.
pub const TEXT_BYTES: usize = 256;
