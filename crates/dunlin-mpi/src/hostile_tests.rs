//! A rank whose bytes are not those of an honest one: it is lost, with what was wrong, and harms nobody.

use dunlin_ring::{Design, RingConfig};
use proptest::prelude::*;

use crate::error::{Loss, MpiError};
use crate::link::{admit, open, Link};
use crate::selection::{Source, Tag};
use crate::settings::Settings;
use crate::target::Lent;
use crate::wire::{Context, Fault, Header, Kind, NO_CAUSE};
use crate::world::World;

/// Rank 0 of 3, connected to a rank 1 whose end of the link is in our hands.
fn world() -> (World, Box<dyn Link>) {
    let settings = Settings::default().unexpected_bytes(10_000);
    let config = RingConfig {
        design: Design::RB2,
        ..RingConfig::default()
    };
    let (ours, our_offers) = open("shm", None, &config).unwrap();
    let (theirs, their_offers) = admit("shm", &config, &our_offers).unwrap();
    let mut world = World::new(0, 3, &settings);
    world.peers[1].link = Some(ours.connect(&their_offers).unwrap());
    (world, theirs)
}

fn say(link: &mut dyn Link, bytes: &[u8]) {
    let said = link.try_send(bytes.len(), &mut |place| place.copy_from_slice(bytes));
    // A rank that is lost hears nothing more, and a full ring takes nothing.
    if said.is_ok() {
        let _ = link.flush();
    }
}

fn message(kind: Kind, length: u64, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        context: Context::User,
        tag: 5,
        length,
    };
    [&header.encode()[..], payload].concat()
}

/// How rank 1 is lost when it says this while a receive waits.
fn lost(messages: &[Vec<u8>]) -> MpiError {
    let (mut world, mut link) = world();
    for one in messages {
        say(link.as_mut(), one);
    }
    world.receive(1, Tag::Any, &mut [0; 100]).unwrap_err()
}

fn fault(fault: Fault) -> MpiError {
    let loss = Loss::Fault(fault);
    MpiError::RankLost { rank: 1, loss }
}

#[test]
fn each_violation_is_named() {
    let short = Fault::Short { bytes: 15 };
    assert_eq!(lost(&[vec![1; 15]]), fault(short));
    let kind = Fault::Kind { word: 0x0101_0101 };
    assert_eq!(lost(&[vec![1; 16]]), fault(kind));
    let (length, bytes) = (3, 4);
    let wrong = Fault::Length { length, bytes };
    assert_eq!(lost(&[message(Kind::Whole, 3, &[0; 4])]), fault(wrong));
    let (length, bytes) = (u64::MAX, 4);
    let wrong = Fault::Length { length, bytes };
    assert_eq!(
        lost(&[message(Kind::First, u64::MAX, &[0; 4])]),
        fault(wrong)
    );
    assert_eq!(
        lost(&[message(Kind::Piece, 0, &[0; 4])]),
        fault(Fault::Order)
    );
    let begun = message(Kind::First, 10, &[0; 4]);
    assert_eq!(lost(&[begun.clone(), begun.clone()]), fault(Fault::Order));
    for (length, bytes) in [(5, 4), (4, 7)] {
        let piece = message(Kind::Piece, length, &vec![0; bytes]);
        let wrong = Fault::Length { length, bytes };
        assert_eq!(lost(&[begun.clone(), piece]), fault(wrong));
    }
}

#[test]
fn a_goodbye_cannot_blame_this_rank_or_none() {
    for tag in [0, 1, 7, NO_CAUSE] {
        let mut goodbye = message(Kind::Goodbye, 0, &[]);
        goodbye[4..8].copy_from_slice(&tag.to_le_bytes());
        assert_eq!(lost(&[goodbye]), MpiError::RankLeft { rank: 1 });
    }
    let mut goodbye = message(Kind::Goodbye, 0, &[]);
    goodbye[4..8].copy_from_slice(&2_u32.to_le_bytes());
    let loss = Loss::Reported { by: 1 };
    assert_eq!(lost(&[goodbye]), MpiError::RankLost { rank: 2, loss });
}

/// A message that is nearly valid, or not at all.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![Just(Kind::Whole), Just(Kind::First), Just(Kind::Piece)];
    let nearly = (kind, 0_u64..40, prop::collection::vec(any::<u8>(), 0..40));
    prop_oneof![
        3 => nearly.prop_map(|(kind, length, payload)| message(kind, length, &payload)),
        2 => prop::collection::vec(any::<u8>(), 0..30).prop_map(|payload| {
            message(Kind::Whole, payload.len() as u64, &payload)
        }),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_withstood(messages in prop::collection::vec(any_message(), 1..40)) {
        let (mut world, mut link) = world();
        let mut requests = Vec::new();
        for (number, one) in messages.iter().enumerate() {
            say(link.as_mut(), one);
            if number % 3 == 0 {
                requests.push(world.ireceive(Source::Any, Tag::Any, vec![0; 20]).unwrap());
            }
            world.progress(&mut Lent::default());
        }
        for mut request in requests {
            // A message, an error or nothing; the message is not longer than the buffer.
            if let Ok(Some(completed)) = request.test(&mut world) {
                prop_assert!(completed.buffer.len() <= 20);
            }
        }
    }
}
