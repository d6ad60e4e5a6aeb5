//! The priority of a client, `P = T / S` (ScaleRPC §3.2), and the resulting group size and slice.
//!
//! Decided here, as the paper leaves it open: a class is a factor of four in P. One class above that of the median
//! client, groups are smaller by a quarter of the default size and slices longer by half; one class below, groups are
//! larger by a quarter and slices shorter by a quarter; from two classes on nothing changes any more. So sizes stay
//! within the legal range.

/// What a client did in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of requests taken.
    pub(crate) requests: u64,
    /// Bytes of their payloads.
    pub(crate) bytes: u64,
    /// Duration of the turn.
    pub(crate) turn_ns: u64,
}

/// A class of priority; higher is served longer and in smaller groups.
pub(crate) type Class = u8;

/// The class of clients that send nothing.
pub(crate) const DORMANT: Class = 0;
/// The class of a client without data: one request of 32 bytes in 100 µs.
pub(crate) const UNKNOWN: Class = 7;
/// The highest class.
const HIGHEST: Class = 15;
/// The class of P = 1: a request of one byte in a millisecond.
const OF_ONE: f64 = 8.0;

/// `P = T / S`: requests in a millisecond for each byte of their average size.
pub(crate) fn priority(load: &Load) -> f64 {
    if load.requests == 0 || load.turn_ns == 0 {
        return 0.0;
    }
    let throughput = load.requests as f64 * 1e6 / load.turn_ns as f64;
    let size = (load.bytes as f64 / load.requests as f64).max(1.0);
    throughput / size
}

/// The class of a load.
pub(crate) fn class(load: &Load) -> Class {
    let priority = priority(load);
    if priority <= 0.0 {
        return DORMANT;
    }
    let class = OF_ONE + priority.log2() / 2.0;
    (class.floor() as i64).clamp(DORMANT as i64 + 1, HIGHEST as i64) as Class
}

/// The distance of a class from that of the median client, at most two.
fn step(class: Class, middle: Class) -> i64 {
    (i64::from(class) - i64::from(middle)).clamp(-2, 2)
}

/// Number of clients in a group of this class: from half to one and a half times the default.
pub(crate) fn size(class: Class, middle: Class, default: usize) -> usize {
    let quarters = 4 - step(class, middle);
    (default * quarters as usize / 4).max(1)
}

/// The slice of a group of this class: from half to twice the default.
pub(crate) fn slice_ns(class: Class, middle: Class, default_ns: u64) -> u64 {
    let step = step(class, middle);
    let quarters = if step > 0 { 4 + 2 * step } else { 4 + step };
    default_ns * quarters as u64 / 4
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(requests: u64, size: u64) -> Load {
        Load {
            requests,
            bytes: requests * size,
            turn_ns: 100_000,
        }
    }

    #[test]
    fn priority_is_throughput_for_each_byte() {
        // 100 requests of 32 bytes in 100 µs are 1000 in a millisecond.
        assert_eq!(priority(&load(100, 32)), 1000.0 / 32.0);
        assert_eq!(priority(&load(100, 4096)), 1000.0 / 4096.0);
        assert_eq!(priority(&load(0, 0)), 0.0);
        // Requests without a payload count as one byte.
        assert_eq!(priority(&load(100, 0)), 1000.0);
    }

    #[test]
    fn the_frequent_and_short_come_before_the_rare_and_long() {
        let classes = [
            load(0, 0),
            load(1, 4096),
            load(1, 32),
            load(100, 4096),
            load(100, 32),
        ]
        .map(|load| class(&load));
        assert_eq!(classes, [DORMANT, 3, 7, 6, 10]);
        assert_eq!(class(&load(1, 32)), UNKNOWN);
    }

    #[test]
    fn higher_classes_have_fewer_clients_and_longer_slices() {
        let sizes = [5, 6, 7, 8, 9].map(|class| size(class, 7, 40));
        assert_eq!(sizes, [60, 50, 40, 30, 20]);
        let slices = [5, 6, 7, 8, 9].map(|class| slice_ns(class, 7, 100_000));
        assert_eq!(slices, [50_000, 75_000, 100_000, 150_000, 200_000]);
    }

    proptest! {
        #[test]
        fn bounds_hold(requests: u32, bytes: u32, turn_ns: u32, class: Class, middle: Class, default in 1usize..200) {
            let load = Load { requests: requests.into(), bytes: bytes.into(), turn_ns: turn_ns.into() };
            prop_assert!(super::class(&load) <= HIGHEST);
            let size = size(class, middle, default);
            prop_assert!(size >= (default / 2).max(1) && size <= default + default / 2);
            let slice = slice_ns(class, middle, 1000);
            prop_assert!((500..=2000).contains(&slice));
        }
    }
}
