//! Reading pcap files, as the network function does: what is in them, and that no file is a crash.
#![allow(dead_code, unreachable_pub)]

#[path = "../examples/common/pcap.rs"]
mod pcap;

use pcap::{Packets, PcapError};
use proptest::prelude::*;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
struct Style {
    big_endian: bool,
    nanoseconds: bool,
}

const fn style(big_endian: bool, nanoseconds: bool) -> Style {
    Style {
        big_endian,
        nanoseconds,
    }
}

const STYLES: [Style; 4] = [
    style(false, false),
    style(false, true),
    style(true, false),
    style(true, true),
];

impl Style {
    fn number(self, number: u32) -> [u8; 4] {
        if self.big_endian {
            number.to_be_bytes()
        } else {
            number.to_le_bytes()
        }
    }

    fn file(self, link: u32, frames: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
        let magic = if self.nanoseconds {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        };
        let mut file = Vec::new();
        for number in [magic, 0x0004_0002, 0, 0, 65_535, link] {
            file.extend(self.number(number));
        }
        for (seconds, fraction, frame) in frames {
            for number in [*seconds, *fraction, frame.len() as u32, 1500] {
                file.extend(self.number(number));
            }
            file.extend(frame);
        }
        file
    }
}

/// UDP over IPv4.
fn datagram(from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
    packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
    packet
}

fn ethernet(kinds: &[u16], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for (index, kind) in kinds.iter().enumerate() {
        frame.extend(kind.to_be_bytes());
        if index + 1 < kinds.len() {
            frame.extend([0, 7]);
        }
    }
    frame.extend(packet);
    frame
}

#[test]
fn all_styles_say_the_same() {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let plain = ethernet(&[0x0800], &datagram(a, b, (1000, 53)));
    let tagged = ethernet(&[0x88a8, 0x8100, 0x0800], &datagram(a, b, (1000, 53)));
    let other = ethernet(&[0x0800], &datagram(a, b, (1001, 53)));
    let arp = ethernet(&[0x0806], &[0; 28]);
    for style in STYLES {
        let unit = if style.nanoseconds { 1 } else { 1000 };
        let frames = [&plain, &tagged, &other, &arp].map(|frame| (7, 9, frame.clone()));
        let file = style.file(1, &frames);
        let packets: Vec<_> = Packets::new(&file).unwrap().map(Result::unwrap).collect();
        assert_eq!(packets.len(), 4, "{style:?}");
        assert_eq!(packets[0].time_ns, 7_000_000_000 + 9 * unit);
        assert_eq!(packets[0].bytes, 1500);
        assert!(packets[0].flow.is_some());
        assert_eq!(packets[0].flow, packets[1].flow);
        assert_ne!(packets[0].flow, packets[2].flow);
        assert_eq!(packets[3].flow, None);
        // Without a link layer it is the same flow.
        let raw = style.file(101, &[(7, 9, datagram(a, b, (1000, 53)))]);
        let packet = Packets::new(&raw).unwrap().next().unwrap().unwrap();
        assert_eq!(packet.flow, packets[0].flow);
    }
}

#[test]
fn broken_files_are_told_with_the_place() {
    assert_eq!(Packets::new(b"").unwrap_err(), PcapError::NotPcap);
    assert_eq!(Packets::new(&[0x0a; 64]).unwrap_err(), PcapError::NotPcap);
    let style = STYLES[0];
    let mut file = style.file(1, &[(0, 0, vec![0; 60]), (0, 0, vec![0; 60])]);
    file.truncate(file.len() - 1);
    let found: Vec<_> = Packets::new(&file).unwrap().collect();
    assert!(found[0].is_ok());
    assert_eq!(found[1..], [Err(PcapError::Short { at: 100 })]);
    let mut file = style.file(1, &[(0, 0, vec![0; 60])]);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let found: Vec<_> = Packets::new(&file).unwrap().collect();
    let bytes = u32::MAX;
    assert_eq!(found, [Err(PcapError::Length { at: 24, bytes })]);
}

proptest! {
    #[test]
    fn no_file_is_a_crash(
        style in 0usize..4,
        link in prop::sample::select(vec![0u32, 1, 12, 101, 113, 228, 0xf000_0001]),
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let frames: Vec<_> = frames.into_iter().map(|frame| (1, 2, frame)).collect();
        let mut file = STYLES[style].file(link, &frames);
        // Whole and unchanged it has all its packets.
        let whole: Vec<_> = Packets::new(&file).unwrap().collect();
        prop_assert_eq!(whole.len(), frames.len());
        prop_assert!(whole.iter().all(Result::is_ok));
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        file.truncate(cut.index(file.len() + 1));
        if let Ok(packets) = Packets::new(&file) {
            // An error is the last thing that is told.
            let found: Vec<_> = packets.collect();
            let errors = found.iter().filter(|one| one.is_err()).count();
            prop_assert!(errors <= 1 && found.iter().rev().skip(1).all(Result::is_ok));
            prop_assert!(found.len() <= file.len() / 16 + 1);
        }
    }
}
