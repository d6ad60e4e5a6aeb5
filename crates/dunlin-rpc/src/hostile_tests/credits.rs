//! Clients that lie about credits.

use super::*;
use crate::admission::credits::CREDITS_OF_MEMORY;
use crate::channel::batch;

/// Of a lane on this device to begin with.
const CREDITS: u64 = CREDITS_OF_MEMORY as u64;
/// Highest degree that can be.
const MOST_DEGREE: u32 = CREDITS_OF_MEMORY + CREDITS_OF_MEMORY / 2;

#[test]
fn a_client_that_lies_about_credits_is_disconnected() {
    let server = serve();
    let device = hostile_device();
    beside_a_good_client(&server, || {
        let flock = Client::builder()
            .preset(crate::Preset::Flock)
            .connect(&server.address().to_string())
            .unwrap();
        let mut violations = 0;
        let mut ends = |raw: &Raw, what: &str| {
            violations += 1;
            eventually(what, || server.statistics().violations == violations);
            eventually("the peer sees it", || !raw.is_alive());
            assert_eq!(*flock.call(ECHO, b"flock").unwrap(), *b"flock");
        };
        for degree in [0, MOST_DEGREE + 1, 4_000_000_000 & !(1 << 31), !(1 << 31)] {
            let mut raw = Raw::dial_as(&device, &server, 64, Some(1));
            raw.ask(degree);
            // Looked at when half of the credits are spent.
            for call in 0..CREDITS / 2 {
                raw.honest(Kind::Request, ECHO, call, b"one");
            }
            ends(&raw, "a degree that cannot be");
        }
        let mut raw = Raw::dial_as(&device, &server, 64, Some(2));
        for call in 0..=CREDITS {
            raw.honest(Kind::Request, ECHO, call, b"too many");
        }
        ends(&raw, "one request more than credits");
        // All at once, in a message that says more requests than there are credits.
        let mut raw = Raw::dial_as(&device, &server, 64, Some(3));
        let request = Header {
            length: 0,
            handler: ECHO,
            kind: Kind::Request,
            call: 1,
        };
        let count = CREDITS_OF_MEMORY + 8;
        let content = request.encode().repeat(count as usize);
        raw.batch(batch::lines_of(content.len()), count, &content, 0);
        ends(&raw, "a coalesced message beyond the credits");
        let mut raw = Raw::dial_as(&device, &server, 64, Some(4));
        for call in 0..=CREDITS {
            raw.honest(Kind::LongRequest, 999, call, &[0; 24]);
        }
        ends(&raw, "long requests cost credits too");
    });
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.senders().is_empty());
    assert!(server.shutdown());
}

#[test]
fn asking_early_and_often_brings_no_more_credits() {
    let server = serve();
    let device = hostile_device();
    let mut raw = Raw::dial_as(&device, &server, 64, Some(9));
    for _ in 0..4 {
        assert!(raw.ask(3));
    }
    for call in 1..CREDITS / 2 {
        assert!(raw.honest(Kind::Request, ECHO, call, b"one"));
    }
    let taken = || server.statistics().requests;
    eventually("one less than half were taken", || {
        taken() == CREDITS / 2 - 1
    });
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(raw.granted(), (0, false), "nothing was granted yet");
    assert!(raw.honest(Kind::Request, ECHO, CREDITS / 2, b"one"));
    let twice = 2 * CREDITS_OF_MEMORY;
    eventually("as many more are granted, once", || {
        raw.granted() == (twice, true)
    });
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(raw.granted().0, twice);
    assert_eq!(server.statistics().violations, 0);
}
