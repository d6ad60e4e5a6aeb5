//! The constants of the protocol, with the names of its specification
//! (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>). All numbers are big-endian.

pub(super) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;

/// Handshake flags, the same for server and client.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
}

pub(super) mod reply {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    const ERROR: u32 = 1 << 31;
    pub(in crate::nbd) const ERR_UNSUP: u32 = ERROR | 1;
    pub(in crate::nbd) const ERR_INVALID: u32 = ERROR | 3;
    pub(in crate::nbd) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(in crate::nbd) const ERR_TOO_BIG: u32 = ERROR | 9;
}

pub(super) mod info {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: FLUSH, FUA, TRIM, WRITE_ZEROES also where it must be fast, several connections.
pub(super) const TRANSMISSION: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 11;

pub(super) mod command {
    pub(in crate::nbd) const READ: u16 = 0;
    pub(in crate::nbd) const WRITE: u16 = 1;
    pub(in crate::nbd) const DISC: u16 = 2;
    pub(in crate::nbd) const FLUSH: u16 = 3;
    pub(in crate::nbd) const TRIM: u16 = 4;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 6;
    /// Flags: FUA, NO_HOLE, FAST_ZERO. A volume has no reserved space that a hole could release.
    pub(in crate::nbd) const FLAGS: u16 = 1 | 1 << 1 | 1 << 4;
}

/// Error codes of replies.
pub(super) mod errno {
    pub(in crate::nbd) const EIO: u32 = 5;
    pub(in crate::nbd) const EINVAL: u32 = 22;
    pub(in crate::nbd) const ENOSPC: u32 = 28;
    pub(in crate::nbd) const ENOTSUP: u32 = 95;
    pub(in crate::nbd) const ESHUTDOWN: u32 = 108;
}

/// Reads numbers one after another, each once.
pub(super) struct Numbers<'a>(pub(super) &'a [u8]);

impl<'a> Numbers<'a> {
    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_be_bytes)
    }
}
