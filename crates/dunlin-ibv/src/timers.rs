//! Times in the five-bit encoding of the InfiniBand specification.

/// The code of the shortest acknowledgement timeout that is not below `ns`: 4.096 µs times two to the code.
pub(crate) fn timeout_code(ns: u64) -> u8 {
    // Zero would mean no timeout.
    (1..31u8).find(|&code| 4096u64 << code >= ns).unwrap_or(31)
}

/// The receiver-not-ready timers in steps of 10 µs, by code; code 0 is the longest.
const RNR_TENS_OF_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The code of the shortest receiver-not-ready timer that is not below `ns`.
pub(crate) fn receiver_not_ready_code(ns: u64) -> u8 {
    (1..32u8)
        .find(|&code| u64::from(RNR_TENS_OF_US[usize::from(code)]) * 10_000 >= ns)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        assert_eq!(timeout_code(0), 1);
        assert_eq!(timeout_code(67_000_000), 14);
        assert_eq!(timeout_code(68_000_000), 15);
        assert_eq!(timeout_code(u64::MAX), 31);
        assert_eq!(receiver_not_ready_code(0), 1);
        assert_eq!(receiver_not_ready_code(10_000), 1);
        assert_eq!(receiver_not_ready_code(10_001), 2);
        assert_eq!(receiver_not_ready_code(491_520_000), 31);
        assert_eq!(receiver_not_ready_code(600_000_000), 0);
    }
}
