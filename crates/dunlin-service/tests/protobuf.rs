//! The codec of a message's own beside prost's: the same bytes, and the same bytes refused.

use dunlin_service::codec::{Codec, Encode, Prost, Protobuf, Views};
use dunlin_service::protobuf;
use proptest::prelude::*;
use prost::Message;

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Colour {
    Red = 0,
    Blue = 7,
}

/// Every kind, each label.
#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view)]
struct All {
    #[prost(bool, tag = "1")]
    yes: bool,
    #[prost(int32, tag = "2")]
    int: i32,
    #[prost(int64, tag = "3")]
    long: i64,
    #[prost(uint32, tag = "15")]
    uint: u32,
    #[prost(uint64, tag = "16")]
    ulong: u64,
    #[prost(sint32, tag = "2047")]
    sint: i32,
    #[prost(sint64, tag = "2048")]
    slong: i64,
    #[prost(fixed32, tag = "8")]
    fixed: u32,
    #[prost(fixed64, tag = "9")]
    lfixed: u64,
    #[prost(sfixed32, tag = "10")]
    sfixed: i32,
    #[prost(sfixed64, tag = "11")]
    slfixed: i64,
    #[prost(float, tag = "12")]
    float: f32,
    #[prost(double, tag = "13")]
    double: f64,
    #[prost(enumeration = "Colour", tag = "14")]
    colour: i32,
    #[prost(string, tag = "4")]
    words: String,
    #[prost(bytes = "vec", tag = "5")]
    bytes: Vec<u8>,
    #[prost(message, optional, boxed, tag = "6")]
    inner: Option<Box<All>>,
    #[prost(message, repeated, tag = "7")]
    list: Vec<Mixed>,
    #[prost(sint32, optional, tag = "20")]
    maybe: Option<i32>,
    #[prost(string, optional, tag = "21")]
    maybe_words: Option<String>,
    #[prost(int32, repeated, tag = "22")]
    packed: Vec<i32>,
    #[prost(fixed64, repeated, packed = "false", tag = "23")]
    unpacked: Vec<u64>,
    #[prost(string, repeated, tag = "24")]
    lines: Vec<String>,
    #[prost(enumeration = "Colour", repeated, tag = "25")]
    colours: Vec<i32>,
    #[prost(message, optional, tag = "26")]
    when: Option<prost_types::Timestamp>,
}

/// With a oneof and a map: left to prost as a whole.
#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view)]
struct Mixed {
    #[prost(oneof = "Either", tags = "1, 2")]
    either: Option<Either>,
    #[prost(btree_map = "string, int32", tag = "3")]
    map: std::collections::BTreeMap<String, i32>,
    #[prost(message, optional, boxed, tag = "4")]
    all: Option<Box<All>>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Either {
    #[prost(string, tag = "1")]
    Words(String),
    #[prost(uint32, tag = "2")]
    Number(u32),
}

#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view = "Nothing")]
struct Empty {}

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

fn encode<T>(message: &T) -> Vec<u8>
where
    T: protobuf::Message,
{
    let mut bytes = vec![0xee];
    <Protobuf as Encode<T>>::append(message, &mut bytes);
    bytes.split_off(1)
}

/// All read the bytes, into a place that holds something and as a view, and say the same.
fn check_both<T>(bytes: &[u8], before: &T) -> Option<T>
where
    T: Message + protobuf::Viewed + PartialEq + Clone,
{
    let (mut ours, mut prosts) = (before.clone(), before.clone());
    let read = <Protobuf as Codec<T>>::decode_into(&mut ours, bytes);
    let expected = <Prost as Codec<T>>::decode_into(&mut prosts, bytes);
    assert_eq!(
        read.is_ok(),
        expected.is_ok(),
        "{read:?} {expected:?} of {bytes:?}"
    );
    let view = <Protobuf as Views<T>>::view(bytes);
    assert_eq!(view.as_ref().err(), read.as_ref().err(), "{bytes:?}");
    read.ok()?;
    assert_eq!(encode(&view.unwrap()), ours.encode_to_vec());
    // By bytes: a value that is no number is unlike itself.
    assert_eq!(ours.encode_to_vec(), prosts.encode_to_vec());
    Some(ours)
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
    assert_eq!(read(&[4 << 3]), "field 4 is of another type");
    assert_eq!(read(&[4 << 3 | 2, 9, b'a']), "it ends within a field");
    assert_eq!(read(&[4 << 3 | 2, 1, 0xff]), "a text in it is not UTF-8");
    assert_eq!(
        read(&[2 << 3, 0x80]),
        "a number in it is longer than it can be"
    );
}
