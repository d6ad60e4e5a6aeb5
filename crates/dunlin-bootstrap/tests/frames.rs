//! Properties of the frame parsers: they never panic, and what was written is what is read.

use std::collections::BTreeMap;

use dunlin_bootstrap::wire::*;
use dunlin_bootstrap::{
    Capability, Choice, HostId, NoCommonDevice, OpenReply, OpenRequest, Proof, Reach, Reason,
    Refusal,
};
use dunlin_verbs::EndpointAddress;
use proptest::prelude::*;

const NAME: &str = "[!-~]{1,64}";
const TEXT: &str = "[ -~é]{0,100}";

fn capability() -> impl Strategy<Value = Capability> {
    let host = any::<[u8; 16]>().prop_map(|bytes| Reach::SameHost(HostId::from_bytes(bytes)));
    (
        NAME,
        prop_oneof![host, Just(Reach::Network), Just(Reach::RoceV2)],
    )
        .prop_map(|(device, reach)| Capability { device, reach })
}

fn capabilities() -> impl Strategy<Value = Vec<Capability>> {
    prop::collection::vec(capability(), 0..=MAX_CAPABILITIES)
}

fn endpoint() -> impl Strategy<Value = EndpointAddress> {
    (any::<[u8; 16]>(), any::<(u16, u32, u32, u32, u32, u64)>()).prop_map(|(gid, words)| {
        EndpointAddress {
            gid,
            lid: words.0,
            mtu_bytes: words.1,
            queue_pair: words.2,
            packet_sequence: words.3 & 0x00ff_ffff,
            queue_key: words.4,
            token: words.5,
        }
    })
}

fn parameters() -> impl Strategy<Value = BTreeMap<String, u64>> {
    prop::collection::btree_map(NAME, any::<u64>(), 0..=MAX_PARAMETERS)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    let known = prop::collection::vec(TEXT, 0..=MAX_KNOWN);
    let devices = (prop::option::of(NAME), capabilities(), capabilities());
    prop_oneof![
        any::<u32>().prop_map(|limit| Refusal::Busy { limit }),
        Just(Refusal::WrongSecret),
        Just(Refusal::ShuttingDown),
        devices.prop_map(|(asked, client, server)| {
            Refusal::NoCommonDevice(NoCommonDevice {
                asked,
                client,
                server,
            })
        }),
        (TEXT, known).prop_map(|(asked, known)| Refusal::UnknownPreset { asked, known }),
        (TEXT, any::<u64>()).prop_map(|(name, limit)| Refusal::Limit { name, limit }),
        TEXT.prop_map(Refusal::rejected),
    ]
}

fn outcome<T: std::fmt::Debug + Clone>(
    accepted: impl Strategy<Value = T>,
) -> impl Strategy<Value = Outcome<T>> {
    prop_oneof![
        accepted.prop_map(Outcome::Accepted),
        refusal().prop_map(Outcome::Refused)
    ]
}

fn proof() -> impl Strategy<Value = Option<Proof>> {
    prop::option::of(any::<[u8; 32]>())
}

fn client_hello() -> impl Strategy<Value = ClientHello> {
    (
        any::<[u8; 32]>(),
        any::<bool>(),
        capabilities(),
        prop::option::of(NAME),
    )
        .prop_map(
            |(nonce, has_secret, capabilities, preference)| ClientHello {
                nonce,
                has_secret,
                capabilities,
                preference,
            },
        )
}

fn server_hello() -> impl Strategy<Value = Proved<ServerHello>> {
    let reason = prop_oneof![Just(Reason::Asked), Just(Reason::OnlyCommon)];
    let choice = (NAME, NAME, reason).prop_map(|(client_device, server_device, reason)| Choice {
        client_device,
        server_device,
        reason,
    });
    (proof(), any::<[u8; 32]>(), any::<bool>(), outcome(choice)).prop_map(
        |(proof, nonce, secret_required, outcome)| Proved {
            proof,
            message: ServerHello {
                nonce,
                secret_required,
                outcome,
            },
        },
    )
}

fn open() -> impl Strategy<Value = Proved<ClientOpen>> {
    let request = (NAME, NAME, endpoint(), parameters()).prop_map(
        |(device, preset, endpoint, parameters)| {
            ClientOpen::Open(OpenRequest {
                device,
                preset,
                endpoint,
                parameters,
            })
        },
    );
    (proof(), prop_oneof![request, Just(ClientOpen::WrongSecret)])
        .prop_map(|(proof, message)| Proved { proof, message })
}

fn open_reply() -> impl Strategy<Value = Proved<ServerReply>> {
    let reply = (endpoint(), parameters()).prop_map(|(endpoint, parameters)| OpenReply {
        endpoint,
        parameters,
    });
    (proof(), outcome(reply)).prop_map(|(proof, message)| Proved { proof, message })
}

/// Reads bytes as each of the four frames.
fn parse_all(bytes: &[u8]) {
    let _ = parse_client_hello(bytes);
    let _ = parse_server_hello(bytes);
    let _ = parse_open(bytes);
    let _ = parse_open_reply(bytes);
}

proptest! {
    #[test]
    fn client_hellos(hello in client_hello()) {
        let frame = encode_client_hello(&hello).unwrap();
        prop_assert!(frame.len() <= MAX_FRAME);
        prop_assert_eq!(parse_client_hello(&frame), Ok(hello));
    }

    #[test]
    fn server_hellos(hello in server_hello()) {
        let frame = encode_server_hello(&hello).unwrap();
        prop_assert!(frame.len() <= MAX_FRAME);
        prop_assert_eq!(parse_server_hello(&frame), Ok(hello));
    }

    #[test]
    fn opens(open in open()) {
        let frame = encode_open(&open).unwrap();
        prop_assert!(frame.len() <= MAX_FRAME);
        prop_assert_eq!(parse_open(&frame), Ok(open));
    }

    #[test]
    fn open_replies(reply in open_reply()) {
        let frame = encode_open_reply(&reply).unwrap();
        prop_assert!(frame.len() <= MAX_FRAME);
        prop_assert_eq!(parse_open_reply(&frame), Ok(reply));
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        parse_all(&bytes);
        parse_all(&[&MAGIC[..], &VERSION.to_le_bytes(), &bytes].concat());
    }

    /// Near misses reach deeper than random bytes.
    #[test]
    fn damaged_frames(
        hello in client_hello(),
        open in open(),
        at in any::<prop::sample::Index>(),
        bits in 1_u8..,
        end in any::<prop::sample::Index>(),
    ) {
        for mut frame in [encode_client_hello(&hello).unwrap(), encode_open(&open).unwrap()] {
            let at = at.index(frame.len());
            frame[at] ^= bits;
            parse_all(&frame);
            frame.truncate(end.index(frame.len()));
            parse_all(&frame);
        }
    }

    #[test]
    fn cut_or_continued_frames_are_refused(open in open(), end in any::<prop::sample::Index>()) {
        let mut frame = encode_open(&open).unwrap();
        prop_assert!(parse_open(&frame[..end.index(frame.len())]).is_err());
        frame.push(0);
        prop_assert_eq!(parse_open(&frame), Err(ParseError::Trailing));
    }
}

/// The layout is a promise to other releases: this frame was written by version 7.
#[test]
fn the_wire_form_does_not_change_unnoticed() {
    let hello = ClientHello {
        nonce: [0xaa; 32],
        has_secret: true,
        capabilities: vec![Capability {
            device: "roce".into(),
            reach: Reach::Network,
        }],
        preference: Some("roce".into()),
    };
    let mut frame = b"\x89DUNLIN\0\x07\0".to_vec();
    frame.extend_from_slice(&[0xaa; 32]);
    frame.extend_from_slice(b"\x01\x01\x04roce\x01\x01\x04roce");
    assert_eq!(encode_client_hello(&hello).unwrap(), frame);
}
