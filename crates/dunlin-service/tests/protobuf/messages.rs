//! Messages of every kind, and the check that they are read alike in each way; the fuzz target `service_protobuf` uses
//! it, too.

use dunlin_service::codec::{Codec, Encode, Prost, Protobuf, Views};
use dunlin_service::protobuf;
use prost::Message;

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Colour {
    Red = 0,
    Blue = 7,
}

/// Every kind, each label.
#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view)]
pub(crate) struct All {
    #[prost(bool, tag = "1")]
    pub(crate) yes: bool,
    #[prost(int32, tag = "2")]
    pub(crate) int: i32,
    #[prost(int64, tag = "3")]
    pub(crate) long: i64,
    #[prost(uint32, tag = "15")]
    pub(crate) uint: u32,
    #[prost(uint64, tag = "16")]
    pub(crate) ulong: u64,
    #[prost(sint32, tag = "2047")]
    pub(crate) sint: i32,
    #[prost(sint64, tag = "2048")]
    pub(crate) slong: i64,
    #[prost(fixed32, tag = "8")]
    pub(crate) fixed: u32,
    #[prost(fixed64, tag = "9")]
    pub(crate) lfixed: u64,
    #[prost(sfixed32, tag = "10")]
    pub(crate) sfixed: i32,
    #[prost(sfixed64, tag = "11")]
    pub(crate) slfixed: i64,
    #[prost(float, tag = "12")]
    pub(crate) float: f32,
    #[prost(double, tag = "13")]
    pub(crate) double: f64,
    #[prost(enumeration = "Colour", tag = "14")]
    pub(crate) colour: i32,
    #[prost(string, tag = "4")]
    pub(crate) words: String,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) bytes: Vec<u8>,
    #[prost(message, optional, boxed, tag = "6")]
    pub(crate) inner: Option<Box<All>>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) list: Vec<Mixed>,
    #[prost(sint32, optional, tag = "20")]
    pub(crate) maybe: Option<i32>,
    #[prost(string, optional, tag = "21")]
    pub(crate) maybe_words: Option<String>,
    #[prost(int32, repeated, tag = "22")]
    pub(crate) packed: Vec<i32>,
    #[prost(fixed64, repeated, packed = "false", tag = "23")]
    pub(crate) unpacked: Vec<u64>,
    #[prost(string, repeated, tag = "24")]
    pub(crate) lines: Vec<String>,
    #[prost(enumeration = "Colour", repeated, tag = "25")]
    pub(crate) colours: Vec<i32>,
    #[prost(message, optional, tag = "26")]
    pub(crate) when: Option<prost_types::Timestamp>,
}

/// Has no zero, as proto2 allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Day {
    Monday = 1,
    Sunday = 7,
}

/// Its first field is Monday unless something else is said.
#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view)]
pub(crate) struct Week {
    #[prost(enumeration = "Day", tag = "1")]
    pub(crate) first: i32,
    #[prost(enumeration = "Day", optional, tag = "2")]
    pub(crate) free: Option<i32>,
    #[prost(enumeration = "Day", repeated, tag = "3")]
    pub(crate) others: Vec<i32>,
}

/// With a oneof and a map: left to prost as a whole.
#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view)]
pub(crate) struct Mixed {
    #[prost(oneof = "Either", tags = "1, 2")]
    pub(crate) either: Option<Either>,
    #[prost(btree_map = "string, int32", tag = "3")]
    pub(crate) map: std::collections::BTreeMap<String, i32>,
    #[prost(message, optional, boxed, tag = "4")]
    pub(crate) all: Option<Box<All>>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Either {
    #[prost(string, tag = "1")]
    Words(String),
    #[prost(uint32, tag = "2")]
    Number(u32),
}

#[derive(Clone, PartialEq, Message, protobuf::Message)]
#[protobuf(view = "Nothing")]
pub(crate) struct Empty {}

pub(crate) fn encode<T>(message: &T) -> Vec<u8>
where
    T: protobuf::Message,
{
    let mut bytes = vec![0xee];
    <Protobuf as Encode<T>>::append(message, &mut bytes);
    bytes.split_off(1)
}

/// All read the bytes, into a place that holds something and as a view, and say the same.
pub(crate) fn check_both<T>(bytes: &[u8], before: &T) -> Option<T>
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
