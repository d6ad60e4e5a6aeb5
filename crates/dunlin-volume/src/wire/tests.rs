//! Records and the other messages.

use super::*;
use proptest::prelude::*;

fn record(count: u32, fill: u8) -> (Head, Vec<u8>) {
    let head = Head {
        volume: 7,
        version: Version::new(3, 9),
        first: 64,
        count,
        kind: Kind::Data,
    };
    let data: Vec<u8> = (0..count as usize * BLOCK_BYTES)
        .map(|at| fill ^ at as u8)
        .collect();
    let mut bytes = Vec::new();
    head.encode(&data, &mut bytes);
    (head, bytes)
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let (head, mut bytes) = record(3, 5);
    assert_eq!(bytes.len(), head.record_bytes());
    set_version(&mut bytes, Version::new(4, 1));
    let parsed = Record::parse(&bytes).unwrap();
    let version = Version::new(4, 1);
    assert_eq!(parsed.head, Head { version, ..head });
    assert_eq!(parsed.block(2).unwrap()[1], 5 ^ 1);
    assert_eq!(parsed.sum(2), checksum(parsed.block(2).unwrap()));
}

proptest! {
    #[test]
    fn a_flipped_bit_is_seen(at in any::<prop::sample::Index>(), bit in 0..8_u32, count in 1..4_u32) {
        let (_, mut bytes) = record(count, 1);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Record::parse(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), marked: bool) {
        if marked && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&MARK);
        }
        let _ = Record::parse(&bytes);
        let _ = decode_read(&bytes);
        let _ = split_epoch(&bytes);
        for count in 0..3 {
            let _ = Blocks::parse(&bytes, count);
        }
    }

    #[test]
    fn states_cross(version: u64, sum: Option<u32>) {
        let state = BlockState { version: Version(version), sum };
        let mut bytes = [0; STATE_BYTES];
        state.put(&mut bytes);
        prop_assert_eq!(BlockState::take(&bytes), state);
    }
}
