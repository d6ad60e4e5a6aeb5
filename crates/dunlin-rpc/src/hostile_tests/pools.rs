//! Clients of message pools that write whatever they like into zones and entries, and tell of messages that are not
//! there.

use super::*;
use crate::channel::pool::block_bytes;
use crate::channel::pool::{CALLS, ENTRY_NOTICE};
use crate::hostile::peer::Peer;
use crate::hostile::pool::{EAGER, NOTIFICATIONS};

type Guest = crate::hostile::pool::Guest<ShmDevice>;

impl Guest {
    fn dial(device: &ShmDevice, server: &RunningServer, preset: Preset) -> Self {
        Self::open(device, &Door::port(server, None), preset)
    }
}

#[test]
fn guests_of_pools_that_write_anything_harm_themselves_alone() {
    for preset in [Preset::RawWrite, Preset::SelfRpc, Preset::ScaleRpc] {
        let server = serve();
        let device = hostile_device();
        let seeds = 40;
        beside_a_good_client_of(preset, &server, || {
            for seed in 1..=seeds {
                let mut random = Random::new(seed);
                let mut guest = Guest::dial(&device, &server, preset);
                for _ in 0..60 {
                    if !guest.misbehave(&mut random) || !guest.pair.is_alive() {
                        break;
                    }
                }
            }
            eventually("hostile clients end", || server.connections() <= 2);
        });
        println!(
            "{preset}: {seeds} seeds, {} violations",
            server.statistics().violations
        );
        assert!(server.statistics().violations > 0 || preset == Preset::ScaleRpc);
        eventually("nobody is left", || server.connections() == 0);
        assert!(server.shutdown());
    }
}

/// A client whose zone is its own for good waits for no turn, and one that asks for one would keep its server awake.
#[test]
fn a_client_that_needs_no_turn_and_asks_for_one_is_ended() {
    let server = serve();
    let device = hostile_device();
    for preset in [Preset::RawWrite, Preset::SelfRpc] {
        let violations = server.statistics().violations;
        let mut guest = Guest::dial(&device, &server, preset);
        guest.write(
            guest.inlet.at,
            &(1u64 << 48).to_le_bytes(),
            guest.ring(ENTRY_NOTICE),
        );
        eventually("it has ended", || {
            server.statistics().violations == violations + 1 && server.connections() == 0
        });
    }
}

/// What a client tells of messages is checked against what is there.
#[test]
fn each_lie_about_a_message_ends_its_client() {
    let server = serve();
    let device = hostile_device();
    type InvalidReport = fn(&mut Guest) -> bool;
    let lies: [(&str, InvalidReport); 7] = [
        ("no message", |guest| {
            guest.write(guest.zone.at, &[], guest.ring(3))
        }),
        ("another client", |guest| {
            let ring = guest
                .number
                .map(|number| NOTIFICATIONS | (number + 1) << 8 | 2);
            guest.call(2, 2, ring)
        }),
        ("another block", |guest| guest.call(2, 2, guest.ring(4))),
        ("no block", |guest| {
            guest.write(guest.zone.at, &[], guest.ring(32))
        }),
        ("half of a message", |guest| {
            let end = block_bytes(EAGER) as u64;
            guest.write(guest.zone.at.plus(end - 8), &[7; 8], guest.ring(0))
        }),
        ("a call in the place of words", |guest| {
            guest.call(CALLS, CALLS as u64, guest.ring(CALLS as u32))
        }),
        ("an entry that is none", |guest| {
            guest.write(guest.inlet.at, &[1, 0, 0, 0, 9, 0, 5, 0], guest.ring(77))
        }),
    ];
    for (index, (name, lie)) in lies.iter().enumerate() {
        let mut guest = Guest::dial(&device, &server, Preset::SelfRpc);
        // It may be over before the WRITE is known to be.
        let _ = lie(&mut guest);
        eventually(name, || server.statistics().violations == index as u64 + 1);
        eventually("it has ended", || server.connections() == 0);
    }
    // Who tells the truth is heard: each of these is executed, and no sooner than it is told of.
    let mut guest = Guest::dial(&device, &server, Preset::SelfRpc);
    assert!(guest.call(5, 5, None));
    assert!(guest.call(6, 6, guest.ring(6)));
    eventually("the one that was told of is taken", || {
        server.statistics().requests == 1
    });
    let ring = guest.ring(5);
    assert!(guest.write(guest.zone.at, &[], ring));
    eventually("so is the other", || server.statistics().requests == 2);
    assert_eq!(server.statistics().violations, lies.len() as u64);
    assert_eq!(server.connections(), 1);
}
