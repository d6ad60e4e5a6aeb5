//! Limits on the contents of messages, the same for both sides.

/// Maximum number of devices that a side can name.
pub const MAX_CAPABILITIES: usize = 16;
/// Maximum number of parameters in an open request or reply.
pub const MAX_PARAMETERS: usize = 64;
/// Maximum number of presets that a refusal can list.
pub const MAX_KNOWN: usize = 16;
/// Maximum length of a device's, preset's or parameter's name, in bytes.
pub const NAME_BYTES: usize = 64;
/// Maximum length of a refusal's text, in bytes.
pub const TEXT_BYTES: usize = 256;
