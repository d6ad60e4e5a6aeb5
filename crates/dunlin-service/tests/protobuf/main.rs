//! The codec of a message's own beside prost's: the same bytes, and the same bytes refused.

mod messages;

use dunlin_service::codec::{Codec, Protobuf, Views};
use proptest::prelude::*;
use prost::Message;

use messages::{
    check_both, encode, All, AllView, Colour, Day, Either, Empty, Mixed, Nothing, Week, WeekView,
};

fn mixed() -> impl Strategy<Value = Mixed> {
    let either = prop_oneof![
        any::<String>().prop_map(Either::Words),
        any::<u32>().prop_map(Either::Number)
    ];
    let map = prop::collection::btree_map(any::<String>(), any::<i32>(), 0..3);
    (prop::option::of(either), map).prop_map(|(either, map)| Mixed {
        either,
        map,
        all: None,
    })
}

fn flat() -> impl Strategy<Value = All> {
    let numbers = any::<(bool, i32, i64, u32, u64, i32, i64)>();
    let fixed = any::<(u32, u64, i32, i64, f32, f64)>();
    // Half of the values are the defaults.
    let some = || any::<bool>();
    let texts = any::<(String, Vec<u8>, Option<i32>, Option<String>)>();
    let lists = any::<(Vec<i32>, Vec<u64>, Vec<String>, Vec<bool>)>();
    let others = (
        prop::collection::vec(mixed(), 0..3),
        any::<Option<(i64, i32)>>(),
    );
    (numbers, fixed, some(), some(), texts, lists, others).prop_map(
        |(numbers, fixed, with_numbers, with_fixed, texts, lists, others)| {
            let mut all = All::default();
            if with_numbers {
                (
                    all.yes, all.int, all.long, all.uint, all.ulong, all.sint, all.slong,
                ) = numbers;
            }
            if with_fixed {
                (
                    all.fixed,
                    all.lfixed,
                    all.sfixed,
                    all.slfixed,
                    all.float,
                    all.double,
                ) = fixed;
                all.colour = Colour::Blue as i32;
            }
            (all.words, all.bytes, all.maybe, all.maybe_words) = texts;
            let colours: Vec<bool>;
            (all.packed, all.unpacked, all.lines, colours) = lists;
            all.colours = colours.iter().map(|&blue| 7 * i32::from(blue)).collect();
            all.list = others.0;
            all.when = others
                .1
                .map(|(seconds, nanos)| prost_types::Timestamp { seconds, nanos });
            all
        },
    )
}

fn nested() -> impl Strategy<Value = All> {
    (flat(), prop::option::of(flat())).prop_map(|(outer, inner)| All {
        inner: inner.map(Box::new),
        ..outer
    })
}

proptest! {
    #[test]
    fn the_bytes_are_those_of_prost(message in nested(), before in flat()) {
        let bytes = encode(&message);
        prop_assert_eq!(&bytes, &message.encode_to_vec());
        let back = check_both(&bytes, &before).expect("own bytes are read");
        prop_assert_eq!(back.encode_to_vec(), bytes);
    }

    #[test]
    fn messages_left_to_prost_are_the_same(message in mixed(), all in flat()) {
        let message = Mixed { all: Some(Box::new(all)), ..message };
        prop_assert_eq!(encode(&message), message.encode_to_vec());
    }

    #[test]
    fn changed_bytes_are_read_alike(
        message in nested(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&message);
        for (at, byte) in changes.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        check_both::<All>(&bytes, &All::default());
        bytes.truncate(end.index(bytes.len() + 1));
        check_both::<All>(&bytes, &All::default());
        check_both::<Empty>(&bytes, &Empty::default());
    }

    #[test]
    fn any_bytes_are_read_alike(
        fields in prop::collection::vec((0u32..30, 0u32..8, any::<Vec<u8>>()), 0..6),
        any: Vec<u8>,
    ) {
        check_both::<All>(&any, &All::default());
        check_both::<Empty>(&any, &Empty::default());
        // Keys that are right more often than not.
        let mut bytes = Vec::new();
        for (number, wire, content) in fields {
            prost::encoding::encode_varint(u64::from(number << 3 | wire), &mut bytes);
            if wire == 2 {
                prost::encoding::encode_varint(content.len() as u64, &mut bytes);
            }
            bytes.extend_from_slice(&content);
        }
        check_both::<All>(&bytes, &All::default());
        check_both::<Empty>(&bytes, &Empty::default());
    }

    #[test]
    fn texts_that_are_cut_are_refused(text in "\\PC{0,40}", end in any::<prop::sample::Index>()) {
        let cut = &text.as_bytes()[..end.index(text.len() + 1)];
        let mut bytes = vec![4 << 3 | 2];
        prost::encoding::encode_varint(cut.len() as u64, &mut bytes);
        bytes.extend_from_slice(cut);
        let read = check_both::<All>(&bytes, &All::default());
        prop_assert_eq!(read.map(|all| all.words), String::from_utf8(cut.to_vec()).ok());
    }
}

/// What is not there is the first value, and what is there is another.
#[test]
fn the_default_of_an_enum_is_its_first_value() {
    for first in [0, Day::Monday as i32, Day::Sunday as i32] {
        for (free, others) in [(None, vec![]), (Some(1), vec![1, 7]), (Some(0), vec![0])] {
            let message = Week {
                first,
                free,
                others,
            };
            let bytes = encode(&message);
            assert_eq!(bytes, message.encode_to_vec());
            let before = Week {
                first: Day::Sunday as i32,
                ..Week::default()
            };
            let back = check_both(&bytes, &before).expect("own bytes are read");
            assert_eq!(back, message);
            assert_eq!(WeekView::default().first, Week::default().first);
        }
    }
}

/// A peer's bytes do not end the stack.
#[test]
fn messages_and_groups_nested_too_deep_are_refused() {
    for (number, counted) in [(6u8, true), (19, false)] {
        for depth in [1usize, 99, 100, 101, 102, 10_000] {
            let mut bytes = Vec::new();
            for _ in 0..depth {
                let mut outer = Vec::new();
                if counted {
                    prost::encoding::encode_varint(u64::from(number << 3 | 2), &mut outer);
                    prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
                    outer.append(&mut bytes);
                } else {
                    prost::encoding::encode_varint(u64::from(number) << 3 | 3, &mut outer);
                    outer.append(&mut bytes);
                    prost::encoding::encode_varint(u64::from(number) << 3 | 4, &mut outer);
                }
                bytes = outer;
            }
            let read = check_both::<All>(&bytes, &All::default());
            assert_eq!(read.is_some(), depth <= 100, "{depth} deep");
        }
    }
}

/// What a place held is not in the next message, and its memory is used again.
#[test]
fn a_place_is_used_again() {
    let long = All {
        words: "w".repeat(1000),
        packed: vec![1; 100],
        maybe: Some(1),
        ..All::default()
    };
    let mut place = All::default();
    <Protobuf as Codec<All>>::decode_into(&mut place, &encode(&long)).unwrap();
    assert_eq!(place, long);
    let capacity = place.words.capacity();
    let short = All {
        words: "short".into(),
        ..All::default()
    };
    <Protobuf as Codec<All>>::decode_into(&mut place, &encode(&short)).unwrap();
    assert_eq!(place, short);
    assert_eq!(place.words.capacity(), capacity);
}

/// Texts and bytes of a view are those of the slice that was read, at any depth.
#[test]
fn views_are_parts_of_what_was_read() {
    let message = All {
        int: -5,
        words: "outer".into(),
        bytes: vec![1, 2, 3],
        lines: vec!["one".into(), "two".into()],
        inner: Some(Box::new(All {
            words: "inner".into(),
            ..All::default()
        })),
        ..All::default()
    };
    let bytes = encode(&message);
    let view: AllView<'_> = <Protobuf as Views<All>>::view(&bytes).unwrap();
    let inner = view.inner.as_ref().unwrap();
    assert_eq!(
        (view.int, view.words, view.bytes),
        (-5, "outer", &[1, 2, 3][..])
    );
    assert_eq!(
        (inner.words, &view.lines[..]),
        ("inner", &["one", "two"][..])
    );
    let range = bytes.as_ptr_range();
    for part in [view.words, inner.words, view.lines[1]] {
        assert!(range.contains(&part.as_ptr()), "{part:?} was copied");
    }
    assert!(range.contains(&view.bytes.as_ptr()));
    assert_eq!(
        Nothing::default(),
        <Protobuf as Views<Empty>>::view(&[]).unwrap()
    );
}

#[test]
fn errors_say_what_is_wrong() {
    let read = |bytes: &[u8]| {
        let read = <Protobuf as Codec<All>>::decode_into(&mut All::default(), bytes);
        read.unwrap_err().to_string()
    };
    assert_eq!(read(&[4 << 3]), "field 4 has the wrong type");
    assert_eq!(read(&[4 << 3 | 2, 9, b'a']), "truncated within a field");
    assert_eq!(read(&[4 << 3 | 2, 1, 0xff]), "a string is not valid UTF-8");
    assert_eq!(read(&[2 << 3, 0x80]), "a number is too long");
}
