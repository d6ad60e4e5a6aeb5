//! The first bytes of a hello, which are the same in all versions of the handshake.

/// How both hellos begin. The zero and the byte above 127 tell it from any text.
pub const MAGIC: [u8; 8] = *b"\x89DUNLIN\0";
/// The version that is spoken here, of the handshake and of what channels write after it. No other is understood. Since
/// 3 rings have short headers, since 5 calls may say how long they may take and a device that it speaks RoCEv2, since 6
/// sides say by which parts of a host they differ, and servers what a client has no right to, since 7 renewals of
/// credits say how many threads a message carries.
pub const VERSION: u16 = 7;
/// Bytes of magic and version.
pub const PREFIX_BYTES: usize = MAGIC.len() + 2;
