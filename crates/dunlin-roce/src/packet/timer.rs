//! The times encoded in five bits of an acknowledgement: how long a receiver that is not ready asks the sender to wait
//! (IBTA vol. 1 §9.7.5.2.8, table 45).

/// Microseconds of the codes 0 to 31.
const MICROSECONDS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

/// The time in nanoseconds encoded in the low five bits of the code.
pub fn receiver_not_ready_ns(code: u8) -> u64 {
    u64::from(MICROSECONDS[usize::from(code & 0x1f)]) * 1_000
}

/// The code of the shortest time that is not below `ns`; the longest, 655.36 ms, for everything beyond.
pub fn receiver_not_ready_code(ns: u64) -> u8 {
    let code = MICROSECONDS[1..].partition_point(|time| u64::from(*time) * 1_000 < ns) + 1;
    // Code 0 is the longest of all, beyond code 31.
    (code % MICROSECONDS.len()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_to_a_code() {
        for (ns, code) in [
            (0, 1),
            (10_000, 1),
            (10_001, 2),
            (491_520_000, 31),
            (491_520_001, 0),
        ] {
            assert_eq!(receiver_not_ready_code(ns), code, "of {ns} ns");
        }
        for code in 0..32 {
            assert_eq!(receiver_not_ready_code(receiver_not_ready_ns(code)), code);
        }
    }
}
