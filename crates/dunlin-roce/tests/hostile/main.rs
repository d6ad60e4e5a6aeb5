//! Peers that keep no rule: whatever they send, nothing panics, nothing is written that was not granted, nothing is
//! carried out twice, and whoever keeps the rules afterwards is served. The same runs are played by the fuzz targets.

mod besides;
mod cases;
mod choices;
mod packets;
mod requester;
mod responder;
mod unreliable;
mod watched;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn no_bytes_are_read_as_another_packet(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        packets::bytes_of_anybody(&bytes);
    }

    #[test]
    fn no_requester_harms_a_responder(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        responder::hostile_requester(&bytes);
    }

    #[test]
    fn no_responder_harms_a_requester(bytes in prop::collection::vec(any::<u8>(), 0..4_000)) {
        requester::hostile_responder(&bytes);
    }

    #[test]
    fn packets_from_elsewhere_harm_nobody(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        besides::packets_from_elsewhere(&bytes);
    }

    #[test]
    fn no_sender_harms_a_receiver_of_uc(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        unreliable::hostile_sender(&bytes);
    }
}
