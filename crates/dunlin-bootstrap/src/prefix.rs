//! The first bytes of a hello, which are the same in all versions of the handshake.

/// The first bytes of both hellos. The zero and the byte above 127 distinguish them from any text.
pub const MAGIC: [u8; 8] = *b"\x89DUNLIN\0";
/// The version used here, of the handshake and of what channels write afterwards. No other is understood. Since 3 rings
/// have short headers, since 5 calls may state their timeout and a device that it speaks RoCEv2, since 6 sides state in
/// which parts of a host they differ, and servers which rights a client lacks, since 7 credit renewals state how many
/// threads a message carries.
pub const VERSION: u16 = 7;
/// Length of magic and version in bytes.
pub const PREFIX_BYTES: usize = MAGIC.len() + 2;
