//! Fields of messages: kinds of values, and labels (singular, optional, repeated, packed). The derive refers to these
//! items.

use ascii::AsciiStr;

pub use super::enumeration::Enumeration;
use super::wire::{key_length, Key, Malformed, Reader, Wire, Writer};
use super::{Merge, Message};
use crate::varint;

/// The encoding of a value, implemented by a type without values for each of protobuf's kinds.
pub trait Kind<V> {
    /// Its wire type.
    const WIRE: Wire;

    /// Number of bytes of a value, without its key.
    fn length(value: &V) -> usize;

    /// Writes a value.
    fn put(value: &V, to: &mut Writer<'_>);

    /// Whether it is the default value, which an absent field has.
    fn is_default(value: &V) -> bool;

    /// Resets it to the default value.
    fn clear(value: &mut V);
}

/// Decodes a value of a kind from bytes that live for `'a`; views keep parts of them.
pub trait Take<'a, V>: Kind<V> {
    /// Decodes a value into an existing one.
    ///
    /// # Errors
    /// If there is none.
    fn take(place: &mut V, from: &mut Reader<'a>) -> Result<(), Malformed>;
}

/// Numbers of one to ten bytes, with their conversions.
macro_rules! varints {
    ($($(#[$doc:meta])* $kind:ident $type:ty: $value:ident => $to:expr, $number:ident => $from:expr;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $kind;

        impl Kind<$type> for $kind {
            const WIRE: Wire = Wire::Varint;

            #[inline]
            fn length(value: &$type) -> usize {
                let $value = *value;
                varint::length($to)
            }

            #[inline]
            fn put(value: &$type, to: &mut Writer<'_>) {
                let $value = *value;
                to.number($to);
            }

            #[inline]
            fn is_default(value: &$type) -> bool {
                *value == <$type>::default()
            }

            #[inline]
            fn clear(value: &mut $type) {
                *value = <$type>::default();
            }
        }

        impl<'a> Take<'a, $type> for $kind {
            #[inline]
            fn take(place: &mut $type, from: &mut Reader<'a>) -> Result<(), Malformed> {
                let $number = from.number()?;
                *place = $from;
                Ok(())
            }
        }
    )+ };
}

varints! {
    /// `bool`.
    Bool bool: value => u64::from(value), number => number != 0;
    /// `int32`. Negative values take ten bytes.
    Int32 i32: value => i64::from(value) as u64, number => number as i32;
    /// `int64`.
    Int64 i64: value => value as u64, number => number as i64;
    /// `uint32`.
    Uint32 u32: value => u64::from(value), number => number as u32;
    /// `uint64`.
    Uint64 u64: value => value, number => number;
    /// `sint32`: small negative values are encoded as small numbers.
    Sint32 i32: value => u64::from((value << 1 ^ value >> 31) as u32),
        number => (number as u32 >> 1) as i32 ^ -(number as i32 & 1);
    /// `sint64`: small negative values are encoded as small numbers.
    Sint64 i64: value => (value << 1 ^ value >> 63) as u64,
        number => (number >> 1) as i64 ^ -(number as i64 & 1);
}

/// Values of four and eight bytes.
macro_rules! fixed {
    ($($(#[$doc:meta])* $kind:ident $value:ty: $wire:ident;)+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $kind;

        impl Kind<$value> for $kind {
            const WIRE: Wire = Wire::$wire;

            #[inline]
            fn length(_: &$value) -> usize {
                size_of::<$value>()
            }

            #[inline]
            fn put(value: &$value, to: &mut Writer<'_>) {
                to.bytes(&value.to_le_bytes());
            }

            #[inline]
            fn is_default(value: &$value) -> bool {
                *value == <$value>::default()
            }

            #[inline]
            fn clear(value: &mut $value) {
                *value = <$value>::default();
            }
        }

        impl<'a> Take<'a, $value> for $kind {
            #[inline]
            fn take(place: &mut $value, from: &mut Reader<'a>) -> Result<(), Malformed> {
                *place = <$value>::from_le_bytes(from.array()?);
                Ok(())
            }
        }
    )+ };
}

fixed! {
    /// `fixed32`.
    Fixed32 u32: Bits32;
    /// `fixed64`.
    Fixed64 u64: Bits64;
    /// `sfixed32`.
    Sfixed32 i32: Bits32;
    /// `sfixed64`.
    Sfixed64 i64: Bits64;
    /// `float`.
    Float f32: Bits32;
    /// `double`.
    Double f64: Bits64;
}

/// Values prefixed by their length: in memory of the message's own, or a part of the bytes that it was read from.
macro_rules! counted {
    ($kind:ident $value:ty: $text:ident => $bytes:expr, $empty:expr) => {
        impl Kind<$value> for $kind {
            const WIRE: Wire = Wire::Counted;

            #[inline]
            fn length($text: &$value) -> usize {
                counted_length($bytes.len())
            }

            #[inline]
            fn put($text: &$value, to: &mut Writer<'_>) {
                to.counted($bytes);
            }

            #[inline]
            fn is_default($text: &$value) -> bool {
                $text.is_empty()
            }

            #[inline]
            fn clear($text: &mut $value) {
                $empty;
            }
        }
    };
}

/// `string`.
#[derive(Clone, Copy, Debug)]
pub struct Text;

counted!(Text String: text => text.as_bytes(), text.clear());
counted!(Text &str: text => text.as_bytes(), *text = "");

/// Validated in place: data that was just copied cannot be loaded yet in pieces other than those in which it was
/// stored. Whether it is ASCII is checked first, in large steps: the standard library checks the ends byte by byte.
#[inline]
fn text<'a>(from: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let bytes = from.counted()?;
    match AsciiStr::from_ascii(bytes) {
        Ok(text) => Ok(text.as_str()),
        Err(_) => std::str::from_utf8(bytes).map_err(|_| Malformed::Text),
    }
}

impl<'a> Take<'a, String> for Text {
    #[inline]
    fn take(place: &mut String, from: &mut Reader<'a>) -> Result<(), Malformed> {
        let text = text(from)?;
        place.clear();
        place.push_str(text);
        Ok(())
    }
}

impl<'a> Take<'a, &'a str> for Text {
    #[inline]
    fn take(place: &mut &'a str, from: &mut Reader<'a>) -> Result<(), Malformed> {
        *place = text(from)?;
        Ok(())
    }
}

/// `bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes;

counted!(Bytes Vec<u8>: bytes => bytes, bytes.clear());
counted!(Bytes &[u8]: bytes => bytes, *bytes = &[]);

impl<'a> Take<'a, Vec<u8>> for Bytes {
    #[inline]
    fn take(place: &mut Vec<u8>, from: &mut Reader<'a>) -> Result<(), Malformed> {
        place.clear();
        place.extend_from_slice(from.counted()?);
        Ok(())
    }
}

impl<'a> Take<'a, &'a [u8]> for Bytes {
    #[inline]
    fn take(place: &mut &'a [u8], from: &mut Reader<'a>) -> Result<(), Malformed> {
        *place = from.counted()?;
        Ok(())
    }
}

/// A nested message.
#[derive(Clone, Copy, Debug)]
pub struct Nested;

impl<M: Message> Kind<M> for Nested {
    const WIRE: Wire = Wire::Counted;

    #[inline]
    fn length(value: &M) -> usize {
        counted_length(value.encoded_len())
    }

    #[inline]
    fn put(value: &M, to: &mut Writer<'_>) {
        to.number(value.encoded_len() as u64);
        value.encode(to);
    }

    /// A message that is present is always written.
    fn is_default(_: &M) -> bool {
        false
    }

    fn clear(value: &mut M) {
        value.clear();
    }
}

impl<'a, M: Merge<'a>> Take<'a, M> for Nested {
    #[inline]
    fn take(place: &mut M, from: &mut Reader<'a>) -> Result<(), Malformed> {
        place.merge(&mut from.nested()?)
    }
}

#[inline]
fn counted_length(length: usize) -> usize {
    varint::length(length as u64) + length
}

#[inline]
fn put_with_key<K: Kind<V>, V>(number: u32, value: &V, to: &mut Writer<'_>) {
    to.key(number, K::WIRE);
    K::put(value, to);
}

/// A field without presence; it is not written while it has its default value.
pub mod singular {
    use super::*;

    /// Number of bytes of the field.
    #[inline]
    pub fn length<K: Kind<V>, V>(number: u32, value: &V) -> usize {
        match K::is_default(value) {
            true => 0,
            false => key_length(number) + K::length(value),
        }
    }

    /// Writes the field.
    #[inline]
    pub fn put<K: Kind<V>, V>(number: u32, value: &V, to: &mut Writer<'_>) {
        if !K::is_default(value) {
            put_with_key::<K, V>(number, value, to);
        }
    }

    /// Reads the field.
    ///
    /// # Errors
    /// If the value is of another type, or malformed.
    #[inline]
    pub fn take<'a, K: Take<'a, V>, V>(
        place: &mut V,
        key: Key,
        from: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        key.expect(K::WIRE)?;
        K::take(place, from)
    }

    /// Resets the field to its default.
    #[inline]
    pub fn clear<K: Kind<V>, V>(place: &mut V) {
        K::clear(place);
    }
}

/// A field that may be absent.
pub mod optional {
    use super::*;

    /// Number of bytes of the field.
    #[inline]
    pub fn length<K: Kind<V>, V>(number: u32, value: &Option<V>) -> usize {
        value
            .as_ref()
            .map_or(0, |value| key_length(number) + K::length(value))
    }

    /// Writes the field.
    #[inline]
    pub fn put<K: Kind<V>, V>(number: u32, value: &Option<V>, to: &mut Writer<'_>) {
        if let Some(value) = value {
            put_with_key::<K, V>(number, value, to);
        }
    }

    /// Reads the field; a message that is already present is merged into.
    ///
    /// # Errors
    /// If the value is of another type, or malformed.
    #[inline]
    pub fn take<'a, K: Take<'a, V>, V: Default>(
        place: &mut Option<V>,
        key: Key,
        from: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        key.expect(K::WIRE)?;
        K::take(place.get_or_insert_with(V::default), from)
    }

    /// Makes the field absent.
    #[inline]
    pub fn clear<K: Kind<V>, V>(place: &mut Option<V>) {
        *place = None;
    }
}

/// Values with a key each.
pub mod repeated {
    use super::*;

    /// Number of bytes of the values.
    #[inline]
    pub fn length<K: Kind<V>, V>(number: u32, values: &[V]) -> usize {
        let lengths = values.iter().map(K::length).sum::<usize>();
        key_length(number) * values.len() + lengths
    }

    /// Writes the values.
    #[inline]
    pub fn put<K: Kind<V>, V>(number: u32, values: &[V], to: &mut Writer<'_>) {
        for value in values {
            put_with_key::<K, V>(number, value, to);
        }
    }

    /// Adds one value, or all values of a packed field: numbers may be packed, whatever the file says.
    ///
    /// # Errors
    /// If a value is of another type, or malformed.
    #[inline]
    pub fn take<'a, K: Take<'a, V>, V: Default>(
        place: &mut Vec<V>,
        key: Key,
        from: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        if K::WIRE != Wire::Counted && key.is(Wire::Counted) {
            let mut packed = from.packed()?;
            while !packed.is_empty() {
                add::<K, V>(place, &mut packed)?;
            }
            return Ok(());
        }
        key.expect(K::WIRE)?;
        add::<K, V>(place, from)
    }

    #[inline]
    fn add<'a, K: Take<'a, V>, V: Default>(
        place: &mut Vec<V>,
        from: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        let mut value = V::default();
        K::take(&mut value, from)?;
        place.push(value);
        Ok(())
    }

    /// Removes all values.
    #[inline]
    pub fn clear<K: Kind<V>, V>(place: &mut Vec<V>) {
        place.clear();
    }
}

/// Numbers packed behind one key.
pub mod packed {
    pub use super::repeated::{clear, take};
    use super::*;

    fn bytes<K: Kind<V>, V>(values: &[V]) -> usize {
        values.iter().map(K::length).sum()
    }

    /// Number of bytes of the values.
    #[inline]
    pub fn length<K: Kind<V>, V>(number: u32, values: &[V]) -> usize {
        match values {
            [] => 0,
            values => key_length(number) + counted_length(bytes::<K, V>(values)),
        }
    }

    /// Writes the values.
    #[inline]
    pub fn put<K: Kind<V>, V>(number: u32, values: &[V], to: &mut Writer<'_>) {
        if !values.is_empty() {
            to.key(number, Wire::Counted);
            to.number(bytes::<K, V>(values) as u64);
            for value in values {
                K::put(value, to);
            }
        }
    }
}
