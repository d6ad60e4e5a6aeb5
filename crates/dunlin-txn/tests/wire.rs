//! Bytes of peers: what is encoded comes back, and no bytes do harm.
use dunlin_txn::wire::{Answer, Body, Item, Request, Response};
use dunlin_txn::{Address, Key, Place, Raised, TransactionId, Update, Value, Version};
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Key> {
    (any::<u16>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(table, bytes)| Key::new(table, &bytes).unwrap())
}

fn value() -> impl Strategy<Value = Option<Value>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..60).prop_map(Value::from))
}

fn version() -> impl Strategy<Value = Version> {
    (0..=Version::MAX.0).prop_map(Version)
}

fn updates() -> impl Strategy<Value = Vec<Update>> {
    let update = (key(), value(), version()).prop_map(|(key, value, version)| Update {
        key,
        value,
        version,
    });
    prop::collection::vec(update, 0..5)
}

fn transaction() -> impl Strategy<Value = TransactionId> {
    (any::<u64>(), any::<u16>(), 1..u64::MAX).prop_map(|(coordinator, slot, sequence)| {
        TransactionId {
            coordinator,
            slot,
            sequence,
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let writes = prop::collection::vec((key(), any::<u32>()), 0..5);
    let body = prop_oneof![
        (writes, prop::collection::vec(key(), 0..5))
            .prop_map(|(writes, reads)| Body::Execute { writes, reads }),
        prop::collection::vec((key(), version()), 0..5).prop_map(Body::Validate),
        (updates(), updates()).prop_map(|(append, apply)| Body::Replicate { append, apply }),
        updates().prop_map(Body::Commit),
        Just(Body::Release),
    ];
    (transaction(), 1..u16::MAX, body).prop_map(|(transaction, step, body)| Request {
        transaction,
        step,
        body,
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let place =
        (any::<u64>(), any::<u64>(), any::<Option<u32>>()).prop_map(|(header, item, capacity)| {
            Place {
                header: Address(header),
                item: Address(item),
                capacity,
            }
        });
    let raised = (any::<u64>(), version(), version()).prop_map(|(header, from, to)| Raised {
        header: Address(header),
        from,
        to,
    });
    let item = (value(), version(), prop::option::of(raised), place).prop_map(
        |(value, version, raised, place)| Item {
            value,
            version,
            raised,
            place,
        },
    );
    let response = prop_oneof![
        prop::collection::vec(item, 0..5).prop_map(Response::Executed),
        (any::<u32>(), transaction()).prop_map(|(item, owner)| Response::Locked { item, owner }),
        any::<u32>().prop_map(|item| Response::Invalid { item }),
        Just(Response::Valid),
        Just(Response::Done),
    ];
    (transaction(), 1..u16::MAX, response).prop_map(|(transaction, step, response)| Answer {
        transaction,
        step,
        response,
    })
}

proptest! {
    #[test]
    fn a_request_comes_back_and_no_part_of_it_passes_for_one(request in request()) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        prop_assert_eq!(Request::decode(&bytes), Ok(request));
        for end in 0..bytes.len() {
            prop_assert!(Request::decode(&bytes[..end]).is_err());
        }
        bytes.push(0);
        prop_assert!(Request::decode(&bytes).is_err());
    }

    #[test]
    fn an_answer_comes_back_and_no_part_of_it_passes_for_one(answer in answer()) {
        let mut bytes = Vec::new();
        answer.encode(&mut bytes);
        prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
        for end in 0..bytes.len() {
            prop_assert!(Answer::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn what_is_understood_of_damaged_bytes_is_what_they_say(
        request in request(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        *at.get_mut(&mut bytes) = byte;
        if let Ok(understood) = Request::decode(&bytes) {
            let mut again = Vec::new();
            understood.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
